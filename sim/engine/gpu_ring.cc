// SPDX-License-Identifier: Apache-2.0
// See gpu_ring.h.

#include "sim/engine/gpu_ring.h"

#include <cstddef>
#include <cstring>

#include "sim/clock.h"
#include "sim/engine/copy_kernel_ptx.h"

namespace sim::gpu {

namespace {

// How long the kernel waits for more. Longer than a program takes between two puts, and short for one that synchronizes
// the device.
const uint64_t LINGER_NS = microseconds(100);
const uint64_t ASK_AFTER_NS = microseconds(200);
const uint64_t LIMIT_NS = seconds(2);

template <typename T>
T* pinned(size_t count) {
    void* memory = nullptr;
    if (driver().cuMemHostAlloc(&memory, count * sizeof(T), CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return nullptr;
    std::memset(memory, 0, count * sizeof(T));
    return static_cast<T*>(memory);
}

// Pinned memory has the same address on the GPU: unified addressing.
uint64_t on_gpu(const void* pinned_memory) { return reinterpret_cast<uint64_t>(pinned_memory); }

}  // namespace

uint64_t Line::begin(uint64_t now_ns) {
    if (begun_ == done_) moved_ns_ = asked_ns_ = now_ns;
    return ++begun_;
}

bool Line::ended(uint64_t number, uint64_t now_ns) {
    if (number == done_) return false;
    done_ = number;
    moved_ns_ = asked_ns_ = now_ns;
    if (failed_ && done_ >= failed_to_) failed_ = false;
    return true;
}

void Line::watch(uint64_t now_ns, bool at_once) {
    if (!busy() || (!at_once && now_ns - asked_ns_ < ASK_AFTER_NS)) return;
    asked_ns_ = now_ns;
    Current current(context_);
    const CUresult result = driver().cuStreamQuery(stream_);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        std::string problem;
        refused(what_, result, &problem);
        return fail(problem);
    }
    if (now_ns - moved_ns_ < LIMIT_NS) return;
    fail(std::string("GPU copy: ") + what_ +
         " did not finish within 2 s: do waiting kernels fill the GPU? Switch GPU staging on, or launch fewer blocks");
}

void Line::fail(const std::string& problem) {
    failed_ = true;
    failed_to_ = begun_;
    problem_ = problem;
}

namespace {

void replace_all(std::string* text, const std::string& what, const std::string& with) {
    for (size_t at = 0; (at = text->find(what, at)) != std::string::npos; at += with.size())
        text->replace(at, what.size(), with);
}

// The kernel for the newer GPUs, where driver and GPU know those instructions.
CUresult load_kernel(CUmodule* module) {
    std::string newer = COPY_KERNEL;
    replace_all(&newer, ".version 6.0", ".version 8.6");
    replace_all(&newer, ".target sm_70", ".target sm_90");
    replace_all(&newer, "fence.acq_rel", "fence.release");
    if (driver().cuModuleLoadData(module, newer.c_str()) == CUDA_SUCCESS) return CUDA_SUCCESS;
    return driver().cuModuleLoadData(module, COPY_KERNEL);
}

}  // namespace

std::unique_ptr<Ring> Ring::make(CUcontext context) {
    Driver& d = driver();
    if (!d.background) return nullptr;
    std::unique_ptr<Ring> ring(new Ring(context));
    CUmodule module = nullptr;
    if (load_kernel(&module) != CUDA_SUCCESS ||
        d.cuModuleGetFunction(&ring->function_, module, COPY_KERNEL_NAME) != CUDA_SUCCESS ||
        d.cuStreamCreate(&ring->stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return nullptr;
    }
    if (d.cuFuncLoad) d.cuFuncLoad(ring->function_);  // by default code is loaded at the first launch
    ring->control_ = pinned<Control>(1);
    ring->items_ = pinned<Item>(ITEMS);
    ring->results_ = pinned<uint64_t>(ITEMS);
    ring->data_ = pinned<uint8_t>(size_t{ITEMS} * DATA_BYTES);
    if (!ring->control_ || !ring->items_ || !ring->results_ || !ring->data_) return nullptr;
    ring->launch();  // finds nothing to do and ends: whatever a first launch costs is paid
    return ring->usable() ? std::move(ring) : nullptr;
}

namespace {

const uint32_t SECTOR_BYTES = 32;

// Which bytes of a sector a store writes, or a copy that the kernel makes as one; 0: it is none.
uint32_t bytes_of_sector(const Item& item) {
    const uint32_t kind = item.what & 0xff;
    const bool small = item.bytes == 4 || item.bytes == 8;
    if (!small || (item.what & ITEM_FRESH) || item.to % item.bytes) return 0;
    if (kind != DO_STORE && !(kind == DO_COPY && item.from % item.bytes == 0)) return 0;
    return (item.bytes == 8 ? 0xffu : 0xfu) << item.to % SECTOR_BYTES;
}

}  // namespace

// What one instruction stores to different bytes of one sector of memory is there at once (practice, not PTX's
// promise): there is nothing to order. So do puts of neighbouring threads arrive.
bool Ring::joins(const Item& item) const {
    const uint32_t stored = bytes_of_sector(item);
    return phase_bytes_ && stored && !(stored & phase_bytes_) && item.bytes == phase_item_.bytes &&
           (item.what & 0xff) == (phase_item_.what & 0xff) && item.to / SECTOR_BYTES == phase_item_.to / SECTOR_BYTES;
}

uint64_t Ring::append(Item item, uint64_t after, uint64_t now_ns, uint64_t* sink) {
    const uint64_t number = begin(now_ns);
    const uint32_t stored = bytes_of_sector(item);
    const bool begins = after > done_ && after >= phase_ && !joins(item);
    if (begins) item.what |= ITEM_ORDERED;
    if (begins || phase_ <= done_) {
        phase_ = number;
        phase_item_ = item;
        phase_bytes_ = stored;
    } else {
        phase_bytes_ = phase_bytes_ && joins(item) ? phase_bytes_ | stored : 0;
    }
    // The kernel may be looking: an item counts when its sum is right.
    Item& place = items_[(number - 1) % ITEMS];
    const uint64_t sum = sum_of(item, number - 1);
    std::memcpy(&place, &item, offsetof(Item, sum));
    __atomic_store_n(&place.sum, sum, __ATOMIC_RELEASE);
    if (sink) sinks_.push_back({number, sink});
    return number;
}

bool Ring::running() const { return __atomic_load_n(&control_->ended, __ATOMIC_ACQUIRE) != launch_; }

void Ring::launch() {
    ++launch_;
    uint64_t control = on_gpu(control_), items = on_gpu(items_), results = on_gpu(results_);
    // As the last one left it, which is more than what was seen of it.
    uint64_t first = __atomic_load_n(&control_->done, __ATOMIC_ACQUIRE), launch = launch_, linger = LINGER_NS;
    void* parameters[] = {&control, &items, &results, &first, &launch, &linger};
    Current current(context_);
    const CUresult result =
        driver().cuLaunchKernel(function_, 1, 1, 1, COPY_KERNEL_THREADS, 1, 1, 0, stream_, parameters, nullptr);
    if (result == CUDA_SUCCESS) return;
    --launch_;
    std::string problem;
    refused("cuLaunchKernel", result, &problem);
    fail(problem);
    sinks_.clear();
}

void Ring::flush() {
    if (begun_ == done_ || running()) return;
    // It may have ended with everything done, just now.
    if (__atomic_load_n(&control_->done, __ATOMIC_ACQUIRE) != begun_ && !failed_) launch();
}

bool Ring::poll(uint64_t now_ns, bool ask_at_once) {
    if (begun_ == done_) return false;
    const bool moved = ended(__atomic_load_n(&control_->done, __ATOMIC_ACQUIRE), now_ns);
    while (!sinks_.empty() && sinks_.front().number <= done_) {
        *sinks_.front().word = results_[(sinks_.front().number - 1) % ITEMS];
        sinks_.pop_front();
    }
    watch(now_ns, ask_at_once);
    if (failed_) sinks_.clear();
    return moved;
}

void Ring::ask_to_end(uint64_t now_ns) {
    if (running() && usable() && has_room()) append({0, 0, 0, DO_END, {}, 0}, 0, now_ns);
}

bool Ring::has_ended() {
    Current current(context_);
    return !running() || driver().cuStreamQuery(stream_) != CUDA_ERROR_NOT_READY;
}

std::unique_ptr<Bulk> Bulk::make(CUcontext context) {
    if (!driver().background) return nullptr;
    std::unique_ptr<Bulk> bulk(new Bulk(context));
    if (driver().cuStreamCreate(&bulk->stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
    bulk->flag_ = pinned<uint64_t>(1);
    return bulk->flag_ ? std::move(bulk) : nullptr;
}

uint64_t Bulk::append(uint64_t to, uint64_t from, size_t bytes, uint64_t now_ns, std::string* problem) {
    Current current(context_);
    const CUresult result = driver().cuMemcpyDtoDAsync_v2(to, from, bytes, stream_);
    if (result == CUDA_SUCCESS) return begin(now_ns);
    refused("cuMemcpyDtoDAsync", result, problem);
    return 0;
}

void Bulk::flush() {
    if (flagged_ == begun_) return;
    Current current(context_);
    const CUresult result = driver().cuStreamWriteValue64_v2(stream_, on_gpu(flag_), begun_, 0);
    if (result == CUDA_SUCCESS) {
        flagged_ = begun_;
        return;
    }
    std::string problem;
    refused("cuStreamWriteValue64", result, &problem);
    fail(problem);
    flagged_ = begun_;
}

bool Bulk::poll(uint64_t now_ns, bool ask_at_once) {
    if (begun_ == done_) return false;
    const bool moved = ended(__atomic_load_n(flag_, __ATOMIC_ACQUIRE), now_ns);
    watch(now_ns, ask_at_once);
    return moved;
}

}  // namespace sim::gpu
