// SPDX-License-Identifier: Apache-2.0
// Scheduling of one block's fibers: barriers, warp operations, waiting, deadlock. See block.h and runtime.h.
#include "block.h"

#include <gda/target/ticks.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <map>

// Set while a fiber runs on this OS thread.
__thread gda_host_thread* gda_host_self = nullptr;
__thread gda_host_block* gda_host_here = nullptr;

namespace gda {
namespace host {

namespace {
__thread block* current __attribute__((tls_model("initial-exec"))) = nullptr;
// Edges of control flow until turn(). About 2 ns each: a spin looks at the NIC every half microsecond, and one that
// finds nothing less often, so that a long computation loses little.
__thread int32_t turns_left __attribute__((tls_model("initial-exec"))) = 0;
constexpr uint32_t FEWEST_TURNS = 256, MOST_TURNS = 1024;
// Turns of loops are no sure sign of waiting: only every so many rounds give the processor away.
constexpr uint32_t ROUNDS_PER_YIELD = 16;
// Who waits by idle() for longer than some milliseconds naps: where there are more threads than processors, giving one
// away by sched_yield() alone can leave a thread that never ran without it for seconds (Linux 6.18). A fiber that did
// more between two calls of idle() than a waiting loop does has gone on.
constexpr uint32_t RESTS_BEFORE_NAPS = 2000, EDGES_OF_A_WAIT = 100;
constexpr timespec NAP = {0, 20000};  // and the system's slack, 50 us

uint32_t next_random(uint32_t& state) {  // xorshift32
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}
}  // namespace

block::block(shared_state& shared)
    : shared_(shared),
      threads_(shared.request.threads.x * shared.request.threads.y * shared.request.threads.z),
      fibers_(threads_),
      warps_((threads_ + WARP - 1) / WARP),
      dynamic_shared_(shared.request.shared_bytes + 64),
      budget_(FEWEST_TURNS) {
    uint32_t capacity = 1;
    while (capacity < threads_) capacity *= 2;
    queue_.resize(capacity);
}

block::~block() {
    if (!stacks_.empty()) give_stacks(stacks_.data(), threads_);
}

bool block::prepare_stacks() {
    std::vector<uint8_t*> stacks(threads_);
    if (!take_stacks(stacks.data(), threads_)) return false;
    stacks_ = std::move(stacks);
    return true;
}

std::string block::run(gda_host_dim index, uint32_t number) {
    const gda_host_dim& size = shared_.request.threads;
    uintptr_t shared = reinterpret_cast<uintptr_t>(dynamic_shared_.data());
    here_ = {index,
             size,
             shared_.request.blocks,
             reinterpret_cast<void*>((shared + 63) & ~uintptr_t{63}),
             shared_.request.fence_hook,
             0};
    random_ = shared_.request.seed * 2654435761u + number * 40503u + 1;
    if (random_ == 0) random_ = 1;
    head_ = queued_ = idlers_ = arrived_ = 0;
    reduced_count_ = 0;
    live_ = threads_;
    failure_.clear();
    for (warp& w : warps_) w = warp();
    for (uint32_t i = 0; i < threads_; ++i) {
        fiber& f = fibers_[i];
        f.number = i;
        f.self = {{i % size.x, i / size.x % size.y, i / size.x / size.y}, i % WARP, number * threads_ + i};
        warp_of(f).alive |= 1u << f.self.lane;
        prepare(&f.where, stacks_[i], &block::enter, &f);
        make_tsan_fiber(&f.where);
        make_runnable(f);
    }
    adopt_thread(&scheduler_);
    current = this;
    gda_host_here = &here_;
    while (live_ != 0 && failure_.empty() && !shared_.aborted.load(std::memory_order_relaxed)) {
        if (queued_ == 0) {
            failure_ = deadlock();
            break;
        }
        if (idlers_ >= queued_) rest();
        resume_from(&scheduler_, false);
    }
    current = nullptr;
    gda_host_self = nullptr;
    gda_host_here = nullptr;
    // Fibers that have not ended are simply left: device code owns nothing that a destructor would free.
    for (fiber& f : fibers_) drop_tsan_fiber(&f.where);
    return failure_;
}

void block::enter(void* argument) {
    context_entered();
    static_cast<void>(argument);
    block* b = current;
    b->shared_.request.entry(b->shared_.request.arguments);
    b->end_fiber();
}

void block::make_runnable(fiber& f) {
    f.state = runnable;
    queue_[(head_ + queued_++) & (queue_.size() - 1)] = f.number;
}

// Continues with the next fiber, from the scheduler or straight from another fiber.
void block::resume_from(context* from, bool ends) {
    fiber& next = fibers_[queue_[head_]];
    head_ = (head_ + 1) & (queue_.size() - 1);
    --queued_;
    running_ = &next;
    gda_host_self = &next.self;
    if (from != &next.where) switch_context(from, &next.where, ends);
}

// The running fiber has put itself where it will be found; returns when it runs again.
void block::suspend(bool ends) {
    context* from = &running_->where;
    bool stop =
        queued_ == 0 || idlers_ >= queued_ || !failure_.empty() || shared_.aborted.load(std::memory_order_relaxed);
    if (stop) {
        switch_context(from, &scheduler_, ends);
    } else {
        resume_from(from, ends);
    }
}

// On the scheduler's stack, when every fiber that could run only waits.
void block::rest() {
    idlers_ = 0;
    int (*hook)(void) = shared_.request.idle_hook;
    int did = hook ? hook() : 0;
    budget_ = did ? FEWEST_TURNS : std::min(budget_ * 2, MOST_TURNS);
    if (did || turned_ || !all_idle_called_) vain_rests_ = 0;
    if (!did && all_idle_called_ && ++vain_rests_ > RESTS_BEFORE_NAPS) {
        nanosleep(&NAP, nullptr);
    } else if (!did && (all_idle_called_ || ++rests_ % ROUNDS_PER_YIELD == 0)) {
        sched_yield();
    }
    all_idle_called_ = turned_ = false;
}

void block::idle() {
    ++idlers_;
    all_idle_called_ = true;
    if (static_cast<int32_t>(budget_) - turns_left > static_cast<int32_t>(EDGES_OF_A_WAIT)) vain_rests_ = 0;
    budget_ = FEWEST_TURNS;
    make_runnable(*running_);
    suspend();
    turns_left = static_cast<int32_t>(budget_);
}

void block::turn() {
    ++idlers_;
    turned_ = true;
    make_runnable(*running_);
    suspend();
    turns_left = static_cast<int32_t>(budget_);
}

void block::fail(const std::string& what) {
    if (failure_.empty()) failure_ = name(running_->number) + what;
    for (;;) switch_context(&running_->where, &scheduler_, false);
}

void block::end_fiber() {
    fiber& f = *running_;
    f.state = ended;
    --live_;
    warp& w = warp_of(f);
    w.alive &= ~(1u << f.self.lane);
    idlers_ = 0;
    // Threads that have ended count as arrived, everywhere.
    if (arrived_ != 0 && arrived_ == live_) release_barrier();
    if (w.waiting != 0) complete_waiting(w);
    for (;;) suspend(true);
}

// ---- __syncthreads

int block::sync_threads(int reduction, int predicate) {
    fiber& f = *running_;
    f.state = at_barrier;
    reduced_count_ += predicate != 0;
    if (++arrived_ == live_) {
        release_barrier();
    }
    suspend();
    return barrier_answer_[reduction];
}

void block::release_barrier() {
    barrier_answer_[GDA_HOST_COUNT] = reduced_count_;
    barrier_answer_[GDA_HOST_AND] = reduced_count_ == static_cast<int>(arrived_);
    barrier_answer_[GDA_HOST_OR] = reduced_count_ != 0;
    reduced_count_ = 0;
    arrived_ = 0;
    idlers_ = 0;
    for (fiber& f : fibers_) {
        if (f.state == at_barrier) make_runnable(f);
    }
}

// ---- warp operations

uint64_t block::warp_arrive(warp_operation operation, uint32_t mask, uint64_t value, uint32_t source) {
    fiber& f = *running_;
    warp& w = warp_of(f);
    uint32_t lane = f.self.lane;
    if ((mask & (1u << lane)) == 0) {
        char text[96];
        snprintf(text, sizeof text, " calls a warp operation with mask 0x%08x, which does not name its lane %u", mask,
                 lane);
        fail(text);
    }
    w.operation[lane] = operation;
    w.mask[lane] = mask;
    w.value[lane] = value;
    w.source[lane] = source;
    w.waiting |= 1u << lane;
    f.state = at_warp_operation;
    if (!complete(w, lane)) suspend();
    return w.answer[lane];
}

// Answers all lanes of this lane's operation when all are there. True: the running fiber may go on at once.
bool block::complete(warp& w, uint32_t lane) {
    uint32_t lanes = w.mask[lane] & w.alive, mask = w.mask[lane];
    if ((lanes & ~w.waiting) != 0) return false;
    warp_operation operation = w.operation[lane];
    uint32_t ballot = 0;
    bool same = true;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        uint32_t l = static_cast<uint32_t>(__builtin_ctz(rest));
        if (w.mask[l] != mask || w.operation[l] != operation) return false;
        ballot |= static_cast<uint32_t>(w.value[l] != 0) << l;
        same = same && w.value[l] == w.value[lane];
    }
    fiber* warp_fibers = &fibers_[static_cast<size_t>(&w - warps_.data()) * WARP];
    w.waiting &= ~lanes;
    idlers_ = 0;
    bool own = false;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        uint32_t l = static_cast<uint32_t>(__builtin_ctz(rest));
        switch (operation) {
            case op_syncwarp:
                break;
            case op_shuffle: {
                uint32_t from = w.source[l];
                w.answer[l] = w.value[from < WARP && (lanes >> from & 1) != 0 ? from : l];  // undefined on a GPU
                break;
            }
            case op_ballot:
                w.answer[l] = ballot;
                break;
            case op_match_any: {
                uint32_t match = 0;
                for (uint32_t others = lanes; others != 0; others &= others - 1) {
                    uint32_t o = static_cast<uint32_t>(__builtin_ctz(others));
                    match |= static_cast<uint32_t>(w.value[o] == w.value[l]) << o;
                }
                w.answer[l] = match;
                break;
            }
            case op_match_all:
                w.answer[l] = same ? lanes : 0;
                break;
        }
        if (&warp_fibers[l] == running_) {
            running_->state = runnable;
            own = true;
        } else {
            make_runnable(warp_fibers[l]);
        }
    }
    return own;
}

// After a lane has ended: those that waited for it may be complete.
void block::complete_waiting(warp& w) {
    for (uint32_t tried = 0; (w.waiting & ~tried) != 0;) {
        uint32_t lane = static_cast<uint32_t>(__builtin_ctz(w.waiting & ~tried));
        tried |= 1u << lane;
        complete(w, lane);
    }
}

// Lanes that come here with one key while the block goes round once are together, as far as the policy allows.
uint32_t block::converged(const void* key) {
    fiber& f = *running_;
    warp& w = warp_of(f);
    uint32_t lane = f.self.lane, own = 1u << lane;
    if (shared_.request.policy == GDA_HOST_CONVERGED_ONE || w.alive == own) return own;
    w.key[lane] = key;
    w.gathering |= own;
    make_runnable(f);
    suspend();
    if ((w.gathering & own) != 0) {  // the first to run again decides for all
        uint32_t group = 0;
        for (uint32_t rest = w.gathering; rest != 0; rest &= rest - 1) {
            uint32_t l = static_cast<uint32_t>(__builtin_ctz(rest));
            if (w.key[l] == key) group |= 1u << l;
        }
        if (shared_.request.policy == GDA_HOST_CONVERGED_RANDOM) group &= next_random(random_) | own;
        w.gathering &= ~group;
        for (uint32_t rest = group; rest != 0; rest &= rest - 1) w.answer[__builtin_ctz(rest)] = group;
    }
    return static_cast<uint32_t>(w.answer[lane]);
}

// ---- errors

std::string block::name(uint32_t thread) const {
    const gda_host_dim& b = here_.index;
    const gda_host_dim& t = fibers_[thread].self.index;
    auto one = [](const gda_host_dim& v, const gda_host_dim& size) {
        std::string text = std::to_string(v.x);
        if (size.y > 1 || size.z > 1) text = "(" + text + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
        return text;
    };
    return "block " + one(b, here_.blocks) + ": thread " + one(t, here_.threads);
}

// Nobody can run and nobody outside can change that: barriers and warp operations end only by threads of the block.
std::string block::deadlock() const {
    static const char* const words[] = {"__syncwarp", "a shuffle", "a vote", "__match_any_sync", "__match_all_sync"};
    std::map<std::string, std::vector<uint32_t>> groups;
    for (const fiber& f : fibers_) {
        if (f.state == at_barrier) groups["at __syncthreads"].push_back(f.number);
        if (f.state == at_warp_operation) {
            const warp& w = warps_[f.number / WARP];
            char mask[40];
            snprintf(mask, sizeof mask, " with mask 0x%08x", w.mask[f.self.lane]);
            groups[std::string("at ") + words[w.operation[f.self.lane]] + mask].push_back(f.number);
        }
    }
    std::string text = name(0);
    text = text.substr(0, text.find(':')) + ": its threads wait for each other for ever: ";
    bool first = true;
    for (const auto& [place, who] : groups) {
        if (!first) text += ", ";
        first = false;
        text += who.size() == 1 ? "thread " + std::to_string(who[0]) + " waits "
                                : std::to_string(who.size()) + " threads (" + std::to_string(who[0]) + " first) wait ";
        text += place;
    }
    if (live_ != threads_) text += "; " + std::to_string(threads_ - live_) + " threads have ended";
    return text;
}

}  // namespace host
}  // namespace gda

// ---- the C names of runtime.h

using gda::host::current;

int gda_host_syncthreads(int reduction, int predicate) { return current->sync_threads(reduction, predicate); }
void gda_host_syncwarp(uint32_t mask) { current->warp_arrive(gda::host::op_syncwarp, mask, 0, 0); }
uint64_t gda_host_shuffle(uint32_t mask, uint64_t value, uint32_t source_lane) {
    return current->warp_arrive(gda::host::op_shuffle, mask, value, source_lane);
}
uint32_t gda_host_ballot(uint32_t mask, int predicate) {
    return static_cast<uint32_t>(current->warp_arrive(gda::host::op_ballot, mask, predicate != 0, 0));
}
uint32_t gda_host_match_any(uint32_t mask, uint64_t value) {
    return static_cast<uint32_t>(current->warp_arrive(gda::host::op_match_any, mask, value, 0));
}
uint32_t gda_host_match_all(uint32_t mask, uint64_t value) {
    return static_cast<uint32_t>(current->warp_arrive(gda::host::op_match_all, mask, value, 0));
}
uint32_t gda_host_converged(const void* key) { return current->converged(key); }
uint32_t gda_host_activemask(void) { return current->converged(__builtin_return_address(0)); }
void gda_host_idle(void) { current->idle(); }
void gda_host_trap(void) { current->fail(" called __trap()"); }

uint64_t gda_host_clock_ns(void) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// The middle of two looks at one around one at the other, the closest of a few.
void gda_host_moment(uint64_t* ticks, uint64_t* ns) {
    uint64_t closest = ~static_cast<uint64_t>(0);
    for (int i = 0; i < 8; ++i) {
        uint64_t before = gda::ticks(), now_ns = gda_host_clock_ns(), after = gda::ticks();
        if (after - before >= closest) continue;
        closest = after - before;
        *ticks = before + closest / 2;
        *ns = now_ns;
    }
}

void __sanitizer_cov_trace_pc(void) {
    if (__builtin_expect(--gda::host::turns_left >= 0, 1)) return;
    // Also called while a kernel's library is loaded (constructors), when there is no fiber.
    if (current != nullptr) {
        current->turn();
    } else {
        gda::host::turns_left = gda::host::MOST_TURNS;
    }
}
