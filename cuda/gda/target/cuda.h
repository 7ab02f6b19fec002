// SPDX-License-Identifier: Apache-2.0
// The GPU target (sm_70 and later), under nvcc and NVRTC. What each function promises is written in target.h; here
// only how PTX says it. Source: PTX ISA, "Memory Consistency Model", "ld", "st", "fence", "atom".
#pragma once

#include <gda/target/types.h>

#define GDA_DEVICE __device__ __forceinline__
#define GDA_MEMBER __device__ __forceinline__
#define GDA_API __device__ __forceinline__
// Any block size must launch: without the bounds a put's registers (about 70) times 1,024 threads pass the 65,536 of a
// multiprocessor. With them ptxas uses at most 64 and spills nothing. Write __global__ yourself for other bounds.
#define GDA_LINKABLE(name) extern "C" __device__ int name
#define GDA_KERNEL(name) extern "C" __global__ void __launch_bounds__(1024, 1) name

// A release fence alone exists from sm_90 on; before, acquire-release is the weakest that releases.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define GDA_FENCE_RELEASE "fence.release"
#else
#define GDA_FENCE_RELEASE "fence.acq_rel"
#endif

namespace gda {
namespace target {

GDA_DEVICE uint64_t load_shared(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
GDA_DEVICE uint64_t load_shared_acquire(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.acquire.gpu.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
GDA_DEVICE void store_shared(uint64_t* p, uint64_t v) {
    asm volatile("st.relaxed.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
GDA_DEVICE void store_shared_release(uint64_t* p, uint64_t v) {
    asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
GDA_DEVICE bool compare_swap(uint64_t* p, uint64_t expected, uint64_t v) {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(p), "l"(expected), "l"(v) : "memory");
    return old == expected;
}
// The reservation of slots: the order it needs comes from load_shared_acquire(done) before it and from the publish
// barriers after it, so this one read-modify-write may be relaxed (an acquire-release one costs a fence more).
GDA_DEVICE bool compare_swap_relaxed(uint64_t* p, uint64_t expected, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(p), "l"(expected), "l"(v) : "memory");
    return old == expected;
}
GDA_DEVICE uint64_t add(uint64_t* p, uint64_t n) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(n) : "memory");
    return old;
}
GDA_DEVICE uint64_t set_bits(uint64_t* p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
}
GDA_DEVICE uint64_t exchange_if(uint64_t* p, uint64_t expected, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(p), "l"(expected), "l"(v) : "memory");
    return old;
}
GDA_DEVICE void raise(uint64_t* p, uint64_t v) {
    asm volatile("red.relaxed.gpu.max.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
GDA_DEVICE uint32_t count_ones(uint32_t v) {
    return v == ~0u ? 32 : static_cast<uint32_t>(__ffs(static_cast<int>(~v)) - 1);
}
GDA_DEVICE void raise_release(uint64_t* p, uint64_t v) {
    asm volatile("red.release.gpu.max.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

GDA_DEVICE uint64_t load_owned(const uint64_t* p) { return *p; }
GDA_DEVICE void store_owned(uint64_t* p, uint64_t v) { *p = v; }

GDA_DEVICE void store_segment(void* p, uint64_t low, uint64_t high) {
    asm volatile("st.weak.cs.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(low), "l"(high) : "memory");
}
GDA_DEVICE void store_record(void* p, uint32_t v) {
    asm volatile("st.relaxed.sys.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GDA_DEVICE void store_doorbell(void* p, uint64_t v) {
    uint64_t at = static_cast<uint64_t>(__cvta_generic_to_global(p));  // .mmio wants the global window
    asm volatile("st.mmio.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
GDA_DEVICE uint32_t load_completion(const void* p, scope s) {
    uint32_t v;
    if (s == scope_gpu) {
        asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    } else {
        asm volatile("ld.acquire.sys.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    }
    return v;
}

GDA_DEVICE uint64_t load_signal(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

// Releases own WQEs and acquires earlier ones at once: `ready` was read before it (ring.h, publish).
GDA_DEVICE void wqe_before_doorbell_record(scope s) {
    if (s == scope_gpu) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
}
GDA_DEVICE void own_wqe_before_doorbell_record(scope s) {
    if (s == scope_gpu) {
        asm volatile(GDA_FENCE_RELEASE ".gpu;" ::: "memory");
    } else {
        asm volatile(GDA_FENCE_RELEASE ".sys;" ::: "memory");
    }
}
// wqe_before_doorbell_record has the same observers and was there already.
GDA_DEVICE void wqe_before_doorbell(scope) {}
GDA_DEVICE void doorbell_record_before_doorbell(scope s) {
    if (s == scope_gpu) {
        asm volatile(GDA_FENCE_RELEASE ".gpu;" ::: "memory");
    } else {
        asm volatile(GDA_FENCE_RELEASE ".sys;" ::: "memory");
    }
}
GDA_DEVICE void earlier_slots_before_mine(scope s) { wqe_before_doorbell_record(s); }
GDA_DEVICE void doorbell_before_ready(scope) { asm volatile(GDA_FENCE_RELEASE ".sys;" ::: "memory"); }

GDA_DEVICE uint32_t lane() {
    uint32_t v;
    asm("mov.u32 %0, %%laneid;" : "=r"(v));
    return v;
}
GDA_DEVICE group group_of(uint32_t mask) {
    group g;
    g.mask = mask;
    g.leader = static_cast<uint32_t>(__ffs(static_cast<int>(mask)) - 1);
    g.rank = static_cast<uint32_t>(__popc(mask & ((1u << lane()) - 1)));
    g.size = static_cast<uint32_t>(__popc(mask));
    return g;
}
GDA_DEVICE group converged_group(const void* key) {
    return group_of(__match_any_sync(__activemask(), reinterpret_cast<unsigned long long>(key)));
}
GDA_DEVICE uint32_t thread_of_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
GDA_DEVICE group warp() {
    uint32_t threads = blockDim.x * blockDim.y * blockDim.z, first = thread_of_block() / 32 * 32;
    return group_of(threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1);
}
GDA_DEVICE group subset(const group& g, bool mine) { return group_of(__ballot_sync(g.mask, mine)); }
GDA_DEVICE uint64_t broadcast(const group& g, uint64_t v) {
    return __shfl_sync(g.mask, static_cast<unsigned long long>(v), static_cast<int>(g.leader));
}
GDA_DEVICE void sync(const group& g) { __syncwarp(g.mask); }

GDA_DEVICE bool in_first_warp() { return thread_of_block() < 32; }
GDA_DEVICE void sync_block() { __syncthreads(); }
GDA_DEVICE uint64_t broadcast_block(uint64_t v) {
    __shared__ uint64_t word;
    if (thread_of_block() == 0) word = v;
    __syncthreads();
    v = word;
    __syncthreads();
    return v;
}

GDA_DEVICE uint64_t clock_ns() {
    uint64_t v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}
// A GPU needs no help: its scheduler runs other warps while this one's load is under way.
GDA_DEVICE void idle() {}

// Constants of a handle: kernels never see them change, so the read-only cache may keep them.
GDA_DEVICE uint64_t load_constant(const uint64_t* p) { return __ldg(reinterpret_cast<const unsigned long long*>(p)); }
GDA_DEVICE uint32_t load_constant(const uint32_t* p) { return __ldg(p); }

}  // namespace target
}  // namespace gda
