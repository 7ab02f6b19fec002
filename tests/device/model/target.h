// SPDX-License-Identifier: Apache-2.0
// The device library's third target: threads of a model of memory (machine.h) that is as weak as gda/target.h allows.
// Chosen by GDA_TARGET_HEADER; used by explore.cc only. Each barrier does what target.h says of it and nothing else, so
// one that is stronger on every processor we know does not hide that another is missing.
#pragma once

#include <stdio.h>

#include "machine.h"

#define GDA_DEVICE static inline __attribute__((unused))
#define GDA_MEMBER inline
#define GDA_API static inline __attribute__((unused))
#define GDA_COLD static inline __attribute__((unused))
#define GDA_KERNEL(name) static __attribute__((unused)) void name
#include <gda/target/meter.h>

#define MODEL_SITE const char* function = __builtin_FUNCTION()

namespace gda {
namespace target {

using model::here;

GDA_DEVICE uint64_t load_shared(const uint64_t* p) { return here.load(p, false); }
GDA_DEVICE uint64_t load_shared_acquire(const uint64_t* p, MODEL_SITE) {
    if (here.habits[here.find(p)] == model::constant) return here.load(p, false);
    return here.load(p, !here.weakened("load_shared_acquire", function));
}
// At gpu scope it acquires nothing: that stores wait for the load which decides about them is practice.
GDA_DEVICE uint64_t load_done(const uint64_t* p, scope s, MODEL_SITE) {
    if (s == scope_gpu) return here.load(p, false);
    return here.load(p, !here.weakened("load_done", function));
}
GDA_DEVICE void store_shared(uint64_t* p, uint64_t v) { here.store(p, v, false); }
GDA_DEVICE void store_shared_release(uint64_t* p, uint64_t v, MODEL_SITE) {
    here.store(p, v, !here.weakened("store_shared_release", function));
}
GDA_DEVICE uint64_t swap_if(uint64_t* p, uint64_t expected, uint64_t v, bool orders) {
    auto change = [=](uint64_t* at) {
        bool same = *at == expected;
        if (same) *at = v;
        return same;
    };
    return here.modify(p, change, orders, orders, true, "compares and swaps");
}
GDA_DEVICE bool compare_swap(uint64_t* p, uint64_t expected, uint64_t v, MODEL_SITE) {
    if (here.habits[here.find(p)] == model::constant) return swap_if(p, expected, v, true) == expected;
    return swap_if(p, expected, v, !here.weakened("compare_swap", function)) == expected;
}
GDA_DEVICE bool compare_swap_relaxed(uint64_t* p, uint64_t expected, uint64_t v) {
    return swap_if(p, expected, v, false) == expected;
}
GDA_DEVICE uint64_t exchange_if(uint64_t* p, uint64_t expected, uint64_t v) { return swap_if(p, expected, v, false); }
GDA_DEVICE uint64_t add(uint64_t* p, uint64_t n) {
    return here.modify(p, [=](uint64_t* at) { return *at += n, true; }, false, false, true, "adds to");
}
GDA_DEVICE uint64_t set_bits(uint64_t* p, uint64_t v) {
    return here.modify(p, [=](uint64_t* at) { return *at |= v, true; }, false, false, true, "sets bits of");
}
GDA_DEVICE void raise_to(uint64_t* p, uint64_t v, bool release) {
    here.modify(p, [=](uint64_t* at) { return *at = *at < v ? v : *at, true; }, false, release, false, "raises");
}
GDA_DEVICE void raise(uint64_t* p, uint64_t v) { raise_to(p, v, false); }
GDA_DEVICE void raise_release(uint64_t* p, uint64_t v, MODEL_SITE) {
    raise_to(p, v, !here.weakened("raise_release", function));
}
GDA_DEVICE uint64_t not_before(uint64_t v) { return v; }
GDA_DEVICE uint32_t count_ones(uint32_t v) { return v == ~0u ? 32 : static_cast<uint32_t>(__builtin_ctz(~v)); }

GDA_DEVICE uint64_t load_owned(const uint64_t* p) { return *p; }
GDA_DEVICE void store_owned(uint64_t* p, uint64_t v) {
    *p = v;
    here.moved[here.all->self()] = true;
}

GDA_DEVICE void store_segment(void* p, uint64_t low, uint64_t high) { here.store_segment(p, low, high); }
GDA_DEVICE void store_record(void* p, uint32_t v) { here.store_record(p, v); }
GDA_DEVICE void store_doorbell(void* p, uint64_t v) { here.store_doorbell(p, v); }
GDA_DEVICE void store_request_to_ring(void* p, uint64_t v) { here.store_doorbell(p, v); }
GDA_DEVICE void store_blueflame(void* p, const void* slot) { here.store_blueflame(p, slot); }
GDA_DEVICE uint32_t load_completion(const void* p, scope, MODEL_SITE) {
    return static_cast<uint32_t>(here.load(p, !here.weakened("cqe_read", function)));
}
GDA_DEVICE uint64_t load_signal(const uint64_t* p) { return here.load(p, true); }  // of a peer: no program has one

// Own memory before memory: nobody else's is told of.
GDA_DEVICE void own_wqe_before_doorbell_record(scope, MODEL_SITE) {
    if (here.weakened("own_wqe_before_doorbell_record", function)) return;
    here.release();
}
// Memory before memory, and what was read before both.
GDA_DEVICE void wqe_before_doorbell_record(scope s, MODEL_SITE) {
    if (here.weakened("wqe_before_doorbell_record", function)) return;
    if (s == scope_system) here.me().acquire();
    here.release();
}
GDA_DEVICE void earlier_slots_before_mine(scope, MODEL_SITE) {
    if (here.weakened("earlier_slots_before_mine", function)) return;
    here.me().acquire();
    here.release();
}
// Memory before the register, and (the next holder's record comes after this one) before memory.
GDA_DEVICE void doorbell_record_before_doorbell(scope, MODEL_SITE) {
    if (here.weakened("doorbell_record_before_doorbell", function)) return;
    here.release();
    here.release_mmio();
}
// Memory before the register.
GDA_DEVICE void wqe_before_doorbell(scope, MODEL_SITE) {
    if (here.weakened("wqe_before_doorbell", function)) return;
    here.release_mmio();
}
// The register before memory.
GDA_DEVICE void doorbell_before_ready(scope, MODEL_SITE) {
    if (here.weakened("doorbell_before_ready", function)) return;
    here.release();
}

GDA_DEVICE group converged_group(const void*) { return group{1, 0, 0, 1}; }
GDA_DEVICE uint64_t broadcast(const group&, uint64_t v) { return v; }
GDA_DEVICE void sync(const group&) {}
// Each thread of the model is a block of its own.
GDA_DEVICE uint32_t thread_of_block() { return 0; }
GDA_DEVICE bool in_first_warp() { return true; }
GDA_DEVICE group warp() { return group{1, 0, 0, 1}; }
GDA_DEVICE group subset(const group&, bool mine) { return group{1, 0, 0, mine ? 1u : 0u}; }
GDA_DEVICE void sync_block() {}
GDA_DEVICE uint64_t broadcast_block(uint64_t v) { return v; }
GDA_DEVICE uint64_t clock_ns() { return 1; }  // time stands still: only a deadline of zero passes
GDA_DEVICE void idle() { here.idle(); }

GDA_DEVICE uint64_t load_constant(const uint64_t* p) { return *p; }
GDA_DEVICE uint32_t load_constant(const uint32_t* p) { return *p; }

}  // namespace target
}  // namespace gda
