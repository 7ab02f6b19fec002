// SPDX-License-Identifier: Apache-2.0
// Between a kernel compiled for the CPU and the runtime that runs it (block.cc, launch.cc): C names only. The kernel's
// side is words.h and target/host.h; gda/run/host.py compiles both sides and calls the gda_host_start half.
//
// One OS thread runs one block at a time; the block's threads are fibers on it and hand over only where they wait: at a
// barrier, a warp operation, idle(), or when their own loops have made many turns (below). So a block needs no locks.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Functions with this attribute are not counted.
#if defined(__clang__)
#define GDA_NO_TURNS __attribute__((no_sanitize("coverage")))
#else
#define GDA_NO_TURNS __attribute__((no_sanitize_coverage))
#endif

#define GDA_HOST_EXPORT __attribute__((visibility("default")))
#define GDA_HOST_LOCAL __attribute__((tls_model("initial-exec"), visibility("default")))

extern "C" {

struct gda_host_dim {
    uint32_t x, y, z;
};

// What a thread of a kernel knows of itself and of its block.
struct gda_host_thread {
    gda_host_dim index;
    uint32_t lane;
    uint32_t number;  // in the grid
};
struct gda_host_block {
    gda_host_dim index, threads, blocks;
    void* dynamic_shared;
    void (*fence_hook)(int event);  // of the launch
    uint64_t trace_next;            // target/trace.h: this block's next place in the ring, 0 at first
};
extern __thread gda_host_thread* gda_host_self GDA_HOST_LOCAL;
extern __thread gda_host_block* gda_host_here GDA_HOST_LOCAL;

// ---- for kernels

enum gda_host_reduction { GDA_HOST_NONE, GDA_HOST_COUNT, GDA_HOST_AND, GDA_HOST_OR };
GDA_HOST_EXPORT int gda_host_syncthreads(int reduction, int predicate);
GDA_HOST_EXPORT void gda_host_syncwarp(uint32_t mask);
GDA_HOST_EXPORT uint64_t gda_host_shuffle(uint32_t mask, uint64_t value, uint32_t source_lane);
GDA_HOST_EXPORT uint32_t gda_host_ballot(uint32_t mask, int predicate);
GDA_HOST_EXPORT uint32_t gda_host_match_any(uint32_t mask, uint64_t value);
GDA_HOST_EXPORT uint32_t gda_host_match_all(uint32_t mask, uint64_t value);
// Lanes of this warp that ask with the same key within one round of the block, by the launch's policy.
GDA_HOST_EXPORT uint32_t gda_host_converged(const void* key);
GDA_HOST_EXPORT uint32_t gda_host_activemask(void);  // the key is the place of the call
// One turn of a wait: other threads of the block run; when all only wait, the idle hook does.
GDA_HOST_EXPORT void gda_host_idle(void);
GDA_HOST_EXPORT uint64_t gda_host_clock_ns(void);  // CLOCK_MONOTONIC
GDA_HOST_EXPORT void gda_host_trap(void) __attribute__((noreturn));
// Called by the compiler's instrumentation at every edge of a kernel's control flow (-fsanitize-coverage=trace-pc).
// After some hundred edges it acts like idle(): so a kernel that spins without any call lets the others and the NIC
// run, and ends at the launch's deadline.
GDA_HOST_EXPORT void __sanitizer_cov_trace_pc(void);

// ---- for gda/run/host.py

// The clock of traced kernels (ticks.h) and CLOCK_MONOTONIC, read together.
GDA_HOST_EXPORT void gda_host_moment(uint64_t* ticks, uint64_t* ns);

// What the fence hook is told: threads have made a fence of system scope; the launch begins; it has ended.
enum gda_host_event { GDA_HOST_FENCE, GDA_HOST_BEGIN, GDA_HOST_END };
enum gda_host_policy { GDA_HOST_CONVERGED_ALL, GDA_HOST_CONVERGED_ONE, GDA_HOST_CONVERGED_RANDOM };

struct gda_host_request {
    void (*entry)(void* const* arguments);  // runs the kernel once, as one thread
    void* const* arguments;                 // kept alive by the caller until the launch has finished
    int (*idle_hook)(void);                 // how many things it did; may be null; called by several threads
    void (*fence_hook)(int event);          // enum gda_host_event; may be null; called by several threads
    gda_host_dim blocks, threads;
    uint64_t shared_bytes;
    uint32_t policy;  // enum gda_host_policy
    uint32_t seed;    // of GDA_HOST_CONVERGED_RANDOM
};
struct gda_host_launch;

// Starts a kernel. Null with the reason in `reason` when it cannot run.
GDA_HOST_EXPORT gda_host_launch* gda_host_start(const gda_host_request* request, char* reason, size_t reason_bytes);
// Waits at most so long; 1 when all blocks have ended.
GDA_HOST_EXPORT int gda_host_wait(gda_host_launch* launch, uint64_t timeout_ns);
// Blocks end at their next turn; what their threads were doing is dropped.
GDA_HOST_EXPORT void gda_host_abort(gda_host_launch* launch);
// Why the launch failed (deadlock, trap), or an empty string. Valid until gda_host_free.
GDA_HOST_EXPORT const char* gda_host_error(gda_host_launch* launch);
GDA_HOST_EXPORT void gda_host_free(gda_host_launch* launch);

}  // extern "C"

// A fence of system scope was made, after which other devices see what was stored before. Threads that run in no launch
// have no hook.
static inline __attribute__((always_inline, unused)) void gda_host_fence() {
    if (__builtin_expect(gda_host_here && gda_host_here->fence_hook, 0)) gda_host_here->fence_hook(GDA_HOST_FENCE);
}

static inline __attribute__((always_inline, unused)) uint32_t gda_host_lane() { return gda_host_self->lane; }
