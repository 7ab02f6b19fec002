// SPDX-License-Identifier: Apache-2.0
// A CUDA driver made of host memory, for tests on machines without a GPU (test_host_driver.py builds it as
// libcuda.so.1). It runs no kernels. "GPU memory" has addresses that the CPU cannot touch, and registered host memory
// has another address for the GPU, so code that mixes them up crashes or fails here, as it would on some machines.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901
};

#define FAR 0x100000000000ull     // added to an allocation's address: nothing is mapped there
#define MAPPED 0x200000000000ull  // added to registered host memory's address
#define LIMIT 4096

static struct range {
    uint64_t start, bytes;
    int kind;
} ranges[LIMIT];  // kind: 1 device, 2 registered, 3 pinned
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread void* stack[16];
static __thread int depth;
static int the_context;
// A stream that is captured in global mode, and whether a call has spoiled that: one which the driver does not let
// happen meanwhile, by a thread that did not say that it is about something else.
static void* captured;
static int spoiled;
static __thread int mode;  // 0 global, 2 relaxed
static int spoils(void) { return captured && mode != 2 ? (spoiled = 1) : 0; }

static struct range* find(uint64_t at, uint64_t bytes, int kind) {
    for (int i = 0; i < LIMIT; i++)
        if (ranges[i].bytes && ranges[i].kind == kind && at >= ranges[i].start &&
            at + bytes <= ranges[i].start + ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

static CUresult add(uint64_t start, uint64_t bytes, int kind) {
    for (int i = 0; i < LIMIT; i++)
        if (!ranges[i].bytes) {
            ranges[i] = (struct range){start, bytes, kind};
            return OK;
        }
    return OUT_OF_MEMORY;
}

CUresult cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, OK; }
CUresult cuDeviceGetCount(int* count) { return *count = 1, OK; }
CUresult cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal ? 101 : OK; }
CUresult cuDeviceGetName(char* name, int bytes, int device) {
    snprintf(name, (size_t)bytes, "host memory");
    return device ? 101 : OK;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 118 ? 100 : attribute == 117 ? 1 : 0;
    return device ? 101 : OK;
}
CUresult cuGetErrorName(CUresult code, const char** name) {
    *name = code == INVALID_VALUE        ? "CUDA_ERROR_INVALID_VALUE"
            : code == OUT_OF_MEMORY      ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == ALREADY_REGISTERED ? "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
            : code == NOT_SUPPORTED      ? "CUDA_ERROR_NOT_SUPPORTED"
                                         : "CUDA_ERROR_UNKNOWN";
    return OK;
}
CUresult cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = &the_context;
    return device ? 101 : OK;
}
CUresult cuDevicePrimaryCtxRelease_v2(int device) { return device ? 101 : OK; }
CUresult cuCtxPushCurrent_v2(void* context) {
    if (depth == 16) abort();
    stack[depth++] = context;
    return OK;
}
CUresult cuCtxPopCurrent_v2(void** context) {
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return OK;
}
CUresult cuCtxGetCurrent(void** context) { return *context = depth ? stack[depth - 1] : NULL, OK; }
CUresult cuCtxSetCurrent(void* context) {
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return OK;
}

static int current(void) { return depth && stack[depth - 1] == &the_context; }

CUresult cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    if (!current()) return INVALID_CONTEXT;
    if (flags & 4) return INVALID_VALUE;  // this is RAM, not a device's page
    pthread_mutex_lock(&lock);
    CUresult result = find((uint64_t)host, 1, 2) ? ALREADY_REGISTERED : add((uint64_t)host, bytes, 2);
    pthread_mutex_unlock(&lock);
    return result;
}
CUresult cuMemHostUnregister(void* host) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    if (!current()) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    struct range* range = find((uint64_t)host, 1, 2);
    CUresult result = range && range->start == (uint64_t)host ? OK : NOT_REGISTERED;
    if (result == OK) range->bytes = 0;
    pthread_mutex_unlock(&lock);
    return result;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* host, unsigned flags) {
    *pointer = (uint64_t)host + MAPPED;
    return !flags && (find((uint64_t)host, 1, 2) || find((uint64_t)host, 1, 3)) ? OK : INVALID_VALUE;
}
CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned flags) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    (void)flags;
    if (!current()) return INVALID_CONTEXT;
    *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *host == MAP_FAILED ? OUT_OF_MEMORY : add((uint64_t)*host, bytes, 3);
}
CUresult cuMemFreeHost(void* host) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    struct range* range = find((uint64_t)host, 1, 3);
    if (!range) return INVALID_VALUE;
    munmap(host, range->bytes);
    range->bytes = 0;
    return OK;
}
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    if (!current()) return INVALID_CONTEXT;
    if (bytes > 1ull << 34) return OUT_OF_MEMORY;
    void* real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (real == MAP_FAILED) return OUT_OF_MEMORY;
    memset(real, 0xA5, bytes);  // old contents
    *pointer = (uint64_t)real - FAR;
    return add(*pointer, bytes, 1);
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    struct range* range = find(pointer, 1, 1);
    if (!range || range->start != pointer) return INVALID_VALUE;
    munmap((void*)(pointer + FAR), range->bytes);
    range->bytes = 0;
    return OK;
}

static void* real(CUdeviceptr at, size_t bytes) { return find(at, bytes, 1) ? (void*)(at + FAR) : NULL; }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* stream) {
    if (!stream || !current() || !real(to, bytes)) return INVALID_VALUE;
    memcpy(real(to, bytes), from, bytes);
    return OK;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
    if (!stream || !current() || !real(from, bytes)) return INVALID_VALUE;
    memcpy(to, real(from, bytes), bytes);
    return OK;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
    if (!stream || !current() || !real(from, bytes) || !real(to, bytes)) return INVALID_VALUE;
    memmove(real(to, bytes), real(from, bytes), bytes);
    return OK;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, void* stream) {
    if (!stream || !current() || !real(to, bytes)) return INVALID_VALUE;
    memset(real(to, bytes), value, bytes);
    return OK;
}
CUresult cuStreamCreate(void** stream, unsigned flags) {
    if (spoils()) return CAPTURE_UNSUPPORTED;
    if (flags != 1 || !current()) return INVALID_VALUE;  // the legacy stream's friends are not welcome
    *stream = malloc(1);
    return OK;
}
CUresult cuStreamSynchronize(void* stream) {
    return spoils() || stream == captured ? CAPTURE_UNSUPPORTED : stream ? OK : INVALID_VALUE;
}
CUresult cuStreamQuery(void* stream) {
    return spoils() || stream == captured ? CAPTURE_UNSUPPORTED : stream ? OK : INVALID_VALUE;
}
CUresult cuStreamDestroy_v2(void* stream) { return free(stream), OK; }
CUresult cuStreamBeginCapture_v2(void* stream, int how) {
    if (how != 0 || captured) return INVALID_VALUE;
    return captured = stream, spoiled = 0, OK;
}
CUresult cuStreamEndCapture(void* stream, void** graph) {
    if (stream != captured) return INVALID_VALUE;
    captured = NULL;
    *graph = spoiled ? NULL : &the_context;
    return spoiled ? CAPTURE_INVALIDATED : OK;
}
CUresult cuGraphDestroy(void* graph) { return graph ? OK : INVALID_VALUE; }
CUresult cuThreadExchangeStreamCaptureMode(int* wanted) {
    const int before = mode;
    mode = *wanted, *wanted = before;
    return OK;
}

CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr at) {
    int device = find(at, 1, 1) != NULL;
    if (!device && !find(at, 1, 2) && !find(at, 1, 3)) return INVALID_VALUE;
    if (attribute == 1)
        *(void**)data = &the_context;
    else
        *(int*)data = attribute == 2 ? (device ? 2 : 1) : 0;
    return OK;
}
CUresult cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr at) {
    return attribute == 6 && *(const unsigned*)value == 1 && find(at, 1, 1) ? OK : INVALID_VALUE;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr at) {
    struct range* range = find(at, 1, 1);
    if (!range) return INVALID_VALUE;
    *base = range->start;
    *bytes = range->bytes;
    return OK;
}
CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
    return target == 0 && (scope == 100 || scope == 200) && current() ? OK : INVALID_VALUE;
}
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr at, size_t bytes, int type, unsigned long long flags) {
    (void)flags;
    if (type != 1 || !real(at, bytes)) return INVALID_VALUE;
    *(int*)handle = memfd_create("dma-buf", 0);
    return OK;
}

// How programs find all the rest: a name without the suffix means the newest form. Three of these have a suffix there.
static CUresult found(const char* name, void** function, int version, const char* self) {
    char newest[64];
    if (!strcmp(name, "cuGetProcAddress")) name = version >= 12000 ? "cuGetProcAddress_v2" : self;
    snprintf(newest, sizeof newest, "%s_v2", name);
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *function = library ? dlsym(library, newest) : NULL;
    if (library && !*function) *function = dlsym(library, name);
    return *function ? OK : 500;
}
CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
    return flags ? INVALID_VALUE : found(name, function, version, "cuGetProcAddress");
}
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
    if (status) *status = 0;
    return flags ? INVALID_VALUE : found(name, function, version, "cuGetProcAddress");
}
