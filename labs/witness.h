// SPDX-License-Identifier: Apache-2.0
// Sees the steps by which a learner's kernel tells the NIC: barriers, records, doorbells, each with the memory as it
// was at that moment. Text that labs/device.py puts before the learner's; the CPU target only. The learner calls the
// words of <gda/target.h> as ever: the macros at the end put the witness between. Read back by labs/device.py.
#pragma once

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <gda/handle.h>
#include <gda/target.h>

namespace lab {

enum step_kind {
    STEP_REQUEST_BARRIER = 1,  // wqe_before_doorbell_record, or that of own requests
    STEP_RECORD_BARRIER = 2,   // doorbell_record_before_doorbell
    STEP_SYSTEM_FENCE = 3,     // __threadfence_system: stands for either
    STEP_DEVICE_FENCE = 4,     // __threadfence: no device outside sees it
    STEP_RECORD = 5,           // value: as stored
    STEP_DOORBELL = 6,         // value: as stored
    STEP_SHARED_STORE = 7,     // value: what a word that threads share holds now
    STEP_ADD = 8,              // value: what was there before
};

static constexpr uint64_t MOST_STEPS = 512;
static constexpr uint64_t RING_BYTES = 1024;  // of the send queue, in each step

struct step {
    uint64_t kind;
    uint64_t address;
    uint64_t value;
    uint64_t gpu_scope;  // of a barrier
    uint64_t record;     // the send counter's dword at that moment
    uint64_t thread;
    uint8_t ring[RING_BYTES];
};

static step steps[MOST_STEPS];
static uint64_t used;
static const gda_qp* watched;

static inline void note(step_kind kind, const void* address, uint64_t value, bool gpu_scope = false) {
    uint64_t i = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    if (i >= MOST_STEPS || watched == nullptr) return;
    step& s = steps[i];
    s.kind = kind;
    s.address = reinterpret_cast<uint64_t>(address);
    s.value = value;
    s.gpu_scope = gpu_scope;
    s.thread = blockIdx.x * blockDim.x + threadIdx.x;
    memcpy(&s.record, reinterpret_cast<const void*>(watched->record), sizeof(uint32_t));
    uint64_t bytes = static_cast<uint64_t>(64) << watched->log_sq_size;
    memcpy(s.ring, reinterpret_cast<const void*>(watched->sq), bytes < RING_BYTES ? bytes : RING_BYTES);
}

static inline bool is_gpu(gda::target::scope s) { return s == gda::target::scope_gpu; }

}  // namespace lab

namespace gda {
namespace target {
static inline void seen_wqe_before_doorbell_record(scope s) {
    wqe_before_doorbell_record(s);
    lab::note(lab::STEP_REQUEST_BARRIER, nullptr, 0, lab::is_gpu(s));
}
static inline void seen_own_wqe_before_doorbell_record(scope s) {
    own_wqe_before_doorbell_record(s);
    lab::note(lab::STEP_REQUEST_BARRIER, nullptr, 0, lab::is_gpu(s));
}
static inline void seen_doorbell_record_before_doorbell(scope s) {
    doorbell_record_before_doorbell(s);
    lab::note(lab::STEP_RECORD_BARRIER, nullptr, 0, lab::is_gpu(s));
}
static inline void seen_store_record(void* p, uint32_t v) {
    store_record(p, v);
    lab::note(lab::STEP_RECORD, p, v);
}
// Noted first: what the NIC may read because of it is what lies in memory now.
static inline void seen_store_doorbell(void* p, uint64_t v) {
    lab::note(lab::STEP_DOORBELL, p, v);
    store_doorbell(p, v);
}
// Between any two looks at a shared word another thread may have run: here one does.
static inline uint64_t seen_load_shared(const uint64_t* p) {
    uint64_t v = load_shared(p);
    gda_host_idle();
    return v;
}
static inline uint64_t seen_load_shared_acquire(const uint64_t* p) { return seen_load_shared(p); }
static inline void seen_store_shared(uint64_t* p, uint64_t v) {
    lab::note(lab::STEP_SHARED_STORE, p, v);
    store_shared(p, v);
    gda_host_idle();
}
static inline void seen_store_shared_release(uint64_t* p, uint64_t v) { seen_store_shared(p, v); }
static inline uint64_t seen_add(uint64_t* p, uint64_t n) {
    uint64_t before = add(p, n);
    lab::note(lab::STEP_ADD, p, before);
    gda_host_idle();
    return before;
}
}  // namespace target
}  // namespace gda

static inline void lab_threadfence_system() {
    __threadfence_system();
    lab::note(lab::STEP_SYSTEM_FENCE, nullptr, 0);
}
static inline void lab_threadfence() {
    __threadfence();
    lab::note(lab::STEP_DEVICE_FENCE, nullptr, 0);
}

// What is noted from here on is of this queue pair.
GDA_KERNEL(lab_watch)(gda_qp* qp) {
    lab::watched = qp;
    lab::used = 0;
}
// The steps since then, and how many there were.
GDA_KERNEL(lab_steps)(uint8_t* out, uint64_t* count) {
    *count = lab::used;
    memcpy(out, lab::steps, sizeof lab::steps);
}

#define wqe_before_doorbell_record seen_wqe_before_doorbell_record
#define own_wqe_before_doorbell_record seen_own_wqe_before_doorbell_record
#define doorbell_record_before_doorbell seen_doorbell_record_before_doorbell
#define store_record seen_store_record
#define store_doorbell seen_store_doorbell
#define load_shared seen_load_shared
#define load_shared_acquire seen_load_shared_acquire
#define store_shared seen_store_shared
#define store_shared_release seen_store_shared_release
#define add seen_add
#define __threadfence_system lab_threadfence_system
#define __threadfence lab_threadfence
