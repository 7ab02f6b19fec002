// SPDX-License-Identifier: Apache-2.0
// What the device library does, counted: with GDA_METER (gda.Kernel(..., meter=True)) each of these steps adds to a
// counter of the module, without it they cost nothing. Called by the targets, post.h and poll.h; read by
// gda/run/meters.py, which takes the names from this text, one line each. One counted unit of compilation a program.
#pragma once

#include <gda/target/types.h>

enum gda_meter {
    // Read-modify-writes of shared words.
    GDA_METER_ADDITIONS,  // reservations of slots
    GDA_METER_NOTES,      // bits set in the window
    GDA_METER_PARKINGS,   // tries to park the token; more than one: others had come meanwhile
    GDA_METER_SWAPS,      // compare-and-swaps: slots given back, a completion ring claimed, an error latched
    GDA_METER_RAISES,     // of `ready`, `done`, `silent`
    // Barriers, by their names in target.h; where a target needs none it counts none.
    GDA_METER_WQE_BEFORE_DOORBELL_RECORD,
    GDA_METER_OWN_WQE_BEFORE_DOORBELL_RECORD,
    GDA_METER_WQE_BEFORE_DOORBELL,
    GDA_METER_DOORBELL_RECORD_BEFORE_DOORBELL,
    GDA_METER_EARLIER_SLOTS_BEFORE_MINE,
    GDA_METER_DOORBELL_BEFORE_READY,
    // What the NIC sees.
    GDA_METER_DOORBELLS,      // MMIO writes of 8 bytes
    GDA_METER_BLUEFLAMES,     // MMIO writes of a whole work request
    GDA_METER_ASKED,          // doorbells that a host thread is asked to ring
    GDA_METER_RECORDS,        // doorbell records of send, receive and completion queues
    GDA_METER_REQUESTS,       // work requests of send queues
    GDA_METER_SEGMENTS,       // of 16 bytes: all that is written to rings
    GDA_METER_PAYLOAD_BYTES,  // that data segments name or work requests carry
    // Waiting.
    GDA_METER_POLLS,  // looks for completions of a send queue
    GDA_METER_SPINS,  // turns of waits
    GDA_METERS
};

#if defined(GDA_METER) && defined(__CUDACC__)
extern "C" {
__device__ unsigned long long gda_meter_counts[GDA_METERS];
}
#elif defined(GDA_METER)
extern "C" {
__attribute__((visibility("default"))) uint64_t gda_meter_counts[GDA_METERS];
}
#endif

namespace gda {
namespace target {

#if defined(GDA_METER) && defined(__CUDACC__)
GDA_DEVICE void meter(gda_meter what, uint64_t n = 1) {
    atomicAdd(&gda_meter_counts[what], static_cast<unsigned long long>(n));
}
#elif defined(GDA_METER)
GDA_DEVICE void meter(gda_meter what, uint64_t n = 1) {
    __atomic_fetch_add(&gda_meter_counts[what], n, __ATOMIC_RELAXED);
}
#else
GDA_DEVICE void meter(gda_meter, uint64_t = 1) {}
#endif

}  // namespace target
}  // namespace gda
