// SPDX-License-Identifier: Apache-2.0
// One CUDA context as the engine uses it. For gpu.cc and gpu_later.cc.
#pragma once

#include <memory>
#include <vector>

#include "sim/clock.h"
#include "sim/engine/cuda_driver.h"
#include "sim/engine/gpu_ring.h"

namespace sim::gpu {

const uint64_t COPY_LIMIT_NS = seconds(2);  // then a copy counts as stuck

struct Context {
    CUcontext handle = nullptr;
    CUstream stream = nullptr;   // of copies that are waited for
    uint8_t* staging = nullptr;  // pinned; never freed: freeing waits for kernels
    std::unique_ptr<Ring> ring;  // null: nothing can be left to this driver
    std::unique_ptr<Bulk> bulk;
    // Allocations that CUDA knew a moment ago: a kernel that touches another address ends the program's context.
    struct Range {
        uint64_t begin, end;
    };
    std::vector<Range> known;
};

}  // namespace sim::gpu
