// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as programs without libcuda at link time reach it, which the CUDA runtime does too: dlopen, dlsym of
// cuGetProcAddress_v2, and that for everything else. For uverbs_gpu_initiator.cc.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

struct mlx5dv_devx_umem;

namespace {

using Address = unsigned long long;
constexpr unsigned portable = 1, device_map = 2, io_memory = 4;  // flags of cuMemHostRegister
constexpr int dma_buf = 1;                                       // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int version = 12080;

struct Cuda {
    int (*cuCtxSetCurrent)(void*);
    int (*cuDevicePrimaryCtxRetain)(void**, int);
    int (*cuMemAlloc)(Address*, size_t);
    int (*cuMemFree)(Address);
    int (*cuStreamCreate)(void**, unsigned);
    int (*cuMemcpyHtoDAsync)(Address, const void*, size_t, void*);
    int (*cuMemcpyDtoHAsync)(void*, Address, size_t, void*);
    int (*cuMemHostRegister)(void*, size_t, unsigned);
    int (*cuMemHostUnregister)(void*);
    int (*cuMemHostGetDevicePointer)(Address*, void*, unsigned);
    int (*cuMemGetHandleForAddressRange)(void*, Address, size_t, int, Address);
    void* stream;
} cuda;

void load_cuda() {
    using Find = int (*)(const char*, void**, int, uint64_t, int*);
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(library);
    auto find = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
    EXPECT(find);
    void* again = nullptr;  // the runtime asks for the function itself, and uses what it gets
    EXPECT(find("cuGetProcAddress", &again, version, 0, nullptr) == 0 && again);
    find = reinterpret_cast<Find>(again);
#define FIND(NAME) EXPECT(find(#NAME, reinterpret_cast<void**>(&cuda.NAME), version, 0, nullptr) == 0 && cuda.NAME)
    FIND(cuCtxSetCurrent);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuMemAlloc);
    FIND(cuMemFree);
    FIND(cuStreamCreate);
    FIND(cuMemcpyHtoDAsync);
    FIND(cuMemcpyDtoHAsync);
    FIND(cuMemHostRegister);
    FIND(cuMemHostUnregister);
    FIND(cuMemHostGetDevicePointer);
    FIND(cuMemGetHandleForAddressRange);
    void* nothing = &nothing;
    EXPECT(find("cuNoSuchFunction", &nothing, version, 0, nullptr) != 0);
    void* context = nullptr;
    EXPECT(cuda.cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuda.cuCtxSetCurrent(context) == 0);
    EXPECT(cuda.cuStreamCreate(&cuda.stream, 1) == 0);
}

void to_gpu(Address to, const void* from, size_t bytes) {
    EXPECT(cuda.cuMemcpyHtoDAsync(to, from, bytes, cuda.stream) == 0);
}
void from_gpu(void* to, Address from, size_t bytes) {
    EXPECT(cuda.cuMemcpyDtoHAsync(to, from, bytes, cuda.stream) == 0);
}
uint64_t word_on_gpu(Address from) {
    uint64_t word;
    from_gpu(&word, from, sizeof word);
    return word;
}

// GPU memory of one value that begins on a page of the NIC.
struct Memory {
    Address base = 0, at = 0;
    size_t bytes = 0;
    mlx5dv_devx_umem* umem = nullptr;
};
constexpr size_t gpu_page = 65536, host_page = 4096;

Memory allocate(size_t bytes, uint8_t value = 0) {
    Memory m;
    m.bytes = bytes;
    EXPECT(cuda.cuMemAlloc(&m.base, bytes + gpu_page + host_page) == 0);
    m.at = (m.base + gpu_page - 1) & ~Address{gpu_page - 1};
    void* filled = malloc(bytes);
    memset(filled, value, bytes);
    to_gpu(m.at, filled, bytes);
    free(filled);
    return m;
}

int export_dmabuf(Address at, size_t bytes) {
    int fd = -1;
    EXPECT(cuda.cuMemGetHandleForAddressRange(&fd, at, bytes, dma_buf, 0) == 0 && fd >= 0);
    return fd;
}

}  // namespace
