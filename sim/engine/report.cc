// SPDX-License-Identifier: Apache-2.0
// See report.h.

#include "sim/engine/report.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace sim {

namespace {
const char* const NAMES[] = {
#define SIM_NAME(name) #name,
    SIM_COUNTERS(SIM_NAME)
#undef SIM_NAME
};
}  // namespace

void Report::say(const std::string& sentence) {
    std::lock_guard<std::mutex> hold(lock_);
    if (known_.count(sentence)) return;
    if (kept_.size() >= MAX_SENTENCES) {
        ++not_kept_;
        return;
    }
    known_.insert(sentence);
    kept_.push_back(sentence);
}

std::vector<std::string> Report::sentences() const {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<std::string> all(kept_.begin(), kept_.end());
    if (not_kept_)
        all.push_back(text("and %llu times something more, not kept", static_cast<unsigned long long>(not_kept_)));
    return all;
}

void Report::clear() {
    std::lock_guard<std::mutex> hold(lock_);
    kept_.clear();
    known_.clear();
    not_kept_ = 0;
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

std::string text(const char* format, ...) {
    char buffer[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

}  // namespace sim
