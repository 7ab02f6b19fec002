// SPDX-License-Identifier: Apache-2.0
// The GPU target (sm_70 and later), under nvcc and NVRTC. What each function promises is written in target.h; here
// only how PTX says it. Source: PTX ISA, "Memory Consistency Model", "ld", "st", "fence", "atom".
#pragma once

#include <gda/target/types.h>

#define GDA_DEVICE __device__ __forceinline__
#define GDA_MEMBER __device__ __forceinline__
#define GDA_API __device__ __forceinline__
// What is rarely run: kept out of the way of the rest, whose instructions a lone warp has to fetch.
#define GDA_COLD static __device__ __noinline__
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

#include <gda/target/meter.h>

namespace gda {
namespace target {

// Queues lie in global memory (or in host memory mapped there). Said so, an access is one instruction; a generic one is
// several and a branch, for it might mean a block's shared memory.
GDA_DEVICE uint64_t global(const void* p) { return static_cast<uint64_t>(__cvta_generic_to_global(p)); }

GDA_DEVICE uint64_t load_shared(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(global(p)) : "memory");
    return v;
}
GDA_DEVICE uint64_t load_shared_acquire(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(global(p)) : "memory");
    return v;
}
GDA_DEVICE uint64_t load_done(const uint64_t* p, scope s) {
    return s == scope_gpu ? load_shared(p) : load_shared_acquire(p);
}
GDA_DEVICE void store_shared(uint64_t* p, uint64_t v) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}
GDA_DEVICE void store_shared_release(uint64_t* p, uint64_t v) {
    asm volatile("st.release.gpu.global.b64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}
// Of any memory: kernels keep statuses where they like.
GDA_DEVICE bool compare_swap(uint64_t* p, uint64_t expected, uint64_t v) {
    meter(GDA_METER_SWAPS);
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(p), "l"(expected), "l"(v) : "memory");
    return old == expected;
}
// The reservation of slots: the order it needs comes from load_shared_acquire(done) before it and from the publish
// barriers after it, so this one read-modify-write may be relaxed (an acquire-release one costs a fence more).
GDA_DEVICE bool compare_swap_relaxed(uint64_t* p, uint64_t expected, uint64_t v) {
    meter(GDA_METER_SWAPS);
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(global(p)), "l"(expected), "l"(v)
                 : "memory");
    return old == expected;
}
GDA_DEVICE uint64_t add(uint64_t* p, uint64_t n) {
    meter(GDA_METER_ADDITIONS);
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(global(p)), "l"(n) : "memory");
    return old;
}
GDA_DEVICE uint64_t set_bits(uint64_t* p, uint64_t v) {
    meter(GDA_METER_NOTES);
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(global(p)), "l"(v) : "memory");
    return old;
}
GDA_DEVICE uint64_t exchange_if(uint64_t* p, uint64_t expected, uint64_t v) {
    meter(GDA_METER_PARKINGS);
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(global(p)), "l"(expected), "l"(v)
                 : "memory");
    return old;
}
GDA_DEVICE void raise(uint64_t* p, uint64_t v) {
    meter(GDA_METER_RAISES);
    asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}
GDA_DEVICE uint64_t not_before(uint64_t v) {
    asm volatile("mov.b64 %0, %0;" : "+l"(v)::"memory");
    return v;
}
GDA_DEVICE uint32_t count_ones(uint32_t v) {
    return v == ~0u ? 32 : static_cast<uint32_t>(__ffs(static_cast<int>(~v)) - 1);
}
GDA_DEVICE void raise_release(uint64_t* p, uint64_t v) {
    meter(GDA_METER_RAISES);
    asm volatile("red.release.gpu.global.max.u64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}

GDA_DEVICE uint64_t load_owned(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.weak.global.b64 %0, [%1];" : "=l"(v) : "l"(global(p)) : "memory");
    return v;
}
GDA_DEVICE void store_owned(uint64_t* p, uint64_t v) {
    asm volatile("st.weak.global.b64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}

GDA_DEVICE void store_segment(void* p, uint64_t low, uint64_t high) {
    meter(GDA_METER_SEGMENTS);
    asm volatile("st.weak.global.cs.v2.b64 [%0], {%1, %2};" ::"l"(global(p)), "l"(low), "l"(high) : "memory");
}
GDA_DEVICE void store_record(void* p, uint32_t v) {
    meter(GDA_METER_RECORDS);
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(global(p)), "r"(v) : "memory");
}
GDA_DEVICE void store_doorbell(void* p, uint64_t v) {
    meter(GDA_METER_DOORBELLS);
    asm volatile("st.mmio.relaxed.sys.global.b64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}
GDA_DEVICE void store_request_to_ring(void* p, uint64_t v) {
    meter(GDA_METER_ASKED);
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(global(p)), "l"(v) : "memory");
}
// In pieces of 16 bytes, the most that every GPU stores at once. Whether they reach a card as one is up to the GPU's
// memory system, and a card that gets them in pieces takes the first 8 bytes as a plain doorbell.
GDA_DEVICE void store_blueflame(void* p, const void* slot) {
    meter(GDA_METER_BLUEFLAMES);
    uint64_t low[4], high[4];
    for (int i = 0; i < 4; ++i) {
        asm volatile("ld.weak.global.v2.b64 {%0, %1}, [%2];"
                     : "=l"(low[i]), "=l"(high[i])
                     : "l"(global(slot) + 16 * i)
                     : "memory");
    }
    for (int i = 3; i >= 0; --i) {
        asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(global(p) + 16 * i), "l"(low[i]), "l"(high[i])
                     : "memory");
    }
}
GDA_DEVICE uint32_t load_completion(const void* p, scope s) {
    uint32_t v;
    if (s == scope_gpu) {
        asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(global(p)) : "memory");
    } else {
        asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(global(p)) : "memory");
    }
    return v;
}

GDA_DEVICE uint64_t load_signal(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

GDA_DEVICE uint64_t load_flagged(const uint64_t* p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

// At gpu scope without the acquiring half, which would only empty this multiprocessor's own cache: what earlier writers
// released lies in the level-2 cache, where the NIC reads it, and nothing is read from the own one (practice, not PTX's
// promise; it saves a quarter of a microsecond). System scope keeps the promise.
GDA_DEVICE void wqe_before_doorbell_record(scope s) {
    meter(GDA_METER_WQE_BEFORE_DOORBELL_RECORD);
    if (s == scope_gpu) {
        asm volatile(GDA_FENCE_RELEASE ".gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
}
GDA_DEVICE void own_wqe_before_doorbell_record(scope s) {
    meter(GDA_METER_OWN_WQE_BEFORE_DOORBELL_RECORD);
    if (s == scope_gpu) {
        asm volatile(GDA_FENCE_RELEASE ".gpu;" ::: "memory");
    } else {
        asm volatile(GDA_FENCE_RELEASE ".sys;" ::: "memory");
    }
}
// wqe_before_doorbell_record has the same observers and was there already.
GDA_DEVICE void wqe_before_doorbell(scope) {}
GDA_DEVICE void fence_release(scope s) {
    if (s == scope_gpu) {
        asm volatile(GDA_FENCE_RELEASE ".gpu;" ::: "memory");
    } else {
        asm volatile(GDA_FENCE_RELEASE ".sys;" ::: "memory");
    }
}
GDA_DEVICE void doorbell_record_before_doorbell(scope s) {
    meter(GDA_METER_DOORBELL_RECORD_BEFORE_DOORBELL);
    fence_release(s);
}
GDA_DEVICE void earlier_slots_before_mine(scope s) {
    meter(GDA_METER_EARLIER_SLOTS_BEFORE_MINE);
    if (s == scope_gpu) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
}
GDA_DEVICE void doorbell_before_ready(scope s) {
    meter(GDA_METER_DOORBELL_BEFORE_READY);
    fence_release(s);
}

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
GDA_DEVICE uint32_t thread_of_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
GDA_DEVICE uint32_t warp_mask() {
    uint32_t threads = blockDim.x * blockDim.y * blockDim.z, first = thread_of_block() / 32 * 32;
    return threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1;
}
GDA_DEVICE group warp() { return group_of(warp_mask()); }
// All threads of the warp or each alone, never a part of it. A part would have to wait for its first lane in shfl.sync
// and bar.warp.sync, while another part of the warp may come to the same place. Seen then on an H200 with ptxas 13.0:
// lanes of one mask, not the first, had their own zero for the first lane's index. The likely reason is what ptxas
// checks before those instructions (BRA.DIV): one lane's mask, when lanes of another one may be among those that are
// here. With one mask for all that cannot be, and it was not seen again.
GDA_DEVICE group converged_group(const void* key) {
    uint32_t here = __activemask();
    int same = 0;
    if (here == ~0u) {
        __match_all_sync(~0u, reinterpret_cast<unsigned long long>(key), &same);
    } else if ((here & (here - 1)) != 0 && here == warp_mask()) {
        __match_all_sync(here, reinterpret_cast<unsigned long long>(key), &same);
    }
    return same ? group_of(here) : group_of(1u << lane());
}
GDA_DEVICE group subset(const group& g, bool mine) { return group_of(__ballot_sync(g.mask, mine)); }
// With a mask that the compiler knows there is nothing to find out about who is here.
GDA_DEVICE uint64_t broadcast(const group& g, uint64_t v) {
    unsigned long long word = v;
    if (g.size == 1) return v;
    if (g.size == 32) return __shfl_sync(~0u, word, 0);
    return __shfl_sync(g.mask, word, static_cast<int>(g.leader));
}
GDA_DEVICE void sync(const group& g) {
    if (g.size == 32) {
        __syncwarp();
    } else if (g.size != 1) {
        __syncwarp(g.mask);
    }
}

GDA_DEVICE bool in_first_warp() { return thread_of_block() < 32; }
GDA_DEVICE uint32_t threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
GDA_DEVICE void sync_block() { __syncthreads(); }
GDA_DEVICE bool sync_block_any(bool v) { return __syncthreads_or(v) != 0; }
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
GDA_DEVICE void idle() { meter(GDA_METER_SPINS); }

// Constants of a handle: kernels never see them change, so the read-only cache may keep them.
GDA_DEVICE uint64_t load_constant(const uint64_t* p) { return __ldg(reinterpret_cast<const unsigned long long*>(p)); }
GDA_DEVICE uint32_t load_constant(const uint32_t* p) { return __ldg(p); }

}  // namespace target
}  // namespace gda
