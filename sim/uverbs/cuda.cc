// SPDX-License-Identifier: Apache-2.0
// See cuda.h. The few driver declarations needed are written out: the simulator is built without CUDA.
#include "sim/uverbs/cuda.h"

#include <dlfcn.h>
#include <string.h>

#include <atomic>

#include "sim/uverbs/dmabuf.h"
#include "sim/uverbs/mapping.h"
#include "sim/uverbs/real.h"

namespace sim::uverbs::cuda {

const void* front = nullptr;

namespace {

constexpr int success = 0, not_initialized = 3;  // CUresult
constexpr unsigned io_memory = 4;                // CU_MEMHOSTREGISTER_IOMEMORY
constexpr int dma_buf_descriptor = 1;            // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int first_with_status = 12000;         // the version from which cuGetProcAddress has five parameters

// The driver's own functions, as they were last found.
std::atomic<void*> own_register, own_export, own_find, own_find_v2;

struct Replacement {
    const char* name;
    void* ours;
    std::atomic<void*>* own;
};
#define SIM_ADDRESS(FUNCTION) reinterpret_cast<void*>(FUNCTION)
const Replacement replacements[] = {
    {"cuMemHostRegister_v2", SIM_ADDRESS(host_register), &own_register},
    {"cuMemHostRegister", SIM_ADDRESS(host_register), &own_register},
    {"cuMemGetHandleForAddressRange", SIM_ADDRESS(export_range), &own_export},
    {"cuGetProcAddress_v2", SIM_ADDRESS(find_function_v2), &own_find_v2},
    {"cuGetProcAddress", SIM_ADDRESS(find_function), &own_find},
};

SIM_UNSANITIZED const Replacement* replacement_of(const char* name) {
    if (name[0] != 'c' || name[1] != 'u') return nullptr;  // of every dlsym() in the process
    for (const Replacement& replacement : replacements)
        if (!strcmp(name, replacement.name)) return &replacement;
    return nullptr;
}

bool is_ours(const Replacement& replacement, void* found) {
    Dl_info library, preload;
    return found == replacement.ours ||
           (front && dladdr(found, &library) && dladdr(front, &preload) && library.dli_fbase == preload.dli_fbase);
}

void* replaced(const Replacement& replacement, void* found) {
    if (!found || is_ours(replacement, found)) return found;
    *replacement.own = found;
    return replacement.ours;
}

// A program that is linked with libcuda calls the preload library's function before anything was looked up.
template <typename Function>
Function* own(std::atomic<void*>& known, const char* name) {
    if (!known) {
        void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (driver) known = real::dlsym_function()(driver, name);
    }
    return reinterpret_cast<Function*>(known.load());
}

void replace_found(const char* name, int version, void** function) {
    const bool asks_for_v2 = !strcmp(name, "cuGetProcAddress") && version >= first_with_status;
    const Replacement* replacement = replacement_of(asks_for_v2 ? "cuGetProcAddress_v2" : name);
    if (replacement && function) *function = replaced(*replacement, *function);
}

}  // namespace

SIM_UNSANITIZED bool concerns(const char* name) { return replacement_of(name) != nullptr; }

void* look_up(void* handle, const char* name) {
    return replaced(*replacement_of(name), real::dlsym_function()(handle, name));
}

int host_register(void* address, size_t bytes, unsigned flags) {
    auto* call = own<int(void*, size_t, unsigned)>(own_register, "cuMemHostRegister_v2");
    if (!call) return not_initialized;
    const bool doorbells = (flags & io_memory) && is_doorbell_page(reinterpret_cast<uint64_t>(address), bytes);
    return call(address, bytes, doorbells ? flags & ~io_memory : flags);
}

int export_range(void* out, unsigned long long address, size_t bytes, int type, unsigned long long flags) {
    auto* call = own<int(void*, unsigned long long, size_t, int, unsigned long long)>(own_export,
                                                                                      "cuMemGetHandleForAddressRange");
    if (!call) return not_initialized;
    const int result = call(out, address, bytes, type, flags);
    if (result == success && type == dma_buf_descriptor) DmaBuf::remember(*static_cast<int*>(out), address, bytes);
    return result;
}

int find_function(const char* name, void** function, int version, uint64_t flags) {
    auto* call = own<int(const char*, void**, int, uint64_t)>(own_find, "cuGetProcAddress");
    if (!call) return not_initialized;
    const int result = call(name, function, version, flags);
    if (result == success) replace_found(name, version, function);
    return result;
}

int find_function_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
    auto* call = own<int(const char*, void**, int, uint64_t, int*)>(own_find_v2, "cuGetProcAddress_v2");
    if (!call) return not_initialized;
    const int result = call(name, function, version, flags, status);
    if (result == success) replace_found(name, version, function);
    return result;
}

}  // namespace sim::uverbs::cuda
