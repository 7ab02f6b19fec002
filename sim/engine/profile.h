// SPDX-License-Identifier: Apache-2.0
// What a program asks of a NIC, by operation and size. Counted by the requester, which fetches work requests, and by
// sim/calls, which sees the calls that post them; told at exit (uverbs/profile.h).
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sim {

// Count is uint64_t under a lock, or an atomic.
template <typename Count>
struct ProfileOf {
    enum : uint32_t { OPERATIONS = 64, SIZES = 33 };  // size s: more than 2^(s-1) and at most 2^s bytes; 0: up to one
    Count requests[OPERATIONS][SIZES] = {};
    Count bytes[OPERATIONS][SIZES] = {};
    Count first_ns{0}, last_ns{0};

    static uint32_t size_of(uint64_t bytes) {
        const uint32_t bits = bytes < 2 ? 0 : 64 - static_cast<uint32_t>(__builtin_clzll(bytes - 1));
        return bits < SIZES ? bits : SIZES - 1;
    }
    void count(uint8_t opcode, uint64_t length, uint64_t now_ns) {
        const uint32_t size = size_of(length);
        ++requests[opcode % OPERATIONS][size];
        bytes[opcode % OPERATIONS][size] += length;
        if (!first_ns) first_ns = now_ns;
        last_ns = now_ns;
    }
    // As gda/tools/profile.py reads it.
    std::string lines(uint32_t nic) const {
        char line[128];
        snprintf(line, sizeof line, "nic %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", nic, uint64_t{first_ns},
                 uint64_t{last_ns});
        std::string all = line;
        for (uint32_t operation = 0; operation < OPERATIONS; ++operation) {
            for (uint32_t size = 0; size < SIZES; ++size) {
                const uint64_t number = requests[operation][size], total = bytes[operation][size];
                if (!number) continue;
                snprintf(line, sizeof line, "requests %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", operation,
                         size, number, total);
                all += line;
            }
        }
        return all;
    }
};
using Profile = ProfileOf<uint64_t>;

}  // namespace sim
