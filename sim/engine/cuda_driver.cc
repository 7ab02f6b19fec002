// SPDX-License-Identifier: Apache-2.0
// See cuda_driver.h.

#include "sim/engine/cuda_driver.h"

#include <link.h>

#include <atomic>

namespace sim::gpu {

namespace {

int count_loaded(dl_phdr_info* info, size_t, void* count) {
    *static_cast<unsigned long long*>(count) = info->dlpi_adds;
    return 1;
}

#define FIND(name) find_symbol(library, #name, d.name)

bool find_copies(void* library, Driver& d) {
    FIND(cuThreadExchangeStreamCaptureMode);
    return FIND(cuPointerGetAttribute) && FIND(cuCtxGetCurrent) && FIND(cuCtxSetCurrent) && FIND(cuStreamCreate) &&
           FIND(cuStreamQuery) && FIND(cuMemHostAlloc) && FIND(cuMemcpyHtoDAsync_v2) && FIND(cuMemcpyDtoHAsync_v2) &&
           FIND(cuMemcpyDtoDAsync_v2);
}

bool find_background(void* library, Driver& d) {
    FIND(cuFuncLoad);
    return FIND(cuMemGetAddressRange_v2) && FIND(cuStreamWriteValue64_v2) && FIND(cuModuleLoadData) &&
           FIND(cuModuleGetFunction) && FIND(cuLaunchKernel);
}

#undef FIND

}  // namespace

// Asking for a library that is not there means a search of the file system: that happens only when the process has
// loaded something since.
void* cuda_library() {
    static std::atomic<unsigned long long> without{0};  // how many libraries were ever loaded when it was not there
    unsigned long long loaded = 0;
    dl_iterate_phdr(count_loaded, &loaded);
    if (without.load() == loaded) return nullptr;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) without.store(loaded);
    return library;
}

Driver& driver() {
    static Driver d;
    if (d.ready) return d;
    void* library = cuda_library();
    if (!library) return d;
    d.background = find_background(library, d);
    d.ready = find_copies(library, d);
    return d;
}

Current::Current(CUcontext wanted) {
    driver().cuCtxGetCurrent(&before_);
    changed_ = before_ != wanted;
    if (changed_) driver().cuCtxSetCurrent(wanted);
    exchange_capture_mode();
}

void Current::exchange_capture_mode() {
    if (driver().cuThreadExchangeStreamCaptureMode) driver().cuThreadExchangeStreamCaptureMode(&capture_mode_);
}

Current::~Current() {
    exchange_capture_mode();
    if (changed_) driver().cuCtxSetCurrent(before_);
}

bool refused(const char* call, CUresult result, std::string* problem) {
    *problem = std::string("GPU copy: ") + call + " answered CUDA error " + std::to_string(result);
    return false;
}

}  // namespace sim::gpu
