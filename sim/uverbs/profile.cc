// SPDX-License-Identifier: Apache-2.0
// See profile.h.
#include "sim/uverbs/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace sim::uverbs::profile {
namespace {

// Some nap between two polls. A thread that asks after a longer pause did something else between.
constexpr uint64_t longest_pause_ns = 1000000;
constexpr int ways = static_cast<int>(Wait::count);
const char* const names[ways] = {"poll", "channel", "kernel"};

std::atomic<uint64_t> waited_ns[ways], asked[ways], asked_in_vain[ways];
thread_local uint64_t vain_since_ns[ways];  // of the last vain question; 0: the last one was not in vain

const char* file() {
    static const char* const value = getenv(variable);
    return value && *value ? value : nullptr;
}

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

void count(int way, bool vain) {
    asked[way].fetch_add(1, std::memory_order_relaxed);
    if (vain) asked_in_vain[way].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool on() { return file() != nullptr; }

void found(Wait how) {
    if (!on()) return;
    const int way = static_cast<int>(how);
    count(way, false);
    uint64_t& before_ns = vain_since_ns[way];
    if (!before_ns) return;
    const uint64_t pause_ns = now_ns() - before_ns;
    if (pause_ns < longest_pause_ns) waited_ns[way].fetch_add(pause_ns, std::memory_order_relaxed);
    before_ns = 0;
}

uint64_t begin() { return on() ? now_ns() : 0; }

void end(Wait how, uint64_t since_ns, bool vain) {
    if (!since_ns) return;
    const int way = static_cast<int>(how);
    count(way, vain);
    const uint64_t now = now_ns();
    uint64_t& before_ns = vain_since_ns[way];
    const uint64_t pause_ns = before_ns && since_ns - before_ns < longest_pause_ns ? since_ns - before_ns : 0;
    waited_ns[way].fetch_add(now - since_ns + pause_ns, std::memory_order_relaxed);
    before_ns = vain ? now : 0;
}

Sleeping::Sleeping() : since_ns_(on() ? now_ns() : 0) {}
Sleeping::~Sleeping() {
    if (!since_ns_) return;
    const int way = static_cast<int>(Wait::channel);
    asked[way].fetch_add(1, std::memory_order_relaxed);
    waited_ns[way].fetch_add(now_ns() - since_ns_, std::memory_order_relaxed);
}

void write(const std::vector<std::string>& nics) {
    if (!on()) return;
    const std::string path = std::string(file()) + "." + std::to_string(getpid());
    FILE* out = fopen(path.c_str(), "w");
    if (!out) return;  // the command says that nothing came
    fprintf(out, "process %d\n", static_cast<int>(getpid()));
    for (int way = 0; way < ways; ++way) {
        fprintf(out, "waited %s %llu %llu %llu\n", names[way], static_cast<unsigned long long>(waited_ns[way].load()),
                static_cast<unsigned long long>(asked[way].load()),
                static_cast<unsigned long long>(asked_in_vain[way].load()));
    }
    for (const std::string& lines : nics) fputs(lines.c_str(), out);
    fclose(out);
}

}  // namespace sim::uverbs::profile
