// SPDX-License-Identifier: Apache-2.0
// See report.h.

#include "sim/engine/report.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "sim/engine/live.h"

namespace sim {

namespace {
const char* const NAMES[] = {
#define SIM_NAME(name) #name,
    SIM_COUNTERS(SIM_NAME)
#undef SIM_NAME
};
}  // namespace

void Report::say(Kind kind, const std::string& sentence, const Values& values) {
    std::lock_guard<std::mutex> hold(lock_);
    const auto known = known_.find(sentence);
    if (known != known_.end()) {
        ++kept_[known->second].times;
        return;
    }
    if (kept_.size() >= MAX_COMPLAINTS) {
        ++not_kept_;
        return;
    }
    known_.emplace(sentence, kept_.size());
    kept_.push_back({kind, sentence, values, 1});
    if (live_) live_->said(sentence);
}

void Report::copy_to(Live* live) {
    std::lock_guard<std::mutex> hold(lock_);
    live_ = live;
    for (const Complaint& one : kept_) {
        if (live) live->said(one.sentence);
    }
}

std::vector<Complaint> Report::complaints() const {
    std::lock_guard<std::mutex> hold(lock_);
    return std::vector<Complaint>(kept_.begin(), kept_.end());
}

uint64_t Report::not_kept() const {
    std::lock_guard<std::mutex> hold(lock_);
    return not_kept_;
}

void Report::clear() {
    std::lock_guard<std::mutex> hold(lock_);
    kept_.clear();
    known_.clear();
    not_kept_ = 0;
    if (live_) live_->forget_sentences();
}

uint64_t Report::counter(const char* name, uint32_t port) const {
    uint64_t sum = 0;
    for (int i = 0; i < static_cast<int>(Counter::count); ++i) {
        if (std::strcmp(NAMES[i], name) != 0) continue;
        for (uint32_t p = 1; p <= MAX_PORTS; ++p) {
            if (!port || p == port) sum += counter(static_cast<Counter>(i), p);
        }
    }
    return sum;
}

std::vector<std::string> Report::names() { return std::vector<std::string>(std::begin(NAMES), std::end(NAMES)); }

Values about(const char* whose, Values more) {
    unsigned number = 0;
    const struct {
        const char *begins, *name;
    } queues[] = {{"QP 0x%x", "qp"}, {"CQ 0x%x", "cq"}, {"SRQ 0x%x", "srq"}};
    for (const auto& queue : queues) {
        if (std::sscanf(whose, queue.begins, &number) == 1) more.insert(more.begin(), {queue.name, number});
    }
    return more;
}

std::string text(const char* format, ...) {
    char buffer[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

}  // namespace sim
