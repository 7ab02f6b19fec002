// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share. Two processes of each run, on a GPU each where there are two, and meet by a
// file; every value is checked. They print lines of JSON, which stacks.py reads: {"check": ..., "wrong": N} for each
// group of values, {"measure": ..., "value": ...} from process 0.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void check_cuda(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::exit(3);
}
#define CUDA(call) check_cuda(call, #call)

int me, peer;
int wrong_values = 0;

// PROCESS MEETING_FILE [measure]
void begin(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s PROCESS MEETING_FILE [measure]\n", argv[0]);
        std::exit(2);
    }
    me = std::atoi(argv[1]), peer = 1 - me;
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(me % gpus));
}

// The status to exit with.
int end() {
    std::printf("{\"process\": %d, \"wrong_values\": %d}\n", me, wrong_values);
    return wrong_values ? 1 : 0;
}

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

__device__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

double median_us(std::vector<uint64_t> ns) {
    std::sort(ns.begin(), ns.end());
    return static_cast<double>(ns[ns.size() / 2]) / 1000;
}

template <typename T>
std::vector<T> read_back(const T* from, size_t count) {
    std::vector<T> values(count);
    CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

// Process 0 makes the id, the file carries it: written whole, then renamed.
template <typename Id, typename Make>
Id meet(const char* path, Id id, Make make) {
    if (me == 0) {
        make(&id);
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

// Process 1 waits on its host until process 0 has done what they do not do together. A barrier of the host can be a
// kernel that spins, and one GPU may serve both: whoever only waits for the other waits for a file.
void wait_for_the_first(const char* path) {
    if (me == 0) {
        if (FILE* file = std::fopen(path, "w")) std::fclose(file);
    }
    for (int tenths = 0; tenths < 600 && access(path, F_OK) != 0; ++tenths) usleep(100000);
}

}  // namespace
