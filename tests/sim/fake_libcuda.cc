// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for tests: "GPU memory" is a range that loads and stores cannot reach, only the copy functions and the
// copy kernel can. Everything is asynchronous, in order within a stream, and happens step by step: while its stream is
// queried, or when the test lets the GPU run. A kernel launch is played here, item by item, in an order that the engine
// may not count on (sim/engine/copy_kernel.h says what it may). Built as a shared library with the soname libcuda.so.1
// by tests/sim/test_engine.py; used by engine_gpu_test.cc and engine_gpu_later_test.cc through tests/sim/fake_gpu.h.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "sim/engine/copy_kernel.h"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

using namespace sim::gpu;

const size_t BYTES = 64 << 20;
const int NOT_READY = 600, INVALID_VALUE = 1, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900;
const int RELAXED = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
const int LINGER_STEPS = 12;
uint8_t* closed;                    // what programs see: no access
uint8_t* opened;                    // the same pages, for the copy functions
uint64_t freed_begin, freed_end;    // memory that was freed
int context_token, function_token;  // their addresses are the context and the kernel
thread_local void* current = nullptr;
bool held = false;                  // only the test moves something
bool full = false;                  // kernels fill the GPU: device-to-device copies and new kernels do not begin
thread_local int capture_mode = 0;  // global, as a thread begins
int broken = 0;                     // an error that the context has for good
int refuse_launches = 0, refuse_copies = 0;
int counts[7];  // host to device, device to host, device to device, pinned allocations, launches, items, bad accesses
uint64_t random_state = 1;

uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return static_cast<uint32_t>(random_state >> 33) % below;
}

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

// As a kernel reaches it: GPU memory, or pinned memory at its own address.
uint8_t* reach(uint64_t p, size_t bytes) {
    if (p < freed_end && p + bytes > freed_begin) ++counts[6];
    return on_gpu(p) ? view(p) : reinterpret_cast<uint8_t*>(p);
}

// The copy kernel, as copy_kernel.h describes it.
struct Kernel {
    Control* control;
    Item* ring;
    uint64_t* results;
    uint64_t next, launch;
    std::vector<Item> batch;
    std::vector<std::vector<uint8_t>> prepared;  // sources that were read before their phase
    std::vector<size_t> phase;                   // items of it that are still to be done
    size_t phase_end = 0;
    int idle = 0;
    bool asked = false, ended = false;

    void prepare(const Item& item) {
        std::vector<uint8_t> bytes;
        const bool small = item.bytes == 4 || item.bytes == 8;
        if (item.what == DO_COPY && small && ((item.to | item.from) % item.bytes == 0)) {
            const uint8_t* from = reach(item.from, item.bytes);
            bytes.assign(from, from + item.bytes);
        }
        prepared.push_back(bytes);
    }
    void begin_phase() {
        const size_t first = phase_end++;
        while (phase_end < batch.size() && !(batch[phase_end].what & ITEM_ORDERED)) ++phase_end;
        for (size_t i = first; i < phase_end; ++i) phase.push_back(i);
    }
    void perform(size_t i) {
        const Item& item = batch[i];
        if (item.what == DO_END) return;
        ++counts[5];
        uint8_t* to = reach(item.to, item.bytes);
        const uint32_t what = item.what & 0xff;
        if (what == DO_COPY) {
            std::memmove(to, prepared[i].empty() ? reach(item.from, item.bytes) : prepared[i].data(), item.bytes);
        } else if (what == DO_STORE) {
            std::memcpy(to, item.value, item.bytes);
        } else {
            uint64_t was = 0;
            std::memcpy(&was, to, item.bytes);
            const uint64_t *v = item.value, mask = v[2];
            uint64_t value = (was & ~mask) | (v[0] & mask);
            if (what == DO_ADD) value = ((was & ~mask) + (v[0] & ~mask)) ^ ((was ^ v[0]) & mask);
            if (what == DO_ADD || !((was ^ v[1]) & v[3])) std::memcpy(to, &value, item.bytes);
            results[(next + i) & ((1u << COPY_KERNEL_LOG_RING) - 1)] = was;
        }
    }
    void step() {
        // What one instruction stores to one sector is there at once.
        const auto one_store = [this](size_t i) {
            const Item& a = batch[phase[0]];
            const Item& b = batch[i];
            return (b.what & 0xff) < DO_ADD && a.to / 32 == b.to / 32 && a.bytes == b.bytes && a.bytes <= 8 &&
                   (a.what & 0xff) == (b.what & 0xff) && (b.what == (b.what & 0x1ff)) &&
                   ((b.what & 0xff) == DO_STORE || !prepared[i].empty());
        };
        if (phase.size() > 1 && std::all_of(phase.begin(), phase.end(), one_store)) {
            for (; !phase.empty(); phase.pop_back()) perform(phase.back());
        } else if (!phase.empty()) {
            const size_t at = draw(static_cast<uint32_t>(phase.size()));
            perform(phase[at]);
            phase.erase(phase.begin() + static_cast<std::ptrdiff_t>(at));
        }
        if (!phase.empty()) return;
        if (phase_end < batch.size()) return begin_phase();
        if (!batch.empty()) {
            next += batch.size();
            batch.clear(), prepared.clear(), phase_end = 0;
            __atomic_store_n(&control->done, next, __ATOMIC_RELEASE);
            return;
        }
        for (uint64_t i = next; !asked && i < next + COPY_KERNEL_BATCH; ++i) {
            const Item item = ring[i & ((1u << COPY_KERNEL_LOG_RING) - 1)];
            if (item.sum != sum_of(item, i)) break;
            batch.push_back(item);
            asked = item.what == DO_END;
            prepare(batch.back());
            if (item.what & ITEM_FRESH) prepared.back().clear();
        }
        if (!batch.empty()) return idle = 0, begin_phase();
        if (!asked && ++idle < LINGER_STEPS) return;
        __atomic_store_n(&control->ended, launch, __ATOMIC_RELEASE);
        ended = true;
    }
};

struct Work {
    uint8_t* to = nullptr;
    const uint8_t* from = nullptr;
    size_t bytes = 0;
    bool needs_room = false;  // on multiprocessors
    int steps = 2;
    uint64_t value = 0;  // written when `to` is and `from` is not
    Kernel* kernel = nullptr;
};
struct Stream {
    std::deque<Work> work;
};
std::vector<Stream*> busy;  // those with work

// One step of what is first in the stream. True: something happened, or may later.
bool advance(Stream* stream) {
    if (broken || stream->work.empty()) return false;
    Work& w = stream->work.front();
    if (w.needs_room && full && w.steps > 0) return false;  // what has begun goes on
    if (w.steps > 0 && --w.steps > 0) return true;
    if (w.kernel) {
        w.kernel->step();
        if (!w.kernel->ended) return true;
        delete w.kernel;
    } else if (w.from) {
        std::memcpy(w.to, w.from, w.bytes);
    } else {
        __atomic_store_n(reinterpret_cast<uint64_t*>(w.to), w.value, __ATOMIC_RELEASE);
    }
    stream->work.pop_front();
    if (stream->work.empty()) busy.erase(std::find(busy.begin(), busy.end(), stream));
    return true;
}

// The legacy stream and a wrong context are mistakes.
int enqueue(void* stream, const Work& work) {
    if (!stream || current != &context_token) return INVALID_VALUE;
    if (broken) return broken;
    Stream* to = static_cast<Stream*>(stream);
    if (to->work.empty()) busy.push_back(to);
    to->work.push_back(work);
    return 0;
}
int enqueue_copy(void* stream, int kind, uint8_t* to, const uint8_t* from, size_t bytes) {
    if (kind == 2 && refuse_copies > 0) return --refuse_copies, INVALID_VALUE;
    Work work;
    work.to = to, work.from = from, work.bytes = bytes, work.needs_room = kind == 2;
    const int result = enqueue(stream, work);
    if (result == 0) ++counts[kind];
    return result;
}

}  // namespace

// For the test.
FAKE void* fake_context() { return &context_token; }
FAKE uint64_t fake_allocate(size_t offset) {
    make_memory();
    return reinterpret_cast<uint64_t>(closed) + offset;
}
FAKE uint8_t* fake_view(uint64_t p) { return view(p); }
FAKE int fake_count(int kind) { return counts[kind]; }
// What is done to the GPU: see fake_gpu.h.
FAKE void fake_fill(int on) { full = on; }
FAKE void fake_free(uint64_t p, size_t bytes) { freed_begin = p, freed_end = p + bytes; }
FAKE void fake_break(int error) { broken = error; }
FAKE void fake_refuse(int launches, int copies) { refuse_launches = launches, refuse_copies = copies; }
FAKE void fake_seed(uint64_t seed) { random_state = seed * 0x9e3779b97f4a7c15u | 1; }
FAKE void fake_hold(int on) { held = on; }
FAKE int fake_run(int steps) {
    int moved = 0;
    while (steps-- > 0 && !busy.empty()) moved += advance(busy[draw(static_cast<uint32_t>(busy.size()))]);
    return moved;
}

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
    return *out = new Stream, 0;
}
FAKE int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
    return ++counts[3], *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), 0;
}
FAKE int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
    if (!on_gpu(to) || on_gpu(reinterpret_cast<uint64_t>(from))) return INVALID_VALUE;
    return enqueue_copy(stream, 0, view(to), static_cast<const uint8_t*>(from), bytes);
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
    if (!on_gpu(from) || on_gpu(reinterpret_cast<uint64_t>(to))) return INVALID_VALUE;
    return enqueue_copy(stream, 1, static_cast<uint8_t*>(to), view(from), bytes);
}
FAKE int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
    if (!on_gpu(to) || !on_gpu(from)) return INVALID_VALUE;
    return enqueue_copy(stream, 2, view(to), view(from), bytes);
}
FAKE int cuMemGetAddressRange_v2(unsigned long long* base, size_t* bytes, unsigned long long p) {
    if (!on_gpu(p) || (p >= freed_begin && p < freed_end)) return INVALID_VALUE;
    const uint64_t begin = reinterpret_cast<uint64_t>(closed), end = begin + BYTES;
    *base = freed_end > begin && p >= freed_end ? freed_end : begin;
    *bytes = (freed_begin > p ? freed_begin : end) - *base;
    return 0;
}
FAKE int cuStreamWriteValue64_v2(void* stream, unsigned long long p, uint64_t value, unsigned) {
    if (on_gpu(p)) return INVALID_VALUE;
    Work work;
    work.to = reinterpret_cast<uint8_t*>(p), work.value = value;
    return enqueue(stream, work);
}
FAKE int cuModuleLoadData(void** out, const void* image) {
    return *out = std::strstr(static_cast<const char*>(image), COPY_KERNEL_NAME) ? &function_token : nullptr, 0;
}
FAKE int cuModuleGetFunction(void** out, void* module, const char* name) {
    *out = module;
    return module && std::strcmp(name, COPY_KERNEL_NAME) == 0 ? 0 : INVALID_VALUE;
}
FAKE int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned, void* stream, void** parameters, void**) {
    if (function != &function_token || gx * gy * gz != 1 || bx * by * bz != COPY_KERNEL_THREADS) return INVALID_VALUE;
    if (refuse_launches > 0) return --refuse_launches, INVALID_VALUE;
    const auto word = [&](int i) { return *static_cast<uint64_t*>(parameters[i]); };
    Work work;
    work.needs_room = true;
    work.kernel = new Kernel{reinterpret_cast<Control*>(word(0)),
                             reinterpret_cast<Item*>(word(1)),
                             reinterpret_cast<uint64_t*>(word(2)),
                             word(3),
                             word(4),
                             {},
                             {},
                             {}};
    const int result = enqueue(stream, work);
    if (result == 0) ++counts[4];
    return result;
}
FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
    std::swap(*mode, capture_mode);
    return 0;
}
FAKE int cuStreamQuery(void* p) {
    Stream* stream = static_cast<Stream*>(p);
    if (broken) return broken == 1 ? ILLEGAL_ADDRESS : broken;
    // As if the program captured a stream at this moment, for all threads: the real driver then spoils its graph.
    if (capture_mode != RELAXED) return CAPTURE_UNSUPPORTED;
    if (!held) advance(stream);
    return stream->work.empty() ? 0 : NOT_READY;
}
