# SPDX-License-Identifier: Apache-2.0
"""The words of CUDA C++, on the CPU: each kernel's answer is what a GPU would give."""

from __future__ import annotations

import numpy as np
import pytest

from gda.run import Kernel

TEXT = r"""
#include <gda/gda.h>

__constant__ int table[4] = {10, 20, 30, 40};
__device__ int calls;
namespace inner {
struct pair { int a; float b; };
template <class T> __device__ __forceinline__ T twice(T v) { return v + v; }
}

GDA_KERNEL(where_am_i)(uint32_t* out) {
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
    uint32_t* mine = out + 4 * (block * threads + thread);
    mine[0] = threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z;
    mine[1] = blockIdx.x + 100 * blockIdx.y + 10000 * blockIdx.z;
    mine[2] = blockDim.x + 100 * blockDim.y + 10000 * blockDim.z;
    mine[3] = gridDim.x + 100 * gridDim.y + 10000 * gridDim.z;
}

// Sum of a block by a tree in shared memory.
__global__ void __launch_bounds__(256) block_sum(const int* __restrict__ in, int* out) {
    __shared__ int part[256];
    part[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern __shared__ __align__(16) unsigned char outside[];
__global__ void dynamic(int n, float* out) {
    extern __shared__ float inside[];
    inside[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n; i++) sum += inside[i] + outside[4 * i];
    out[threadIdx.x] = sum;
}

__global__ void shuffles(int* out) {
    unsigned all = 0xffffffffu;
    int lane = threadIdx.x % warpSize, i = threadIdx.x, n = blockDim.x;
    out[i] = __shfl_sync(all, lane * 10, 3);
    out[n + i] = __shfl_up_sync(all, lane, 2);
    out[2 * n + i] = __shfl_down_sync(all, lane, 3);
    out[3 * n + i] = __shfl_xor_sync(all, lane, 5);
    out[4 * n + i] = __shfl_sync(all, lane, 1, 8);
    out[5 * n + i] = __shfl_up_sync(all, lane, 1, 8);
    out[6 * n + i] = __shfl_down_sync(all, lane, 1, 8);
    double big = __shfl_sync(all, lane + 0.5, 31);
    out[7 * n + i] = int(2 * big);
}

__global__ void votes(unsigned* out) {
    unsigned all = 0xffffffffu;
    int lane = threadIdx.x % 32, n = blockDim.x;
    out[threadIdx.x] = __ballot_sync(all, lane % 3 == 0);
    out[n + threadIdx.x] = __any_sync(all, lane == 31) + 10 * __all_sync(all, lane < 32) + 100 * __all_sync(all, lane);
    out[2 * n + threadIdx.x] = __match_any_sync(all, (unsigned long long)(lane / 8));
    int same;
    unsigned match = __match_all_sync(all, 5, &same);
    out[3 * n + threadIdx.x] = match == all && same;
    match = __match_all_sync(all, lane, &same);
    out[4 * n + threadIdx.x] = match == 0 && !same;
    // Halves of a warp work apart.
    unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    if (lane < 16) {
        for (int i = 0; i < 3; i++) __syncwarp(half);
        out[5 * n + threadIdx.x] = __ballot_sync(half, 1);
    } else {
        out[5 * n + threadIdx.x] = __ballot_sync(half, lane & 1);
    }
}

__global__ void barriers(int* out) {
    out[3 * threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0);
    out[3 * threadIdx.x + 1] = __syncthreads_and(threadIdx.x < 1000) + 10 * __syncthreads_and(threadIdx.x != 5);
    out[3 * threadIdx.x + 2] = __syncthreads_or(threadIdx.x == 5) + 10 * __syncthreads_or(0);
}

__global__ void atomics(int* i, unsigned* u, unsigned long long* ull, float* f, double* d) {
    atomicAdd(&i[0], 1);
    atomicSub(&i[1], 2);
    atomicMax(&i[2], int(threadIdx.x + blockIdx.x));
    atomicMin(&i[3], -int(threadIdx.x));
    atomicAdd_system(&u[0], 1u);
    atomicOr(&u[1], 1u << (threadIdx.x % 32));
    atomicAnd(&u[2], ~(1u << (threadIdx.x % 31)));
    atomicXor(&u[3], 1u);
    atomicAdd_block(ull, 1ull << 33);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    unsigned long long seen = *(volatile unsigned long long*)(ull + 1), next;
    do { next = seen; seen = atomicCAS(ull + 1, next, next + 3); } while (seen != next);
    int old = atomicExch(&i[4], 7);
    if (old == 0) atomicAdd(&i[5], 1);
    __threadfence(); __threadfence_block(); __threadfence_system();
}

__global__ void small(int* out, const int* in, long long* times) {
    int k = 0;
    out[k++] = __popc(0xf0f0u); out[k++] = __popcll(1ull << 40 | 1); out[k++] = __ffs(8); out[k++] = __ffs(0);
    out[k++] = __ffsll(1ll << 40); out[k++] = __clz(1); out[k++] = __clz(0); out[k++] = __clzll(1);
    out[k++] = __ldg(in + 1); out[k++] = min(3, 4) + max(3u, 4u) + int(min(2.5f, 1.5f) * 2); out[k++] = table[2];
    out[k++] = inner::twice(21); out[k++] = int(inner::twice(1.5)); out[k++] = int(sqrtf(16.0f) + rsqrtf(4.0f) * 2);
    inner::pair p = {1, 2.0f}; out[k++] = p.a + int(p.b);
    dim3 d(2, 3); out[k++] = d.x * d.y * d.z;
    int4 v = make_int4(1, 2, 3, 4); out[k++] = v.x + v.y + v.z + v.w;
    times[0] = clock64(); __nanosleep(2000000); times[1] = clock64();
    times[2] = static_cast<long long>(gda_now_ns());
}

template <class T, int N> __global__ void scaled(const T* in, T* out, T factor) {
    out[threadIdx.x] = in[threadIdx.x] * factor + N;
}

__global__ void count_calls(int* out) {
    int mine = atomicAdd(&calls, 1);
    if (mine == int(blockDim.x) - 1) *out = calls;
}

__global__ void say(int n) { printf("thread %d of %d\n", int(threadIdx.x), n); }

// Lanes that leave early count as arrived.
__global__ void early_exit(int* out) {
    if (threadIdx.x % 2) return;
    __syncthreads();
    __syncwarp();
    out[threadIdx.x] = __ballot_sync(0xffffffffu, 1) == 0x55555555u;
    __syncthreads();
}

// Groups of converged lanes by two places in the code.
__global__ void together(unsigned* out) {
    // The comments for the assembler keep compilers from making one place of both.
    if (threadIdx.x < 8) {
        asm volatile("# first");
        out[threadIdx.x] = __activemask();
        asm volatile("# first");
    } else {
        asm volatile("# second");
        out[threadIdx.x] = __activemask();
        asm volatile("# second");
    }
}
__global__ void by_key(unsigned* out, uint32_t* sizes) {
    static int key[2];
    gda::target::group g = gda::target::converged_group(&key[threadIdx.x % 2]);
    out[threadIdx.x] = g.mask;
    sizes[threadIdx.x] = uint32_t(gda::target::broadcast(g, g.size * 100 + g.leader)) + 10000 * g.rank;
    gda::target::sync(g);
}
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(TEXT, target="host", names=("scaled<float, 3>", "scaled<long long, -1>"))


def test_indices(k: Kernel) -> None:
    out = np.zeros((2 * 3 * 2, 4 * 2 * 3, 4), np.uint32)
    k.where_am_i[(2, 3, 2), (4, 2, 3)](out)
    assert len({tuple(row[:2]) for row in out.reshape(-1, 4)}) == out.shape[0] * out.shape[1]
    assert tuple(out[0, 0]) == (0, 0, 4 + 200 + 30000, 2 + 300 + 20000)
    assert tuple(out[7, 13][:2]) == (1 + 100 * 1 + 10000 * 1, 1 + 100 * 0 + 10000 * 1)


def test_shared_memory_and_barrier(k: Kernel) -> None:
    values = np.arange(4 * 256, dtype=np.int32)
    out = np.zeros(4, np.int32)
    k.block_sum[4, 256](values, out)
    assert (out == values.reshape(4, 256).sum(1)).all()


def test_more_blocks_than_run_at_once(k: Kernel) -> None:
    values, out = np.ones(300 * 256, np.int32), np.zeros(300, np.int32)
    k.block_sum[300, 256](values, out)
    assert (out == 256).all()


def test_dynamic_shared_memory(k: Kernel) -> None:
    out = np.zeros(64, np.float32)
    k.dynamic[1, 64, 64 * 4](64, out)
    low_bytes = np.arange(64, dtype=np.float32).view(np.uint8)[::4]
    assert (out == np.arange(64).sum() + int(low_bytes.sum())).all()


def test_shuffles(k: Kernel) -> None:
    out = np.zeros((8, 64), np.int32)
    k.shuffles[1, 64](out)
    lane = np.arange(64) % 32
    assert (out[0] == 30).all()
    assert (out[1] == np.where(lane < 2, lane, lane - 2)).all()
    assert (out[2] == np.where(lane > 28, lane, lane + 3)).all()
    assert (out[3] == lane ^ 5).all()
    assert (out[4] == lane // 8 * 8 + 1).all()
    assert (out[5] == np.where(lane % 8 == 0, lane, lane - 1)).all()
    assert (out[6] == np.where(lane % 8 == 7, lane, lane + 1)).all()
    assert (out[7] == 63).all()


def test_votes_and_matches(k: Kernel) -> None:
    out = np.zeros((6, 64), np.uint32)
    k.votes[1, 64](out)
    lane = np.arange(64) % 32
    assert (out[0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (out[1] == 11).all()
    assert (out[2] == np.uint32(0xFF) << (lane // 8 * 8).astype(np.uint32)).all()
    assert out[3].all() and out[4].all()
    assert (out[5] == np.where(lane < 16, 0xFFFF, 0xAAAA0000)).all()


def test_barriers_that_reduce(k: Kernel) -> None:
    out = np.zeros((100, 3), np.int32)
    k.barriers[1, 100](out)
    assert (out == (34, 1, 1)).all()


def test_atomics(k: Kernel) -> None:
    threads = 16 * 64
    i, u = np.zeros(6, np.int32), np.array([0, 0, 0xFFFFFFFF, 0], np.uint32)
    ull, f, d = np.zeros(2, np.uint64), np.zeros(1, np.float32), np.zeros(1)
    k.atomics[16, 64](i, u, ull, f, d)
    assert list(i) == [threads, -2 * threads, 63 + 15, -63, 7, 1]
    assert list(u) == [threads, 0xFFFFFFFF, 1 << 31, 0]
    assert list(ull) == [threads << 33, 3 * threads]
    assert (f[0], d[0]) == (threads / 2, threads / 4)


def test_small_functions(k: Kernel) -> None:
    out, times = np.zeros(17, np.int32), np.zeros(3, np.int64)
    k.small[1, 1](out, np.array([5, 6], np.int32), times)
    assert list(out) == [8, 2, 4, 0, 41, 31, 32, 63, 6, 10, 30, 42, 3, 5, 3, 6, 10]
    assert times[1] - times[0] >= 2_000_000
    assert times[2] >= times[1]


def test_templates(k: Kernel) -> None:
    values, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    k["scaled<float, 3>"][1, 32](values, out, 0.5)
    assert (out == values / 2 + 3).all()
    whole, result = np.arange(32, dtype=np.int64), np.zeros(32, np.int64)
    k["scaled<long long, -1>"][1, 32](whole, result, 5)
    assert (result == whole * 5 - 1).all()


def test_device_variables_are_each_kernels_own(k: Kernel) -> None:
    other = Kernel(TEXT, target="host", names=("scaled<float, 3>", "scaled<long long, -1>"))
    out = np.zeros(2, np.int32)
    k.count_calls[1, 10](out)
    other.count_calls[1, 10](out[1:])
    assert list(out) == [10, 10]


def test_printf(k: Kernel, capfd: pytest.CaptureFixture[str]) -> None:
    k.say[1, 3](3)
    assert sorted(capfd.readouterr().out.splitlines()) == [f"thread {i} of 3" for i in range(3)]


def test_threads_that_have_ended_count_as_arrived(k: Kernel) -> None:
    out = np.zeros(64, np.int32)
    k.early_exit[1, 64](out)
    assert (out == (np.arange(64) % 2 == 0)).all()


def test_activemask_finds_lanes_at_the_same_place(k: Kernel) -> None:
    out = np.zeros(32, np.uint32)
    k.together[1, 32](out)
    assert set(out[:8]) == {0xFF} and set(out[8:]) == {0xFFFFFF00}


@pytest.mark.parametrize("converged", ["all", "one", "random"])
def test_converged_groups(converged: str) -> None:
    kernel = Kernel(TEXT, target="host", converged=converged, seed=5)
    masks, words = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    kernel.by_key[1, 32](masks, words)
    for lane in range(32):
        mask, word = int(masks[lane]), int(words[lane])
        allowed = 0x55555555 << lane % 2 & 0xFFFFFFFF
        assert mask >> lane & 1 and not mask & ~allowed
        assert all(masks[other] == mask for other in range(32) if mask >> other & 1), "one group, one mask"
        assert word % 10000 // 100 == mask.bit_count()
        assert word % 100 == (mask & -mask).bit_length() - 1
        assert word // 10000 == (mask & (1 << lane) - 1).bit_count()
    sizes = {int(mask).bit_count() for mask in masks}
    if converged != "random":
        assert sizes == {16 if converged == "all" else 1}
    else:
        again = np.zeros(32, np.uint32)
        Kernel(TEXT, target="host", converged="random", seed=5).by_key[1, 32](again, words)
        assert (again == masks).all(), "the same seed, the same groups"
        assert len(sizes) > 1


def test_a_thousand_threads_in_sixteen_blocks() -> None:
    """100 rounds of 10 warp operations and 2 barriers: about a second on two cores."""
    kernel = Kernel(
        """
        #include <gda/gda.h>
        GDA_KERNEL(rounds)(int n, unsigned* out) {
            unsigned sum = 0;
            for (int r = 0; r < n; r++) {
                for (int w = 0; w < 10; w++) sum += __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
                __syncthreads();
                __syncthreads();
            }
            out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
        }
        """,
        target="host",
    )
    out = np.zeros(16 * 1024, np.uint32)
    kernel.rounds[16, 1024](100, out)
    assert (out == np.tile(np.arange(1024) ^ 1, 16) * 1000).all()
