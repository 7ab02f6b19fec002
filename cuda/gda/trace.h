// SPDX-License-Identifier: Apache-2.0
// What a kernel's threads do with a put, as trace events. Called by ring.h, submit.h, poll.h and the waits; compiled to
// nothing unless the code is traced (target/trace.h). Document: docs/trace.md.
#pragma once

#include <gda/status.h>
#include <gda/trace_ring.h>

namespace gda {

static_assert(prm::TRACE_RING_BYTES == 128 && prm::TRACE_EVENT_BYTES == 32, "target/trace.h makes room for these");
static_assert(target::TRACE_GROUP == prm::TRACE_GROUP &&
                  (!target::TRACED || target::TRACE_EVENTS % prm::TRACE_GROUP == 0),
              "a group does not go round");

// Events of one lap later may overwrite this one while it is written, if 2^N others come meanwhile. The clock is read
// first: a processor may finish everything before a reading, which the rest would then wait for.
GDA_TRACER void note_event(prm::trace_kind kind, uint32_t qpn, uint64_t index, uint32_t bytes, uint32_t aux,
                           uint32_t opcode) {
    gda_trace_ring* ring = reinterpret_cast<gda_trace_ring*>(target::trace_memory());
    if ((static_cast<uint32_t>(index) & ring->skip) != 0) return;
    uint64_t time = target::trace_time();
    gda_trace_event* events = reinterpret_cast<gda_trace_event*>(target::trace_memory() + sizeof(gda_trace_ring));
    gda_trace_event& e = events[target::trace_next(&ring->next) & (target::TRACE_EVENTS - 1)];
    e.qpn = qpn;
    e.index = static_cast<uint32_t>(index);
    e.bytes = bytes;
    e.aux = aux;
    e.lane = target::trace_lane();
    e.kind = static_cast<uint8_t>(kind);
    e.opcode = static_cast<uint8_t>(opcode);
    e.flags = 0;
    e.time = time;
}

GDA_DEVICE void trace(prm::trace_kind kind, uint32_t qpn, uint64_t index, uint32_t bytes = 0, uint32_t aux = 0,
                      uint32_t opcode = 0) {
    if (target::TRACED) note_event(kind, qpn, index, bytes, aux, opcode);
}

// A wait for `ticket` ended, unless only the look of a test did. Where `found`, the look before found that all below is
// complete, which is not noted yet.
GDA_DEVICE gda_status traced_end(uint32_t qpn, gda_ticket ticket, gda_status status, uint64_t found = 0) {
    trace(found != 0 ? prm::TRACE_FOUND : prm::TRACE_DONE, qpn, ticket - 1,
          found != 0 ? static_cast<uint32_t>(found - 1) : 0, static_cast<uint32_t>(gda_code(status)));
    return status;
}

}  // namespace gda
