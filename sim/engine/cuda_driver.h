// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that the engine calls, found in the libcuda that the program itself has loaded
// (never linked, never loaded by us). The few declarations needed are written out here: the simulator is built without
// CUDA. Called by gpu.cc and gpu_ring.cc. Source: CUDA Driver API, "Unified Addressing", "Memory Management", "Stream
// Management", "Stream Memory Operations", "Module Management", "Execution Control".
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sim::gpu {

typedef int CUresult;
typedef void* CUcontext;
typedef void* CUstream;
typedef void* CUmodule;
typedef void* CUfunction;
typedef unsigned long long CUdeviceptr;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_READY = 600 };
enum { CU_POINTER_ATTRIBUTE_CONTEXT = 1, CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_POINTER_ATTRIBUTE_IS_MANAGED = 8 };
enum { CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_MEMHOSTALLOC_PORTABLE = 1 };

struct Driver {
    CUresult (*cuPointerGetAttribute)(void*, int, CUdeviceptr) = nullptr;
    CUresult (*cuCtxGetCurrent)(CUcontext*) = nullptr;
    CUresult (*cuCtxSetCurrent)(CUcontext) = nullptr;
    CUresult (*cuStreamCreate)(CUstream*, unsigned) = nullptr;
    CUresult (*cuStreamQuery)(CUstream) = nullptr;
    CUresult (*cuMemHostAlloc)(void**, size_t, unsigned) = nullptr;
    CUresult (*cuMemcpyHtoDAsync_v2)(CUdeviceptr, const void*, size_t, CUstream) = nullptr;
    CUresult (*cuMemcpyDtoHAsync_v2)(void*, CUdeviceptr, size_t, CUstream) = nullptr;
    CUresult (*cuMemcpyDtoDAsync_v2)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = nullptr;
    CUresult (*cuThreadExchangeStreamCaptureMode)(int*) = nullptr;  // since 10.1; may be null
    bool ready = false;

    // What copies in the background need besides. Drivers before 12.0 have not all of them: everything is waited for
    // there.
    CUresult (*cuMemGetAddressRange_v2)(CUdeviceptr*, size_t*, CUdeviceptr) = nullptr;
    CUresult (*cuStreamWriteValue64_v2)(CUstream, CUdeviceptr, uint64_t, unsigned) = nullptr;
    CUresult (*cuModuleLoadData)(CUmodule*, const void*) = nullptr;
    CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*) = nullptr;
    CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream, void**, void**) = nullptr;
    bool background = false;
    CUresult (*cuFuncLoad)(CUfunction) = nullptr;  // since 12.4; may be null
};

// Looks again as long as the program has not loaded CUDA: it may do so later.
Driver& driver();

// CUDA's library, when the program has loaded it; the caller closes it.
void* cuda_library();

template <typename F>
bool find_symbol(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
}

// Makes a context current in the stepping thread, which may be the program's own, and puts back what was. Meanwhile the
// thread may ask and copy while the program captures a stream into a graph: without that, one such call would spoil it.
class Current {
   public:
    explicit Current(CUcontext wanted);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    void exchange_capture_mode();

    CUcontext before_ = nullptr;
    bool changed_ = false;
    int capture_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the thread's own, in between
};

// False, after a sentence in *problem.
bool refused(const char* call, CUresult result, std::string* problem);

}  // namespace sim::gpu
