// SPDX-License-Identifier: Apache-2.0
// The time by which the software NIC counts retries, waits and naps. Every room asks here, so that a test can stop it.
#pragma once

#include <time.h>

#include <cstdint>

namespace sim {

class Clock {
   public:
    // Nanoseconds of the system's monotonic clock.
    uint64_t now_ns() const {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
    }
};

constexpr uint64_t microseconds(uint64_t n) { return n * 1000u; }
constexpr uint64_t milliseconds(uint64_t n) { return n * 1000000u; }
constexpr uint64_t seconds(uint64_t n) { return n * 1000000000u; }

}  // namespace sim
