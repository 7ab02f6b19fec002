// SPDX-License-Identifier: Apache-2.0
// A program for NCCL's device API, of which two processes run, on a GPU each where there are two: kernels put, signal
// and wait through NCCL's GPU-initiated networking (GIN). Every value is checked, and puts are timed. NCCL itself is
// not changed and not ours. Built and started by stacks.py, with a file through which the processes meet. Prints lines
// of JSON as nvshmem_values.cu does.
#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int WORDS = 1024;     // for each process
constexpr int ROUNDS = 32;      // of barriers
constexpr int ALONE = 100;      // puts that are waited for one by one
constexpr int TOGETHER = 1024;  // puts in flight
constexpr size_t LARGE = 1 << 20;

int me, peer;
int wrong_values = 0;

void check_cuda(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::exit(3);
}
#define CUDA(call) check_cuda(call, #call)

void check_nccl(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) return;
    std::fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
    std::exit(4);
}
#define NCCL(call) check_nccl(call, #call)

void report(const char* group, int wrong) {
    std::printf("{\"process\": %d, \"check\": \"%s\", \"wrong\": %d}\n", me, group, wrong);
    std::fflush(stdout);
    wrong_values += wrong;
}

void measure(const char* what, double value, const char* unit) {
    if (me == 0) std::printf("{\"measure\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"}\n", what, value, unit);
    std::fflush(stdout);
}

uint32_t pattern(int process, int index) { return 0x9e3779b9u * static_cast<uint32_t>(process * 1000003 + index + 1); }

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

__device__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
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

ncclUniqueId meet(const char* path) {
    ncclUniqueId id;
    if (me == 0) {
        NCCL(ncclGetUniqueId(&id));
        const std::string draft = std::string(path) + ".draft";
        FILE* file = std::fopen(draft.c_str(), "wb");
        if (!file || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) || std::rename(draft.c_str(), path))
            std::exit(5);
        return id;
    }
    for (int tenths = 0; tenths < 300; ++tenths) {
        if (FILE* file = std::fopen(path, "rb")) {
            const size_t got = std::fread(&id, sizeof id, 1, file);
            std::fclose(file);
            if (got == 1) return id;
        }
        usleep(100000);
    }
    std::fprintf(stderr, "process 0 did not come\n");
    std::exit(5);
}

void wait_for_file(const char* path) {
    for (int tenths = 0; tenths < 600 && access(path, F_OK) != 0; ++tenths) usleep(100000);
}

template <typename T>
std::vector<T> read_back(const void* from, size_t count) {
    std::vector<T> values(count);
    CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

void finish(cudaStream_t stream, const char* kernel) {
    check_cuda(cudaGetLastError(), kernel);
    check_cuda(cudaStreamSynchronize(stream), kernel);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s PROCESS MEETING_FILE [measure]\n", argv[0]);
        return 2;
    }
    me = std::atoi(argv[1]), peer = 1 - me;
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(me % gpus));
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, 2, meet(argv[2]), me));

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
    const auto got = read_back<uint32_t>(to, 2 * WORDS);
    int wrong = 0;
    for (int process = 0; process < 2; ++process)
        for (int i = 0; i < WORDS; ++i) wrong += got[process * WORDS + i] != pattern(process, me * WORDS + i);
    report("all-to-all by puts that signal", wrong);

    values<<<1, 64, 0, stream>>>(to_window, device_comm);
    finish(stream, "values");
    const auto numbers = read_back<uint64_t>(to, 64);
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
    report("barriers", read_back<int>(wrong_on_gpu, 1)[0]);

    const std::string done = std::string(argv[2]) + ".done";
    if (argc > 3 && me == 0) {
        for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}, LARGE}) {
            const int count = bytes > 65536 ? 20 : ALONE;
            puts_alone<<<1, 1, 0, stream>>>(from_window, to_window, bytes, count, took, device_comm);
            finish(stream, "puts_alone");
            auto ns = read_back<uint64_t>(took, count);
            std::sort(ns.begin(), ns.end());
            measure(("GIN put and flush, " + std::to_string(bytes) + " bytes").c_str(), ns[ns.size() / 2] / 1e3, "us");
        }
        puts_together<<<1, 1, 0, stream>>>(to_window, TOGETHER, took, device_comm);
        finish(stream, "puts_together");
        measure("GIN puts of 8 bytes, 1 thread", TOGETHER * 1e3 / static_cast<double>(read_back<uint64_t>(took, 1)[0]),
                "M/s");
    }
    if (me == 0) {
        if (FILE* file = std::fopen(done.c_str(), "w")) std::fclose(file);
    }
    wait_for_file(done.c_str());
    NCCL(ncclDevCommDestroy(comm, &device_comm));
    NCCL(ncclCommWindowDeregister(comm, from_window));
    NCCL(ncclCommWindowDeregister(comm, to_window));
    NCCL(ncclMemFree(from));
    NCCL(ncclMemFree(to));
    NCCL(ncclCommDestroy(comm));
    std::printf("{\"process\": %d, \"wrong_values\": %d}\n", me, wrong_values);
    return wrong_values ? 1 : 0;
}
