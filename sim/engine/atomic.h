// SPDX-License-Identifier: Apache-2.0
// Atomic operations on memory, as the responder executes them for a peer. Called by responder.cc.
// Source: InfiniBand Architecture Specification, volume 1, "Atomic Operations"; masked forms: the ConnectX manual,
// "Extended Atomic Operations".
#pragma once

#include "sim/engine/memory.h"

namespace sim {

struct AtomicOperation {
    bool compares = false;  // compare-swap; otherwise fetch-add
    uint32_t bytes = 8;     // or 4
    uint64_t swap_add = 0, compare = 0;
    // Compare-swap: bits that are replaced, bits that are compared. Fetch-add: swap_mask is the field boundary, whose
    // bits let no carry out.
    uint64_t swap_mask = 0, compare_mask = 0;
};

// What is stored when `was` was found; false: nothing is (a compare-swap whose comparison failed).
bool apply(const AtomicOperation& operation, uint64_t was, uint64_t* value);

// Executes it at `target`, which is aligned. False: its memory is gone (a sentence was said). Atomic against the CPU's
// own atomics; against a kernel that uses atomics on the same word of GPU memory it is not (the CPU has no such access
// there): as on a card without PCIe atomics.
bool execute(DeviceState& s, const AtomicOperation& operation, const Span& target, uint64_t* was, const char* whose);

// The same on GPU memory, left to the GPU behind *job, where it is atomic against kernels, too. *job is then what *was
// is there with. `later`: not now, as copy_later(). Where the GPU cannot, by copies, at once.
Copied execute_later(DeviceState& s, const AtomicOperation& operation, const Span& target, gpu::Job* job, uint64_t* was,
                     const char* whose);

}  // namespace sim
