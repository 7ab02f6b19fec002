// SPDX-License-Identifier: Apache-2.0
// What a kernel's threads do with a put, as trace events. Called by ring.h, submit.h, poll.h and the waits; compiled to
// nothing unless the code is traced (target/trace.h). Document: docs/trace.md.
#pragma once

#include <gda/status.h>
#include <gda/trace_ring.h>

namespace gda {

static_assert(prm::TRACE_RING_BYTES == 128 && prm::TRACE_EVENT_BYTES == 32, "target/trace.h makes room for these");

// Events of one lap later may overwrite this one while it is written, if 2^N others come meanwhile.
GDA_DEVICE void trace(prm::trace_kind kind, uint32_t qpn, uint64_t index, uint32_t bytes = 0, uint32_t aux = 0,
                      uint32_t opcode = 0) {
    if (!target::TRACED) return;
    gda_trace_ring* ring = reinterpret_cast<gda_trace_ring*>(target::trace_memory());
    if ((static_cast<uint32_t>(index) & ring->skip) != 0) return;
    gda_trace_event e;
    e.time = target::trace_time();
    e.qpn = qpn;
    e.index = static_cast<uint32_t>(index);
    e.bytes = bytes;
    e.aux = aux;
    e.lane = target::trace_lane();
    e.kind = static_cast<uint8_t>(kind);
    e.opcode = static_cast<uint8_t>(opcode);
    e.flags = 0;
    gda_trace_event* events = reinterpret_cast<gda_trace_event*>(target::trace_memory() + sizeof(gda_trace_ring));
    events[target::trace_next(&ring->next) & (target::TRACE_EVENTS - 1)] = e;
}

// Of a wait that ended, unless only the look of a test did.
GDA_DEVICE gda_status traced_end(uint32_t qpn, gda_ticket ticket, gda_status status) {
    if (target::TRACED) trace(prm::TRACE_DONE, qpn, ticket - 1, 0, static_cast<uint32_t>(gda_code(status)));
    return status;
}

}  // namespace gda
