// SPDX-License-Identifier: Apache-2.0
// The kernel that moves small payload within GPU memory for the software NIC, copy_kernel_ptx.h: what it and the CPU's
// side, gpu_ring.cc, share.
//
// One block, which stays for a while and takes items from a ring in pinned host memory: launching it takes 8 us, an
// item for one that is there less than half. When nothing has come for that while it ends; a program that synchronizes
// the device waits that long and no longer.
//
// An item carries a sum over its words and its number, so that a look at the ring is one read over the bus: the words
// may arrive in any order, and those of an earlier lap or half of an item do not add up. What the reads of an item's
// source need to come after is seen by that: they depend on its words (practice; the promise of PTX would be a fence
// more).
//
// Phases: items of one phase run at once. A phase begins (flag ORDERED) only when all items before it are performed,
// and whoever sees what an item of it stored, sees what those stored: they are behind a barrier of the warp, and then
// comes a fence before the store (PTX ISA, "Memory Consistency Model": a release pattern, which is cumulative). `done`
// has a fence of system scope before it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim::gpu {

// The kernel knows these places by number: see the PTX.
struct Item {
    uint64_t to;    // GPU memory
    uint64_t from;  // of a copy: GPU memory or pinned host memory
    uint32_t bytes;
    uint32_t what;      // enum Do, and flags
    uint64_t value[4];  // of a store: value; of an atomic: operand, compare, swap mask, compare mask
    uint64_t sum;
};
static_assert(sizeof(Item) == 64 && offsetof(Item, bytes) == 16 && offsetof(Item, value) == 24, "as the PTX has it");

enum Do : uint32_t {
    DO_COPY = 0,
    DO_STORE = 1,  // 4 or 8 bytes, aligned
    DO_ADD = 2,    // of 4 or 8 bytes; no carry leaves a bit of the swap mask
    DO_SWAP = 3,   // of 4 or 8 bytes, masked
    DO_END = 4,    // the kernel leaves the GPU
};
enum : uint32_t {
    ITEM_ORDERED = 1u << 8,  // begins a phase
    ITEM_FRESH = 1u << 9,    // the source is read in the item's phase; else it may be read before
};

// `number` counts items from 0. The factors are odd and otherwise arbitrary.
inline uint64_t sum_of(const Item& item, uint64_t number) {
    return (number + 1) * 0x9e3779b97f4a7c15 + item.to * 0xbf58476d1ce4e5b9 + item.from * 0x94d049bb133111eb +
           (item.bytes | uint64_t{item.what} << 32) * 0xd6e8feb86659fd93 + item.value[0] * 0xa0761d6478bd642f +
           item.value[1] * 0xe7037ed1a0b428db + item.value[2] * 0x8ebc6af09c88c6e3 + item.value[3] * 0x589965cc75374cc3;
}

// Written by the kernel.
struct Control {
    uint64_t done;   // items ever executed
    uint64_t ended;  // last of all: the launch that has ended
    uint64_t unused[6];
};
static_assert(offsetof(Control, ended) == 8, "as the PTX has it");

enum : uint32_t { COPY_KERNEL_THREADS = 256, COPY_KERNEL_BATCH = 32, COPY_KERNEL_LOG_RING = 12 };
inline const char* const COPY_KERNEL_NAME = "gda_copy_items";

}  // namespace sim::gpu
