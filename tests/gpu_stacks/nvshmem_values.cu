// SPDX-License-Identifier: Apache-2.0
// A program for NVSHMEM, of which two processes run (two_processes.h): puts, gets, signals, atomics, barriers and
// collectives called by kernels, every value checked, and times of puts. NVSHMEM itself is not changed and not ours;
// what carries the bytes is chosen by its environment. Built and started by stacks.py.
#include <nvshmem.h>
#include <nvshmemx.h>

#include "two_processes.h"

namespace {

constexpr int WORDS = 4096;        // of each tested array
constexpr int LARGE = 1 << 20;     // bytes of the largest put
constexpr int SIGNAL_ROUNDS = 64;  // one after the other, there and back
constexpr int ADDERS = 256;        // threads that add to one counter
constexpr int ALONE = 200;         // puts that are waited for one by one
constexpr int TOGETHER = 4096;     // puts in flight

template <typename T>
T* symmetric(size_t count) {
    T* memory = static_cast<T*>(nvshmem_malloc(count * sizeof(T)));
    if (!memory) std::exit(4);
    CUDA(cudaMemset(memory, 0, count * sizeof(T)));
    CUDA(cudaDeviceSynchronize());
    return memory;
}

void finish(const char* kernel) {
    check_cuda(cudaGetLastError(), kernel);
    check_cuda(cudaDeviceSynchronize(), kernel);
}

// ---- kernels ----

__global__ void scalar_puts(uint32_t* to, const uint32_t* from, int peer) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) nvshmem_uint32_p(to + i, from[i], peer);
    nvshmem_quiet();
}

__global__ void block_puts(uint32_t* to, const uint32_t* from, int peer) {
    nvshmemx_putmem_block(to, from, 4096, peer);
    nvshmemx_putmem_nbi_block(to + 1024, from + 1024, (WORDS - 1024) * sizeof(uint32_t), peer);
    if (threadIdx.x == 0) nvshmem_quiet();
}

__global__ void block_gets(uint32_t* to, const uint32_t* from, int peer) {
    nvshmemx_getmem_block(to, from, 4096, peer);
    if (threadIdx.x < 32) to[1024 + threadIdx.x] = nvshmem_uint32_g(from + 1024 + threadIdx.x, peer);
}

// Process 0 puts and signals, process 1 waits, checks and answers.
__global__ void ping(uint32_t* data, uint64_t* signal, const uint32_t* from, int me, int peer, int* wrong) {
    for (int round = 1; round <= SIGNAL_ROUNDS; ++round) {
        if (me == 0)
            nvshmemx_putmem_signal_block(data, from + round, 1024, signal, static_cast<uint64_t>(round),
                                         NVSHMEM_SIGNAL_SET, peer);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, static_cast<uint64_t>(round));
        __syncthreads();
        if (me == 1) {
            for (int i = threadIdx.x; i < 256; i += blockDim.x)
                if (*static_cast<volatile uint32_t*>(data + i) != 0x9e3779b9u * static_cast<uint32_t>(i + round + 1))
                    atomicAdd(wrong, 1);
            __syncthreads();
            if (threadIdx.x == 0) {
                nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_ADD, peer);
                nvshmem_quiet();
            }
        }
        __syncthreads();
    }
}

__global__ void adds(uint64_t* counter, uint32_t* narrow, uint64_t* seen, int peer) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    seen[i] = nvshmem_uint64_atomic_fetch_add(counter, 3, peer);
    nvshmem_uint32_atomic_add(narrow, 5, peer);
    nvshmem_quiet();
}

// One thread, so that every answer is known.
__global__ void atomics(uint64_t* wide, uint32_t* narrow, int peer, int* wrong) {
    auto expect = [&](uint64_t got, uint64_t wanted) {
        if (got != wanted) atomicAdd(wrong, 1);
    };
    nvshmem_uint64_atomic_set(wide, 100, peer);
    nvshmem_quiet();
    expect(nvshmem_uint64_atomic_fetch(wide, peer), 100);
    expect(nvshmem_uint64_atomic_swap(wide, 7, peer), 100);
    expect(nvshmem_uint64_atomic_compare_swap(wide, 8, 9, peer), 7);
    expect(nvshmem_uint64_atomic_compare_swap(wide, 7, 0xf0, peer), 7);
    expect(nvshmem_uint64_atomic_fetch_or(wide, 0x0f, peer), 0xf0);
    expect(nvshmem_uint64_atomic_fetch_and(wide, 0x3c, peer), 0xff);
    expect(nvshmem_uint64_atomic_fetch_xor(wide, 0xff, peer), 0x3c);
    expect(nvshmem_uint64_atomic_fetch_inc(wide, peer), 0xc3);
    expect(nvshmem_uint64_atomic_fetch(wide, peer), 0xc4);
    nvshmem_uint32_atomic_set(narrow, 0xfffffffe, peer);
    nvshmem_quiet();
    expect(nvshmem_uint32_atomic_fetch_add(narrow, 3, peer), 0xfffffffe);
    expect(nvshmem_uint32_atomic_compare_swap(narrow, 1, 77, peer), 1);
    expect(nvshmem_uint32_atomic_swap(narrow, 78, peer), 77);
    expect(nvshmem_uint32_atomic_fetch(narrow, peer), 78);
}

// A barrier orders: what was put before it is there after it.
__global__ void barriers(uint32_t* to, int me, int peer, int* wrong) {
    for (uint32_t round = 1; round <= 32; ++round) {
        if (threadIdx.x == 0) nvshmem_uint32_p(to, round * 10 + me, peer);
        nvshmemx_barrier_all_block();
        if (threadIdx.x == 0 && *static_cast<volatile uint32_t*>(to) != round * 10 + peer) atomicAdd(wrong, 1);
        nvshmemx_barrier_all_block();
    }
}

__global__ void reduce(int* sum, const int* from) { nvshmemx_int_sum_reduce_block(NVSHMEM_TEAM_WORLD, sum, from, 512); }
__global__ void gather(int* gathered, const int* from) {
    nvshmemx_int_fcollect_block(NVSHMEM_TEAM_WORLD, gathered, from, 512);
}
__global__ void exchange(int* exchanged, const int* from) {
    nvshmemx_int_alltoall_block(NVSHMEM_TEAM_WORLD, exchanged, from, 256);
}
__global__ void spread(int* copy, const int* from) {
    nvshmemx_int_broadcast_block(NVSHMEM_TEAM_WORLD, copy, from, 512, 1);
}

__global__ void puts_alone(char* to, const char* from, size_t bytes, int count, int peer, uint64_t* took) {
    for (int i = 0; i < count; ++i) {
        const uint64_t begin = now_ns();
        nvshmem_putmem_nbi(to, from, bytes, peer);
        nvshmem_quiet();
        took[i] = now_ns() - begin;
    }
}

__global__ void puts_together(uint64_t* to, int each, int peer, uint64_t* took) {
    const uint64_t begin = now_ns();
    for (int i = 0; i < each; ++i) nvshmem_uint64_p(to + threadIdx.x, i, peer);
    nvshmem_quiet();
    if (threadIdx.x == 0) *took = now_ns() - begin;
}

__global__ void large_puts(char* to, const char* from, size_t bytes, int count, int peer, uint64_t* took) {
    const uint64_t begin = now_ns();
    for (int i = 0; i < count; ++i) nvshmemx_putmem_nbi_block(to, from, bytes, peer);
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
    if (threadIdx.x == 0) *took = now_ns() - begin;
}

// ---- the groups ----

void check_words(const char* group, const uint32_t* memory, int first, int count, int from_process) {
    const auto values = read_back(memory, WORDS);
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += values[first + i] != pattern(from_process, first + i);
    report(group, wrong);
}

void data_groups(const uint32_t* source) {
    auto* to = symmetric<uint32_t>(WORDS);
    nvshmem_barrier_all();
    scalar_puts<<<1, 32>>>(to, source, peer);
    finish("scalar_puts");
    nvshmem_barrier_all();
    check_words("scalar puts", to, 0, 256, peer);
    nvshmem_barrier_all();
    block_puts<<<1, 128>>>(to, source, peer);
    finish("block_puts");
    nvshmem_barrier_all();
    check_words("block puts", to, 0, WORDS, peer);
    CUDA(cudaMemset(to, 0, WORDS * sizeof(uint32_t)));
    CUDA(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    block_gets<<<1, 128>>>(to, source, peer);
    finish("block_gets");
    check_words("gets", to, 0, 1024 + 32, peer);
    nvshmem_barrier_all();
    nvshmem_free(to);
}

void signal_group(const uint32_t* source) {
    auto* data = symmetric<uint32_t>(512);
    auto* signal = symmetric<uint64_t>(1);
    int* wrong;
    CUDA(cudaMalloc(&wrong, sizeof *wrong));
    CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    nvshmem_barrier_all();
    ping<<<1, 128>>>(data, signal, source, me, peer, wrong);
    finish("ping");
    report("put with signal", read_back(wrong, 1)[0]);
    nvshmem_barrier_all();
    nvshmem_free(signal);
    nvshmem_free(data);
}

void atomic_groups() {
    auto* counter = symmetric<uint64_t>(2);
    auto* narrow = symmetric<uint32_t>(2);
    uint64_t* seen;
    int* wrong;
    CUDA(cudaMalloc(&seen, ADDERS * sizeof *seen));
    CUDA(cudaMalloc(&wrong, sizeof *wrong));
    CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    nvshmem_barrier_all();
    adds<<<ADDERS / 64, 64>>>(counter, narrow, seen, peer);
    finish("adds");
    auto values = read_back(seen, ADDERS);
    std::sort(values.begin(), values.end());  // each add saw another value: exactly once
    int lost = 0;
    for (int i = 0; i < ADDERS; ++i) lost += values[i] != static_cast<uint64_t>(3 * i);
    nvshmem_barrier_all();
    lost += read_back(counter, 1)[0] != 3 * ADDERS;
    lost += read_back(narrow, 1)[0] != 5 * ADDERS;
    report("concurrent adds", lost);
    nvshmem_barrier_all();
    atomics<<<1, 1>>>(counter + 1, narrow + 1, peer, wrong);
    finish("atomics");
    report("atomics", read_back(wrong, 1)[0]);
    nvshmem_barrier_all();
    nvshmem_free(narrow);
    nvshmem_free(counter);
}

void barrier_group() {
    auto* to = symmetric<uint32_t>(1);
    int* wrong;
    CUDA(cudaMalloc(&wrong, sizeof *wrong));
    CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    nvshmem_barrier_all();
    barriers<<<1, 64>>>(to, me, peer, wrong);
    finish("barriers");
    report("barriers", read_back(wrong, 1)[0]);
    nvshmem_barrier_all();
    nvshmem_free(to);
}

// Each kernel takes the first 512 words of both arrays.
void collective(const char* name, void (*kernel)(int*, const int*), int (*expected)(int)) {
    auto* from = symmetric<int>(512);
    auto* to = symmetric<int>(1024);
    std::vector<int> mine(512);
    for (int i = 0; i < 512; ++i) mine[i] = 1000 * me + i;
    CUDA(cudaMemcpy(from, mine.data(), sizeof(int) * 512, cudaMemcpyHostToDevice));
    nvshmem_barrier_all();
    kernel<<<1, 128>>>(to, from);
    finish(name);
    nvshmem_barrier_all();
    const auto values = read_back(to, 1024);
    int wrong = 0;
    for (int i = 0; i < 512; ++i) wrong += values[i] != expected(i);
    report(name, wrong);
    nvshmem_barrier_all();
    nvshmem_free(to);
    nvshmem_free(from);
}

void collective_groups() {
    collective("sum reduction", reduce, [](int i) { return 1000 + 2 * i; });
    collective("all-gather", gather, [](int i) { return i; });
    collective("broadcast", spread, [](int i) { return 1000 + i; });
    // Here each process also signals itself, which goes through a dynamically connected queue pair.
    collective("all-to-all", exchange, [](int i) { return (i < 256 ? i : 1000 + i - 256) + 256 * me; });
}

// Only process 0 puts; process 1 waits on its host, so its NIC is a passive target.
void measures(const std::string& done) {
    auto* to = symmetric<char>(LARGE);
    auto* from = symmetric<char>(LARGE);
    uint64_t* took;
    CUDA(cudaMalloc(&took, ALONE * sizeof *took));
    nvshmem_barrier_all();
    if (me == 0) {
        for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}, size_t{LARGE}}) {
            const int count = bytes > 65536 ? 20 : ALONE;
            puts_alone<<<1, 1>>>(to, from, bytes, count, peer, took);
            finish("puts_alone");
            char name[64];
            std::snprintf(name, sizeof name, "put and wait, %zu bytes", bytes);
            measure(name, median_us(read_back(took, count)), "us");
        }
        for (const int threads : {1, 32, 256}) {
            puts_together<<<1, threads>>>(reinterpret_cast<uint64_t*>(to), TOGETHER / threads, peer, took);
            finish("puts_together");
            char name[64];
            std::snprintf(name, sizeof name, "puts of 8 bytes, %d threads", threads);
            measure(name, TOGETHER * 1e3 / static_cast<double>(read_back(took, 1)[0]), "M/s");
        }
        large_puts<<<1, 256>>>(to, from, LARGE, 32, peer, took);
        finish("large_puts");
        measure("puts of 1 MiB", 32.0 * LARGE / static_cast<double>(read_back(took, 1)[0]), "GB/s");
    }
    wait_for_the_first(done.c_str());
    nvshmem_barrier_all();
}

}  // namespace

int main(int argc, char** argv) {
    begin(argc, argv);
    CUDA(cudaFree(nullptr));
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    const nvshmemx_uniqueid_t empty = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_uniqueid_t id = meet(argv[2], empty, [](nvshmemx_uniqueid_t* made) {
        if (nvshmemx_get_uniqueid(made)) std::exit(5);
    });
    nvshmemx_set_attr_uniqueid_args(me, 2, &id, &attributes);
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes)) return 6;
    auto* source = symmetric<uint32_t>(WORDS);
    std::vector<uint32_t> values(WORDS);
    for (int i = 0; i < WORDS; ++i) values[i] = pattern(me, i);
    CUDA(cudaMemcpy(source, values.data(), WORDS * sizeof(uint32_t), cudaMemcpyHostToDevice));
    data_groups(source);
    signal_group(source);
    atomic_groups();
    barrier_group();
    if (argc > 3) measures(std::string(argv[2]) + ".done");
    collective_groups();
    nvshmem_barrier_all();
    nvshmem_free(source);
    nvshmem_finalize();
    return end();
}
