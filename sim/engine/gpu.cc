// SPDX-License-Identifier: Apache-2.0
// See gpu.h. What waits for the GPU is here, what does not in gpu_later.cc.

#include "sim/engine/gpu.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "sim/clock.h"
#include "sim/engine/gpu_context.h"
#include "sim/link/guard.h"

namespace sim::gpu {

namespace {

const size_t STAGING_BYTES = 4 << 20;

}  // namespace

bool may_store(const void* address) {
    void* library = cuda_library();
    if (!library) return false;
    CUresult (*attribute_of)(void*, int, CUdeviceptr) = nullptr;  // not driver(): that belongs to the device's lock
    unsigned type = 0;
    bool may =
        find_symbol(library, "cuPointerGetAttribute", attribute_of) &&
        attribute_of(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS;
    CUresult (*count_devices)(int*) = nullptr;
    CUresult (*state_of)(int, unsigned*, int*) = nullptr;
    int devices = 0;
    if (!may && find_symbol(library, "cuDeviceGetCount", count_devices) &&
        find_symbol(library, "cuDevicePrimaryCtxGetState", state_of) && count_devices(&devices) == CUDA_SUCCESS) {
        for (int device = 0; device < devices && !may; ++device) {  // ordinals are handles
            unsigned flags;
            int active = 0;
            may = state_of(device, &flags, &active) == CUDA_SUCCESS && active;
        }
    }
    dlclose(library);
    return may;
}

Copier::Copier() = default;
Copier::~Copier() = default;

Context* Copier::context_of(uint64_t address, std::string* problem) {
    Driver& d = driver();
    if (!d.ready) return nullptr;
    unsigned type = 0, managed = 0;
    CUcontext handle = nullptr;
    if (d.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) return nullptr;
    if (type != CU_MEMORYTYPE_DEVICE) return nullptr;
    d.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    if (managed) return nullptr;
    d.cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    if (!handle) d.cuCtxGetCurrent(&handle);  // memory of a pool or mapped by cuMemMap belongs to no context
    if (!handle) {
        *problem = "GPU memory is registered by a thread that has no current CUDA context";
        return nullptr;
    }
    for (auto& context : contexts_) {
        if (context->handle == handle) return context.get();
    }
    Current current(handle);
    auto made = std::make_unique<Context>();
    made->handle = handle;
    void* staging = nullptr;
    CUresult result = d.cuStreamCreate(&made->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = d.cuMemHostAlloc(&staging, STAGING_BYTES, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
        refused("cuStreamCreate or cuMemHostAlloc", result, problem);
        return nullptr;
    }
    made->staging = static_cast<uint8_t*>(staging);
    made->ring = Ring::make(handle);
    made->bulk = Bulk::make(handle);
    if (!made->ring || !made->bulk) made->ring.reset(), made->bulk.reset();
    contexts_.push_back(std::move(made));
    return contexts_.back().get();
}

bool Copier::wait(Context* context, const char* what, size_t bytes, std::string* problem) {
    Clock clock;
    const uint64_t limit = clock.now_ns() + COPY_LIMIT_NS;
    for (;;) {
        CUresult result = driver().cuStreamQuery(context->stream);
        if (result == CUDA_SUCCESS) return true;
        if (result != CUDA_ERROR_NOT_READY) return refused(what, result, problem);
        if (clock.now_ns() > limit) {
            *problem = std::string("GPU copy: ") + what + " of " + std::to_string(bytes) +
                       " bytes did not finish within 2 s: do waiting kernels fill the GPU? Switch GPU staging on, or "
                       "launch fewer blocks";
            return false;
        }
        sched_yield();
    }
}

bool Copier::to_gpu(Context* context, uint64_t destination, const void* source, size_t bytes, std::string* problem) {
    Current current(context->handle);
    const uint8_t* from = static_cast<const uint8_t*>(source);
    while (bytes) {
        const size_t part = std::min(bytes, STAGING_BYTES);
        if (from != context->staging && !guarded_copy(context->staging, from, part)) return false;
        CUresult result = driver().cuMemcpyHtoDAsync_v2(destination, context->staging, part, context->stream);
        if (result != CUDA_SUCCESS) return refused("cuMemcpyHtoDAsync", result, problem);
        if (!wait(context, "the host-to-device copy", part, problem)) return false;
        destination += part, from += part, bytes -= part;
    }
    return true;
}

bool Copier::from_gpu(Context* context, void* destination, uint64_t source, size_t bytes, std::string* problem) {
    Current current(context->handle);
    uint8_t* to = static_cast<uint8_t*>(destination);
    while (bytes) {
        const size_t part = std::min(bytes, STAGING_BYTES);
        CUresult result = driver().cuMemcpyDtoHAsync_v2(context->staging, source, part, context->stream);
        if (result != CUDA_SUCCESS) return refused("cuMemcpyDtoHAsync", result, problem);
        if (!wait(context, "the device-to-host copy", part, problem)) return false;
        if (to != context->staging && !guarded_copy(to, context->staging, part)) return false;
        to += part, source += part, bytes -= part;
    }
    return true;
}

bool Copier::from_gpu(Context* context, const Piece& first, const Piece& second, std::string* problem) {
    Current current(context->handle);
    uint8_t* staged = context->staging;
    for (const Piece* piece : {&first, &second}) {
        CUresult result = driver().cuMemcpyDtoHAsync_v2(staged, piece->source, piece->bytes, context->stream);
        if (result != CUDA_SUCCESS) return refused("cuMemcpyDtoHAsync", result, problem);
        staged += piece->bytes;
    }
    if (!wait(context, "a device-to-host copy", first.bytes + second.bytes, problem)) return false;
    std::memcpy(first.destination, context->staging, first.bytes);
    std::memcpy(second.destination, context->staging + first.bytes, second.bytes);
    return true;
}

bool Copier::hand_over(Context* context, uint64_t destination, const void* entry, size_t bytes, Job* job,
                       std::string* problem) {
    const size_t last = 4, body = bytes - last;
    const uint64_t from = reinterpret_cast<uint64_t>(entry);
    if (context->ring && context->ring->has_room(2)) {
        Later left = copy_later(context, destination, nullptr, from, body, Order::behind, job, problem);
        if (left == Later::yes)
            left = copy_later(context, destination + body, nullptr, from + body, last, Order::behind, job, problem);
        if (left != Later::cannot && left != Later::not_now) return left == Later::yes;
    }
    settle();
    Current current(context->handle);
    std::memcpy(context->staging, entry, bytes);
    CUresult result = driver().cuMemcpyHtoDAsync_v2(destination, context->staging, body, context->stream);
    if (result == CUDA_SUCCESS)
        result = driver().cuMemcpyHtoDAsync_v2(destination + body, context->staging + body, last, context->stream);
    if (result != CUDA_SUCCESS) return refused("cuMemcpyHtoDAsync", result, problem);
    return wait(context, "a host-to-device copy", bytes, problem);
}

bool Copier::within_gpu(Context* to, uint64_t destination, Context* from, uint64_t source, size_t bytes,
                        std::string* problem) {
    if (!staging_ && to == from) {
        Current current(to->handle);
        CUresult result = driver().cuMemcpyDtoDAsync_v2(destination, source, bytes, to->stream);
        if (result != CUDA_SUCCESS) return refused("cuMemcpyDtoDAsync", result, problem);
        return wait(to, "the device-to-device copy", bytes, problem);
    }
    while (bytes) {  // through the pinned memory of the destination's context, which is portable
        const size_t part = std::min(bytes, STAGING_BYTES);
        {
            Current current(from->handle);
            CUresult result = driver().cuMemcpyDtoHAsync_v2(to->staging, source, part, from->stream);
            if (result != CUDA_SUCCESS) return refused("cuMemcpyDtoHAsync", result, problem);
            if (!wait(from, "the device-to-host copy", part, problem)) return false;
        }
        if (!to_gpu(to, destination, to->staging, part, problem)) return false;
        destination += part, source += part, bytes -= part;
    }
    return true;
}

}  // namespace sim::gpu
