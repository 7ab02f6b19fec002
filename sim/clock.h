// SPDX-License-Identifier: Apache-2.0
// The time by which the software NIC counts retries, waits and naps. Every room asks here, so that a test can stop it.
//
// Real: the system's monotonic clock. Virtual: one number for the whole process, which moves only when nothing else can
// (engine/virtual.cc): a timeout of half a minute then takes no time, and a run is a function of its seeds alone.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace sim {

class Clock {
   public:
    enum : uint64_t { VIRTUAL_START_NS = 1000000000u };  // not 0, which means "no deadline" to those who count

    // Nanoseconds.
    uint64_t now_ns() const {
        const uint64_t virtual_ns = virtual_ns_.load(std::memory_order_relaxed);
        return virtual_ns ? virtual_ns : real_ns();
    }
    static uint64_t real_ns() {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
    }

    static bool is_virtual() { return virtual_ns_.load(std::memory_order_relaxed) != 0; }
    // From VIRTUAL_START_NS on. For a process whose NICs are idle: what waits meanwhile waits by another clock.
    static void make_virtual() { virtual_ns_.store(VIRTUAL_START_NS); }
    static void make_real() { virtual_ns_.store(0); }
    static void jump(uint64_t to_ns) {
        if (to_ns > virtual_ns_.load()) virtual_ns_.store(to_ns);
    }

   private:
    static inline std::atomic<uint64_t> virtual_ns_{0};  // 0: real
};

constexpr uint64_t microseconds(uint64_t n) { return n * 1000u; }
constexpr uint64_t milliseconds(uint64_t n) { return n * 1000000u; }
constexpr uint64_t seconds(uint64_t n) { return n * 1000000000u; }

}  // namespace sim
