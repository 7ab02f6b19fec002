// SPDX-License-Identifier: Apache-2.0
// Where a kernel's trace lies and by which clock its times are: with GDA_TRACE=N (gda.Kernel(..., trace=True)) a ring
// of 2^N events in memory of the compiled module, without it nothing. Called by cuda/gda/trace.h; read by
// gda/run/traces.py, which knows the memory by its name. One traced unit of compilation a program.
#pragma once

#include <gda/target/types.h>

// A header of 128 bytes, then events of 32: cuda/gda/trace_ring.h.
#if defined(GDA_TRACE) && defined(__CUDACC__)
extern "C" {
__device__ __align__(64) unsigned char gda_trace_memory[128 + (32ull << GDA_TRACE)];
}
#elif defined(GDA_TRACE)
#include <gda/target/ticks.h>
extern "C" {
__attribute__((visibility("default"), aligned(64))) unsigned char gda_trace_memory[128 + (32ull << GDA_TRACE)];
}
#endif

namespace gda {
namespace target {

#if defined(GDA_TRACE)
static constexpr bool TRACED = true;
static constexpr uint64_t TRACE_EVENTS = static_cast<uint64_t>(1) << GDA_TRACE;
GDA_DEVICE unsigned char* trace_memory() { return gda_trace_memory; }
// The number of this event: one addition, of which nobody waits for the order of anything else.
GDA_DEVICE uint64_t trace_next(uint64_t* next) {
#if defined(__CUDACC__)
    return atomicAdd(reinterpret_cast<unsigned long long*>(next), 1ull);
#else
    return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
#endif
}
GDA_DEVICE uint64_t trace_time() {
#if defined(__CUDACC__)
    return clock_ns();
#else
    return ticks();
#endif
}
// The thread's number in its grid.
GDA_DEVICE uint32_t trace_lane() {
    uint64_t block =
        blockIdx.x + static_cast<uint64_t>(gridDim.x) * (blockIdx.y + static_cast<uint64_t>(gridDim.y) * blockIdx.z);
    uint64_t threads = static_cast<uint64_t>(blockDim.x) * blockDim.y * blockDim.z;
    return static_cast<uint32_t>(block * threads + thread_of_block());
}
#else
static constexpr bool TRACED = false;
static constexpr uint64_t TRACE_EVENTS = 1;
GDA_DEVICE unsigned char* trace_memory() { return nullptr; }
GDA_DEVICE uint64_t trace_next(uint64_t*) { return 0; }
GDA_DEVICE uint64_t trace_time() { return 0; }
GDA_DEVICE uint32_t trace_lane() { return 0; }
#endif

}  // namespace target
}  // namespace gda
