// SPDX-License-Identifier: Apache-2.0
// What a program asks of a NIC, by operation and size: written by the requester, told at exit (uverbs/profile.h).
#pragma once

#include <cstdint>

namespace sim {

struct Profile {
    enum : uint32_t { OPERATIONS = 64, SIZES = 33 };  // size s: more than 2^(s-1) and at most 2^s bytes; 0: up to one
    uint64_t requests[OPERATIONS][SIZES] = {};
    uint64_t bytes[OPERATIONS][SIZES] = {};
    uint64_t first_ns = 0, last_ns = 0;

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
};

}  // namespace sim
