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

// The target's part of an event, see cuda/gda/trace.h.
//   TRACE_JOINS        two steps that a thread takes one right behind the other are one event, with one reading of the
//                      clock: on a CPU a reading takes longer than the step between them
//   GDA_TRACER         how the function that makes an event is compiled
//   trace_next(next)   the place of this event, counted from the first ever. Nobody waits for it
//   trace_time()       the clock
//   trace_lane()       the thread's number in its grid
static constexpr uint64_t TRACE_GROUP = 8;  // places that a block of the CPU target takes at once

#if defined(GDA_TRACE)
static constexpr bool TRACED = true;
static constexpr uint64_t TRACE_EVENTS = static_cast<uint64_t>(1) << GDA_TRACE;
GDA_DEVICE unsigned char* trace_memory() { return gda_trace_memory; }
#if defined(__CUDACC__)
#define GDA_TRACER GDA_DEVICE
static constexpr bool TRACE_JOINS = false;
GDA_DEVICE uint64_t trace_next(uint64_t* next) { return atomicAdd(reinterpret_cast<unsigned long long*>(next), 1ull); }
GDA_DEVICE uint64_t trace_time() { return clock_ns(); }
GDA_DEVICE uint32_t trace_lane() {
    uint64_t block =
        blockIdx.x + static_cast<uint64_t>(gridDim.x) * (blockIdx.y + static_cast<uint64_t>(gridDim.y) * blockIdx.z);
    uint64_t threads = static_cast<uint64_t>(blockDim.x) * blockDim.y * blockDim.z;
    return static_cast<uint32_t>(block * threads + thread_of_block());
}
#else
// Out of line, and no turns are counted there: in line an event costs twice as much.
#define GDA_TRACER static __attribute__((noinline, unused)) GDA_NO_TURNS
static constexpr bool TRACE_JOINS = true;
// Blocks are threads of the system. Each takes places by the group, since an addition that all share is dear; what it
// leaves of a group stays as it was, which readers see by the time.
GDA_WORD uint64_t trace_next(uint64_t* next) {
    uint64_t place = gda_host_here->trace_next;
    if (place % TRACE_GROUP == 0) place = __atomic_fetch_add(next, TRACE_GROUP, __ATOMIC_RELAXED);
    gda_host_here->trace_next = place + 1;
    return place;
}
GDA_WORD uint64_t trace_time() { return ticks(); }
GDA_WORD uint32_t trace_lane() { return gda_host_self->number; }
#endif
#else
#define GDA_TRACER GDA_DEVICE
static constexpr bool TRACED = false;
static constexpr bool TRACE_JOINS = false;
static constexpr uint64_t TRACE_EVENTS = 1;
GDA_DEVICE unsigned char* trace_memory() { return nullptr; }
GDA_DEVICE uint64_t trace_next(uint64_t*) { return 0; }
GDA_DEVICE uint64_t trace_time() { return 0; }
GDA_DEVICE uint32_t trace_lane() { return 0; }
#endif

}  // namespace target
}  // namespace gda
