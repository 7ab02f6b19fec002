// SPDX-License-Identifier: Apache-2.0
// See gpu.h: what is left to the GPU.

#include <sched.h>
#include <time.h>

#include <cstdio>

#include "sim/engine/gpu.h"
#include "sim/engine/gpu_context.h"
#include "sim/link/guard.h"

namespace sim::gpu {

namespace {

// Up to so many bytes the kernel's one block is quicker than a copy of the driver, which takes 10 us and 5 us of the
// CPU whatever its size.
const size_t ITEM_BYTES = 64 << 10;

// Not the NIC's clock, which may be virtual.
uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

State Copier::state_of(const Job& job) const {
    if (!job.context) return State::done;
    return job.bulk ? job.context->bulk->state_of(job.number) : job.context->ring->state_of(job.number);
}

const std::string& Copier::problem_of(const Job& job) const {
    return job.bulk ? job.context->bulk->problem() : job.context->ring->problem();
}

// Whether all of it is memory that CUDA knows. Asked once between two looks at the kernel: whoever frees memory while
// it is registered may still be too quick.
bool Copier::known(Context* context, uint64_t address, size_t bytes) {
    const uint64_t end = address + bytes;
    while (address < end) {
        uint64_t next = 0;
        for (const Context::Range& range : context->known) {
            if (address >= range.begin && address < range.end) next = range.end;
        }
        if (!next) {
            CUdeviceptr begin = 0;
            size_t size = 0;
            Current current(context->handle);
            if (driver().cuMemGetAddressRange_v2(&begin, &size, address) != CUDA_SUCCESS) return false;
            context->known.push_back({begin, begin + size});
            next = begin + size;
            if (next <= address) return false;
        }
        address = next;
    }
    return true;
}

namespace {

std::string not_known(uint64_t address, size_t bytes) {
    char words[160];
    std::snprintf(words, sizeof words,
                  "GPU copy: 0x%llx..+%zu is registered, but CUDA knows no memory there: it was freed before its key "
                  "was destroyed",
                  static_cast<unsigned long long>(address), bytes);
    return words;
}

}  // namespace

Copier::Later Copier::enqueue(Context* context, const Item& item, bool ordered, uint64_t* result, Job* job) {
    const uint64_t after = ordered && job->context ? job->number : 0;
    *job = {context, context->ring->append(item, after, now_ns(), result), false};
    return Later::yes;
}

Copier::Later Copier::copy_later(Context* to, uint64_t destination, Context* from, uint64_t source, size_t bytes,
                                 Order order, Job* job, std::string* problem) {
    const bool follows = !is_done(*job);
    const Later waited_for = follows ? Later::not_now : Later::cannot;
    if (!from && bytes > Ring::DATA_BYTES) return waited_for;
    if (staging_ || (from && from != to) || !to->ring || !to->bulk) return waited_for;
    const bool bulk = from && bytes > ITEM_BYTES;
    if (!(bulk ? to->bulk->usable() : to->ring->usable())) return waited_for;
    if (follows && (job->context != to || job->bulk != bulk)) return Later::not_now;
    if (!(bulk ? to->bulk->has_room() : to->ring->has_room())) return Later::not_now;
    if (bulk) {
        const uint64_t number = to->bulk->append(destination, source, bytes, now_ns(), problem);
        if (!number) return Later::no_destination;
        *job = {to, number, true};
        return Later::yes;
    }
    if (!known(to, destination, bytes)) {
        *problem = not_known(destination, bytes);
        return Later::no_destination;
    }
    if (from && !known(to, source, bytes)) {
        *problem = not_known(source, bytes);
        return Later::no_source;
    }
    Item item = {destination, source, static_cast<uint32_t>(bytes), DO_COPY, {}, 0};
    if (order == Order::behind_and_fresh) item.what |= ITEM_FRESH;
    const void* host = reinterpret_cast<const void*>(source);
    if (!from && (bytes == 4 || bytes == 8) && destination % bytes == 0) {
        item.what = DO_STORE;
        if (!guarded_copy(item.value, host, bytes)) return Later::no_source;
    } else if (!from) {
        uint8_t* data = to->ring->data();
        if (!guarded_copy(data, host, bytes)) return Later::no_source;
        item.from = reinterpret_cast<uint64_t>(data);
    }
    return enqueue(to, item, order != Order::beside, nullptr, job);
}

Copier::Later Copier::item_later(Context* context, const Item& item, uint64_t* result, Job* job, std::string* problem) {
    const bool follows = !is_done(*job);
    if (staging_ || !context->ring || !context->ring->usable()) return follows ? Later::not_now : Later::cannot;
    if (follows && (job->context != context || job->bulk)) return Later::not_now;
    if (!context->ring->has_room()) return Later::not_now;
    if (!known(context, item.to, item.bytes)) {
        *problem = not_known(item.to, item.bytes);
        return Later::no_destination;
    }
    return enqueue(context, item, true, result, job);
}

bool Copier::busy() const {
    for (const auto& context : contexts_) {
        if ((context->ring && context->ring->busy()) || (context->bulk && context->bulk->busy())) return true;
    }
    return false;
}

void Copier::flush() {
    for (const auto& context : contexts_) {
        context->known.clear();
        if (context->ring) context->ring->flush();
        if (context->bulk) context->bulk->flush();
    }
}

int Copier::poll(bool ask_at_once) {
    if (contexts_.empty()) return 0;
    int moved = 0;
    uint64_t now = 0;
    for (const auto& context : contexts_) {
        if (!context->ring || !context->bulk || (context->ring->idle() && context->bulk->idle())) continue;
        if (!now) now = now_ns();
        moved += context->ring->poll(now, ask_at_once);
        moved += context->bulk->poll(now, ask_at_once);
    }
    return moved;
}

Copier::Counts Copier::take_counts() {
    Counts now = {};
    for (const auto& context : contexts_) {
        if (!context->ring) continue;
        now.items += context->ring->begun();
        now.launches += context->ring->launches();
        now.copies += context->bulk->begun();
    }
    const Counts since = {now.items - told_.items, now.launches - told_.launches, now.copies - told_.copies};
    told_ = now;
    return since;
}

void Copier::settle() {
    while (busy()) {
        flush();  // also when the kernel has ended meanwhile
        poll(true);
        if (busy()) sched_yield();
    }
}

void Copier::set_staging(bool on) {
    settle();
    staging_ = on;
    if (!on) return;
    for (const auto& context : contexts_) {
        if (context->ring) context->ring->ask_to_end(now_ns());
    }
    settle();
    const uint64_t limit = now_ns() + COPY_LIMIT_NS;
    for (const auto& context : contexts_) {
        while (context->ring && !context->ring->has_ended() && now_ns() < limit) sched_yield();
    }
}

}  // namespace sim::gpu
