// SPDX-License-Identifier: Apache-2.0
// explorer.h, done.
#include "explorer.h"

namespace model {

constexpr uint64_t MOST_ACCESSES = 5000;  // of one execution: it would not end

struct start {
    explorer* all;
    program* what;
    uint32_t thread;
};
static start starts[MOST_THREADS];

explorer::explorer(program& p, uint64_t most, uint64_t seed)
    : program_(p), most_(most), seed_(seed), state_(seed), threads_(p.threads()) {
    std::vector<uint8_t*> stacks(threads_.size());
    if (!gda::host::take_stacks(stacks.data(), static_cast<uint32_t>(stacks.size()))) throw "no memory for stacks";
    for (size_t i = 0; i < stacks.size(); ++i) threads_[i].stack = stacks[i];
    gda::host::adopt_thread(&scheduler_);
}

void explorer::enter(void* argument) {
    gda::host::context_entered();
    start* s = static_cast<start*>(argument);
    s->what->run(s->thread);
    s->all->threads_[s->thread].now = ended;
    s->all->stop();
    __builtin_trap();
}

void explorer::resume(uint32_t t) {
    running_ = t;
    gda::host::switch_context(&scheduler_, &threads_[t].where, false);
}

void explorer::stop() { gda::host::switch_context(&threads_[running_].where, &scheduler_, false); }

void explorer::before(const access& a, bool waits) {
    threads_[running_].next = a;
    threads_[running_].waits = waits;
    stop();
    threads_[running_].waits = false;
}

void explorer::violated(const std::string& what) {
    failed(what);
    stop();
    __builtin_trap();
}

uint64_t explorer::random(uint64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
}

uint32_t explorer::choose(uint32_t n) {
    if (n <= 1) return 0;
    if (seed_ != 0) return random(4) != 0 ? 0 : static_cast<uint32_t>(random(n));
    if (depth_ == path_.size()) path_.push_back(node{true, 0, n, 0, 0});
    return path_[depth_++].chosen;
}

// The thread that goes on, of those that can; MOST_THREADS: all of them have been seen.
uint32_t explorer::pick(uint32_t able, uint32_t* asleep) {
    if (seed_ != 0) {
        uint32_t nth = static_cast<uint32_t>(random(static_cast<uint64_t>(__builtin_popcount(able))));
        while (nth-- != 0) able &= able - 1;
        return static_cast<uint32_t>(__builtin_ctz(able));
    }
    if (depth_ == path_.size()) {
        uint32_t other = able & ~*asleep;
        if (other == 0) return MOST_THREADS;
        uint32_t chosen = static_cast<uint32_t>(__builtin_ctz(other));
        path_.push_back(node{false, chosen, 0, *asleep, other & (other - 1)});
    }
    const node& here = path_[depth_++];
    *asleep = here.asleep;
    return here.chosen;
}

void explorer::execute() {
    depth_ = 0;
    cut_ = false;
    log_.clear();
    program_.begin();
    for (uint32_t i = 0; i < threads_.size(); ++i) {
        starts[i] = start{this, &program_, i};
        threads_[i].now = ready;
        threads_[i].waits = false;
        gda::host::prepare(&threads_[i].where, threads_[i].stack, enter, &starts[i]);
    }
    // To the first access of each.
    for (uint32_t i = 0; i < threads_.size() && outcome_.violation.empty(); ++i) resume(i);
    uint32_t asleep = 0;
    for (uint64_t accesses = 0; outcome_.violation.empty(); ++accesses, ++outcome_.accesses) {
        uint32_t able = 0;
        bool all = true;
        for (uint32_t i = 0; i < threads_.size(); ++i) {
            if (threads_[i].now == ended) continue;
            if (!threads_[i].waits || program_.can_go_on(i)) able |= 1u << i;
            if (!program_.may_stay(i)) all = false;
        }
        if (able == 0) {
            if (all) return program_.end();
            return failed("nobody can go on: a doorbell or a hand-over is lost");
        }
        if (accesses == MOST_ACCESSES) return failed("the program does not end");
        uint32_t t = pick(able, &asleep);
        if (t == MOST_THREADS) {
            cut_ = true;
            return;
        }
        access done = threads_[t].next;
        resume(t);
        for (uint32_t i = 0; i < threads_.size(); ++i) {
            if (i == t || ((asleep >> i & 1) != 0 && threads_[i].next.meets(done))) asleep &= ~(1u << i);
        }
    }
}

// To the next execution: the last choice that had another. False: there was none.
bool explorer::next() {
    while (!path_.empty()) {
        node& last = path_.back();
        if (last.of_value && last.chosen + 1 < last.n) {
            ++last.chosen;
            return true;
        }
        if (!last.of_value && last.other != 0) {
            last.asleep |= 1u << last.chosen;
            last.chosen = static_cast<uint32_t>(__builtin_ctz(last.other));
            last.other &= last.other - 1;
            return true;
        }
        path_.pop_back();
    }
    return false;
}

outcome explorer::explore() {
    for (;;) {
        uint64_t before = state_;
        execute();
        ++(cut_ ? outcome_.cut : outcome_.executions);
        if (!outcome_.violation.empty()) {
            // The same again, written down.
            std::string violation = outcome_.violation;
            outcome_.violation.clear();
            noting_ = true;
            state_ = before;
            execute();
            outcome_.violation = violation;
            outcome_.log = log_;
            return outcome_;
        }
        if (outcome_.executions + outcome_.cut >= most_) return outcome_;
        if (seed_ == 0 && !next()) {
            outcome_.complete = true;
            return outcome_;
        }
    }
}

}  // namespace model
