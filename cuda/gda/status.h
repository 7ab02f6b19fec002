// SPDX-License-Identifier: Apache-2.0
// Status words and tickets: made and read by the device library, by kernels and (as the same 64-bit word) by
// gda/run/status.py. Declared in formats/status.h and handle.h.
#pragma once

#include <gda/handle.h>
#include <gda/target.h>

// Names that kernels use bare.
using gda::prm::GDA_BAD_HANDLE;
using gda::prm::GDA_COMPLETION_ERROR;
using gda::prm::GDA_NO_RECEIVE_QUEUE;
using gda::prm::GDA_NOT_CONNECTED;
using gda::prm::GDA_OK;
using gda::prm::GDA_OUT_OF_BOUNDS;
using gda::prm::GDA_QUEUE_FULL;
using gda::prm::GDA_RELAXED_SIGNAL;
using gda::prm::GDA_SIGNAL_TIMEOUT;
using gda::prm::GDA_TIMEOUT;

// Durations, in nanoseconds.
#define GDA_US(n) (static_cast<uint64_t>(n) * 1000u)
#define GDA_MS(n) (static_cast<uint64_t>(n) * 1000000u)
#define GDA_S(n) (static_cast<uint64_t>(n) * 1000000000u)

// A put was refused: the other bits are its gda_status, of which this bit (the top one of wqe_index) is lost.
// A completion error is read back whole from the queue (gda_wait).
static constexpr uint64_t GDA_TICKET_FAILED = static_cast<uint64_t>(1) << 63;

namespace gda {

// Two dwords as one word, the first one of the format on top.
GDA_INLINE constexpr uint64_t join(uint32_t first, uint32_t second) {
    return (static_cast<uint64_t>(first) << 32) | second;
}

GDA_INLINE gda_status make_status(uint32_t code, uint32_t qpn, uint64_t index, uint32_t syndrome = 0,
                                  uint32_t vendor = 0) {
    return join(GDA_FIELD(status, wqe_index, static_cast<uint32_t>(index)) |
                    GDA_FIELD(status, vendor_error_syndrome, vendor) | GDA_FIELD(status, syndrome, syndrome),
                GDA_FIELD(status, qpn, qpn) | GDA_FIELD(status, code, code));
}

// A moment `duration_ns` from now; a very long duration is the end of time, not the past.
GDA_DEVICE uint64_t moment_after(uint64_t duration_ns) {
    uint64_t now = target::clock_ns();
    return now + duration_ns < now ? ~static_cast<uint64_t>(0) : now + duration_ns;
}

}  // namespace gda

// The code of a status: enum status_code. Status words carry queue and request too, so compare codes, not words.
GDA_INLINE uint32_t gda_code(gda_status status) { return GDA_EXTRACT(status, code, static_cast<uint32_t>(status)); }

// Whether the request was refused: nothing was posted, and nothing will complete. Without a look at memory.
GDA_INLINE bool gda_failed(gda_ticket ticket) { return (ticket & GDA_TICKET_FAILED) != 0; }

// The target's clock in nanoseconds: for differences.
GDA_API uint64_t gda_now_ns() { return gda::target::clock_ns(); }

// Keeps the first non-zero status at `where`. Any number of threads may report; success is not written.
GDA_API void gda_report(gda_status* where, gda_status status) {
    if (status != 0 && where != nullptr) gda::target::compare_swap(where, 0, status);
}
