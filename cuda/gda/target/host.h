// SPDX-License-Identifier: Apache-2.0
// The CPU target, under g++ and clang++. What each function promises is written in target.h; here: compiler atomics,
// and for a real card the processor's I/O barriers (x86-64: stores to memory stay in order, sfence empties the write
// combining buffers before and after a doorbell; aarch64: dmb of the outer shareable domain, written but untested).
// Shared words are acquired and released with each access, which costs nothing on x86-64 and lets a thread sanitizer
// follow the chain that a GPU makes with fences. Threads are fibers: see host/runtime.h.
#pragma once

#include <gda/target/host/runtime.h>
#include <gda/target/host/words.h>
#include <gda/target/types.h>

#define GDA_DEVICE static inline __attribute__((always_inline, unused)) GDA_NO_TURNS
#define GDA_MEMBER inline __attribute__((always_inline)) GDA_NO_TURNS
// Not inlined: a kernel counts the turns of its own loops (runtime.h), not those of the library.
#define GDA_API static __attribute__((noinline, unused)) GDA_NO_TURNS
#define GDA_COLD static __attribute__((noinline, unused)) GDA_NO_TURNS
// Not extern "C": a kernel called wait must not be the C library's.
#define GDA_LINKABLE(name) static __attribute__((noinline, unused)) GDA_NO_TURNS int name
#define GDA_KERNEL(name) static __attribute__((unused)) void name

#include <gda/target/meter.h>

namespace gda {
namespace target {

GDA_DEVICE uint64_t load_shared(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
GDA_DEVICE uint64_t load_shared_acquire(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
GDA_DEVICE uint64_t load_done(const uint64_t* p, scope) { return load_shared_acquire(p); }
GDA_DEVICE void store_shared(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
GDA_DEVICE void store_shared_release(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
GDA_DEVICE bool compare_swap(uint64_t* p, uint64_t expected, uint64_t v) {
    meter(GDA_METER_SWAPS);
    return __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
GDA_DEVICE bool compare_swap_relaxed(uint64_t* p, uint64_t expected, uint64_t v) {
    return compare_swap(p, expected, v);
}
GDA_DEVICE uint64_t add(uint64_t* p, uint64_t n) {
    meter(GDA_METER_ADDITIONS);
    return __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL);
}
GDA_DEVICE uint64_t set_bits(uint64_t* p, uint64_t v) {
    meter(GDA_METER_NOTES);
    return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
}
GDA_DEVICE uint64_t exchange_if(uint64_t* p, uint64_t expected, uint64_t v) {
    meter(GDA_METER_PARKINGS);
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
}
GDA_DEVICE uint64_t not_before(uint64_t v) { return v; }
GDA_DEVICE uint32_t count_ones(uint32_t v) { return v == ~0u ? 32 : static_cast<uint32_t>(__builtin_ctz(~v)); }
GDA_DEVICE void raise(uint64_t* p, uint64_t v) {
    meter(GDA_METER_RAISES);
    uint64_t old = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
}

GDA_DEVICE void raise_release(uint64_t* p, uint64_t v) { raise(p, v); }

// Relaxed atomics, since Python may look at the words of a running queue; a plain move all the same.
GDA_DEVICE uint64_t load_owned(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
GDA_DEVICE void store_owned(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }

GDA_DEVICE void store_segment(void* p, uint64_t low, uint64_t high) {
    meter(GDA_METER_SEGMENTS);
    typedef uint64_t pair __attribute__((vector_size(16), may_alias));
    *static_cast<pair*>(p) = pair{low, high};
}
GDA_DEVICE void store_record(void* p, uint32_t v) {
    meter(GDA_METER_RECORDS);
    __atomic_store_n(static_cast<uint32_t*>(p), v, __ATOMIC_RELEASE);
}
GDA_DEVICE void store_doorbell(void* p, uint64_t v) {
    meter(GDA_METER_DOORBELLS);
    __atomic_store_n(static_cast<uint64_t*>(p), v, __ATOMIC_RELEASE);
#if defined(__x86_64__)
    asm volatile("sfence" ::: "memory");  // a write-combining page would keep the doorbell back
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#endif
}
GDA_DEVICE void store_request_to_ring(void* p, uint64_t v) {
    meter(GDA_METER_ASKED);
    __atomic_store_n(static_cast<uint64_t*>(p), v, __ATOMIC_RELEASE);
}
// A write-combining page collects the words, and the barrier sends them as one. Word by word, so that a thread
// sanitizer can follow who reads them.
GDA_DEVICE void store_blueflame(void* p, const void* slot) {
    meter(GDA_METER_BLUEFLAMES);
    uint64_t words[8];
    memcpy(words, slot, sizeof words);
    for (int i = 7; i >= 0; --i) __atomic_store_n(static_cast<uint64_t*>(p) + i, words[i], __ATOMIC_RELEASE);
#if defined(__x86_64__)
    asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#endif
}
GDA_DEVICE uint32_t load_completion(const void* p, scope) {
    uint32_t v = __atomic_load_n(static_cast<const uint32_t*>(p), __ATOMIC_ACQUIRE);
#if defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#endif
    return v;
}

GDA_DEVICE uint64_t load_signal(const uint64_t* p) {
    uint64_t v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
#if defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#endif
    return v;
}

GDA_DEVICE uint64_t load_flagged(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

GDA_DEVICE void memory_before_memory() {
#if defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#else
    asm volatile("" ::: "memory");
#endif
}
GDA_DEVICE void memory_before_register() {
#if defined(__x86_64__)
    asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
// The barriers of system scope also tell the software NIC, for which memory is otherwise visible at once: it may be
// asked to see stores only from there on (sim/engine/shadow.h).
GDA_DEVICE void wqe_before_doorbell_record(scope s) {
    meter(GDA_METER_WQE_BEFORE_DOORBELL_RECORD);
    memory_before_memory();
    if (s == scope_system) gda_host_fence();
}
GDA_DEVICE void own_wqe_before_doorbell_record(scope s) {
    meter(GDA_METER_OWN_WQE_BEFORE_DOORBELL_RECORD);
    memory_before_memory();
    if (s == scope_system) gda_host_fence();
}
GDA_DEVICE void earlier_slots_before_mine(scope s) {
    meter(GDA_METER_EARLIER_SLOTS_BEFORE_MINE);
    memory_before_memory();
    if (s == scope_system) gda_host_fence();
}
GDA_DEVICE void doorbell_record_before_doorbell(scope s) {
    meter(GDA_METER_DOORBELL_RECORD_BEFORE_DOORBELL);
    memory_before_register();
    if (s == scope_system) gda_host_fence();
}
GDA_DEVICE void wqe_before_doorbell(scope s) {
    meter(GDA_METER_WQE_BEFORE_DOORBELL);
    memory_before_register();
    if (s == scope_system) gda_host_fence();
}
GDA_DEVICE void doorbell_before_ready(scope s) {
    meter(GDA_METER_DOORBELL_BEFORE_READY);
    memory_before_register();
    if (s == scope_system) gda_host_fence();
}

GDA_DEVICE group group_of(uint32_t mask) {
    group g;
    g.mask = mask;
    g.leader = mask == 0 ? 0 : static_cast<uint32_t>(__builtin_ctz(mask));
    g.rank = static_cast<uint32_t>(__builtin_popcount(mask & ((1u << gda_host_lane()) - 1)));
    g.size = static_cast<uint32_t>(__builtin_popcount(mask));
    return g;
}
GDA_DEVICE group converged_group(const void* key) { return group_of(gda_host_converged(key)); }
GDA_DEVICE uint32_t thread_of_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
GDA_DEVICE group warp() {
    uint32_t threads = blockDim.x * blockDim.y * blockDim.z, first = thread_of_block() / 32 * 32;
    return group_of(threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1);
}
GDA_DEVICE group subset(const group& g, bool mine) {
    return group_of(g.size == 1 ? (mine ? g.mask : 0) : gda_host_ballot(g.mask, mine));
}
GDA_DEVICE uint64_t broadcast(const group& g, uint64_t v) {
    return g.size == 1 ? v : gda_host_shuffle(g.mask, v, g.leader);
}
GDA_DEVICE void sync(const group& g) {
    if (g.size != 1) gda_host_syncwarp(g.mask);
}

GDA_DEVICE bool in_first_warp() { return thread_of_block() < 32; }
GDA_DEVICE uint32_t threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
GDA_DEVICE void sync_block() { gda_host_syncthreads(GDA_HOST_NONE, 0); }
GDA_DEVICE bool sync_block_any(bool v) { return gda_host_syncthreads(GDA_HOST_OR, v) != 0; }
GDA_DEVICE uint64_t broadcast_block(uint64_t v) {
    static thread_local uint64_t word;  // of the block that this OS thread runs
    if (thread_of_block() == 0) word = v;
    sync_block();
    v = word;
    sync_block();
    return v;
}

GDA_DEVICE uint64_t clock_ns() { return gda_host_clock_ns(); }
GDA_DEVICE void idle() {
    meter(GDA_METER_SPINS);
    gda_host_idle();
}

GDA_DEVICE uint64_t load_constant(const uint64_t* p) { return *p; }
GDA_DEVICE uint32_t load_constant(const uint32_t* p) { return *p; }

}  // namespace target
}  // namespace gda
