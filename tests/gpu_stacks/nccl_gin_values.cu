// SPDX-License-Identifier: Apache-2.0
// A program for NCCL's device API, of which two processes run (two_processes.h): kernels put, signal and wait through
// NCCL's GPU-initiated networking (GIN). Every value is checked, and puts are timed. NCCL itself is not changed and not
// ours. Built and started by stacks.py.
#include <nccl.h>
#include <nccl_device.h>

#include <cstring>

#include "two_processes.h"

namespace {

constexpr int WORDS = 1024;     // for each process
constexpr int ROUNDS = 32;      // of barriers
constexpr int ALONE = 100;      // puts that are waited for one by one
constexpr int TOGETHER = 1024;  // puts in flight
constexpr size_t LARGE = 1 << 20;

void check_nccl(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) return;
    std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
    std::exit(4);
}
#define NCCL(call) check_nccl(call, #call)

// ---- kernels: signal 0 counts puts, signal 1 sums ----

__global__ void exchange(ncclWindow_t from, ncclWindow_t to, size_t bytes, ncclDevComm comm) {
    ncclGin gin{comm, 0};
    const uint64_t before = gin.readSignal(0);
    ncclGinBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier, 0};
    barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
    for (int r = threadIdx.x; r < comm.nRanks; r += blockDim.x)
        gin.put(ncclTeamWorld(comm), r, to, comm.rank * bytes, from, r * bytes, bytes, ncclGin_SignalInc{0});
    gin.waitSignal(ncclCoopCta(), 0, before + comm.nRanks);
    gin.flush(ncclCoopCta());
}

__global__ void values(ncclWindow_t to, ncclDevComm comm) {
    ncclGin gin{comm, 0};
    const int peer = 1 - comm.rank;
    if (threadIdx.x < 64)
        gin.putValue(ncclTeamWorld(comm), peer, to, threadIdx.x * sizeof(uint64_t),
                     static_cast<uint64_t>(threadIdx.x + 1000 * comm.rank), ncclGin_SignalAdd{1, 3});
    gin.waitSignal(ncclCoopCta(), 1, 64 * 3);
    gin.flush(ncclCoopCta());
}

__global__ void barriers(ncclWindow_t to, volatile uint64_t* mine, int* wrong, ncclDevComm comm) {
    ncclGin gin{comm, 0};
    ncclGinBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), gin, ncclTeamWorld(comm), comm.railGinBarrier, 0};
    const uint64_t base = gin.readSignal(0);  // before the other one may begin
    barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
    for (int round = 1; round <= ROUNDS; ++round) {
        if (threadIdx.x == 0)
            gin.putValue(ncclTeamWorld(comm), 1 - comm.rank, to, 0, static_cast<uint64_t>(round), ncclGin_SignalInc{0});
        gin.waitSignal(ncclCoopCta(), 0, base + round);
        if (threadIdx.x == 0 && *mine != static_cast<uint64_t>(round)) atomicAdd(wrong, 1);
        barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
    }
}

__global__ void puts_alone(ncclWindow_t from, ncclWindow_t to, size_t bytes, int count, uint64_t* took,
                           ncclDevComm comm) {
    ncclGin gin{comm, 0};
    for (int i = 0; i < count; ++i) {
        const uint64_t begin = now_ns();
        gin.put(ncclTeamWorld(comm), 1 - comm.rank, to, 0, from, 0, bytes);
        gin.flush(ncclCoopThread());
        took[i] = now_ns() - begin;
    }
}

__global__ void puts_together(ncclWindow_t to, int count, uint64_t* took, ncclDevComm comm) {
    ncclGin gin{comm, 0};
    const uint64_t begin = now_ns();
    for (int i = 0; i < count; ++i) gin.putValue(ncclTeamWorld(comm), 1 - comm.rank, to, 0, static_cast<uint64_t>(i));
    gin.flush(ncclCoopThread());
    *took = now_ns() - begin;
}

// ---- host ----

void finish(cudaStream_t stream, const char* kernel) {
    check_cuda(cudaGetLastError(), kernel);
    check_cuda(cudaStreamSynchronize(stream), kernel);
}

}  // namespace

int main(int argc, char** argv) {
    begin(argc, argv);
    ncclComm_t comm;
    const auto id = meet(argv[2], ncclUniqueId{}, [](ncclUniqueId* made) { NCCL(ncclGetUniqueId(made)); });
    NCCL(ncclCommInitRank(&comm, 2, id, me));

    void *from, *to;
    ncclWindow_t from_window, to_window;
    NCCL(ncclMemAlloc(&from, LARGE));
    NCCL(ncclMemAlloc(&to, LARGE));
    NCCL(ncclCommWindowRegister(comm, from, LARGE, &from_window, NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclCommWindowRegister(comm, to, LARGE, &to_window, NCCL_WIN_COLL_SYMMETRIC));
    ncclDevComm device_comm;
    ncclDevCommRequirements needs;
    std::memset(&needs, 0, sizeof needs);
    needs.railGinBarrierCount = 1;
    needs.ginSignalCount = 2;
    needs.ginForceEnable = true;
    NCCL(ncclDevCommCreate(comm, &needs, &device_comm));
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    std::vector<uint32_t> words(2 * WORDS);
    for (int i = 0; i < 2 * WORDS; ++i) words[i] = pattern(me, i);
    CUDA(cudaMemcpy(from, words.data(), words.size() * sizeof(uint32_t), cudaMemcpyHostToDevice));
    CUDA(cudaMemset(to, 0, LARGE));
    CUDA(cudaDeviceSynchronize());
    exchange<<<1, 128, 0, stream>>>(from_window, to_window, WORDS * sizeof(uint32_t), device_comm);
    finish(stream, "exchange");
    const auto got = read_back(static_cast<uint32_t*>(to), 2 * WORDS);
    int wrong = 0;
    for (int process = 0; process < 2; ++process)
        for (int i = 0; i < WORDS; ++i) wrong += got[process * WORDS + i] != pattern(process, me * WORDS + i);
    report("all-to-all by puts that signal", wrong);

    values<<<1, 64, 0, stream>>>(to_window, device_comm);
    finish(stream, "values");
    const auto numbers = read_back(static_cast<uint64_t*>(to), 64);
    wrong = 0;
    for (uint64_t i = 0; i < 64; ++i) wrong += numbers[i] != i + 1000 * peer;
    report("values and sums of signals", wrong);

    int* wrong_on_gpu;
    uint64_t* took;
    CUDA(cudaMalloc(&wrong_on_gpu, sizeof(int)));
    CUDA(cudaMalloc(&took, ALONE * sizeof(uint64_t)));
    CUDA(cudaMemset(wrong_on_gpu, 0, sizeof(int)));
    CUDA(cudaDeviceSynchronize());
    barriers<<<1, 64, 0, stream>>>(to_window, static_cast<volatile uint64_t*>(to), wrong_on_gpu, device_comm);
    finish(stream, "barriers");
    report("barriers", read_back(wrong_on_gpu, 1)[0]);

    if (argc > 3 && me == 0) {
        for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}, LARGE}) {
            const int count = bytes > 65536 ? 20 : ALONE;
            puts_alone<<<1, 1, 0, stream>>>(from_window, to_window, bytes, count, took, device_comm);
            finish(stream, "puts_alone");
            const std::string what = "GIN put and flush, " + std::to_string(bytes) + " bytes";
            measure(what.c_str(), median_us(read_back(took, count)), "us");
        }
        puts_together<<<1, 1, 0, stream>>>(to_window, TOGETHER, took, device_comm);
        finish(stream, "puts_together");
        measure("GIN puts of 8 bytes, 1 thread", TOGETHER * 1e3 / static_cast<double>(read_back(took, 1)[0]), "M/s");
    }
    wait_for_the_first((std::string(argv[2]) + ".done").c_str());
    NCCL(ncclDevCommDestroy(comm, &device_comm));
    NCCL(ncclCommWindowDeregister(comm, from_window));
    NCCL(ncclCommWindowDeregister(comm, to_window));
    NCCL(ncclMemFree(from));
    NCCL(ncclMemFree(to));
    NCCL(ncclCommDestroy(comm));
    return end();
}
