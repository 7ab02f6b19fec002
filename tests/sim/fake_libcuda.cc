// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for tests: "GPU memory" is a range that loads and stores cannot reach, only the copy functions can.
// Copies are asynchronous as on a GPU: they happen while their stream is queried. Built as a shared library with the
// soname libcuda.so.1 by tests/sim/test_engine.py; used by engine_gpu_test.cc.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

const size_t BYTES = 64 << 20;
const int NOT_READY = 600, INVALID_VALUE = 1;
uint8_t* closed;    // what programs see: no access
uint8_t* opened;    // the same pages, for the copy functions
int context_token;  // its address is the context
thread_local void* current = nullptr;
bool device_copies_stuck = false;
int counts[4];  // host to device, device to host, device to device, allocations of pinned memory

void make_memory() {
    if (closed) return;
    const int fd = memfd_create("gpu", 0);
    if (fd < 0 || ftruncate(fd, BYTES) != 0) abort();
    closed = static_cast<uint8_t*>(mmap(nullptr, BYTES, PROT_NONE, MAP_SHARED, fd, 0));
    opened = static_cast<uint8_t*>(mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
}
bool on_gpu(uint64_t p) {
    const uint64_t begin = reinterpret_cast<uint64_t>(closed);
    return closed && p >= begin && p < begin + BYTES;
}
uint8_t* view(uint64_t p) { return opened + (p - reinterpret_cast<uint64_t>(closed)); }

struct Work {
    uint8_t* to;
    const uint8_t* from;
    size_t bytes;
    bool within;
    int queries;
};
struct Stream {
    std::deque<Work> work;
};

int enqueue(void* stream, int kind, uint8_t* to, const uint8_t* from, size_t bytes) {
    if (!stream || current != &context_token)
        return INVALID_VALUE;  // the legacy stream and a wrong context are mistakes
    ++counts[kind];
    static_cast<Stream*>(stream)->work.push_back({to, from, bytes, kind == 2, 2});
    return 0;
}

}  // namespace

// For the test.
FAKE void* fake_context() { return &context_token; }
FAKE uint64_t fake_allocate(size_t offset) {
    make_memory();
    return reinterpret_cast<uint64_t>(closed) + offset;
}
FAKE uint8_t* fake_view(uint64_t p) { return view(p); }
FAKE void fake_stick(int on) { device_copies_stuck = on; }
FAKE int fake_count(int kind) { return counts[kind]; }

// The driver's functions that the engine looks up.
FAKE int cuPointerGetAttribute(void* out, int attribute, unsigned long long p) {
    if (!on_gpu(p)) return INVALID_VALUE;  // as the driver answers for memory it does not know
    if (attribute == 1) *static_cast<void**>(out) = &context_token;
    if (attribute == 2) *static_cast<unsigned*>(out) = 2;
    if (attribute == 8) *static_cast<unsigned*>(out) = 0;
    return 0;
}
FAKE int cuCtxGetCurrent(void** out) { return *out = current, 0; }
FAKE int cuCtxSetCurrent(void* context) { return current = context, 0; }
FAKE int cuStreamCreate(void** out, unsigned flags) {
    if (flags != 1) return INVALID_VALUE;  // it must be non-blocking
    *out = new Stream;
    return 0;
}
FAKE int cuMemHostAlloc(void** out, size_t bytes, unsigned) { return ++counts[3], *out = malloc(bytes), 0; }
FAKE int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
    if (!on_gpu(to) || on_gpu(reinterpret_cast<uint64_t>(from))) return INVALID_VALUE;
    return enqueue(stream, 0, view(to), static_cast<const uint8_t*>(from), bytes);
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
    if (!on_gpu(from) || on_gpu(reinterpret_cast<uint64_t>(to))) return INVALID_VALUE;
    return enqueue(stream, 1, static_cast<uint8_t*>(to), view(from), bytes);
}
FAKE int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
    if (!on_gpu(to) || !on_gpu(from)) return INVALID_VALUE;
    return enqueue(stream, 2, view(to), view(from), bytes);
}
FAKE int cuStreamQuery(void* stream) {
    std::deque<Work>& work = static_cast<Stream*>(stream)->work;
    if (work.empty()) return 0;
    Work& w = work.front();
    if ((w.within && device_copies_stuck) || --w.queries > 0) return NOT_READY;
    std::memcpy(w.to, w.from, w.bytes);
    work.pop_front();
    return work.empty() ? 0 : NOT_READY;
}
