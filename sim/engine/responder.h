// SPDX-License-Identifier: Apache-2.0
// The receiving half of a queue pair: requests from the peer, receive WQEs, answers. Called by device.cc for each
// packet that a link hands over.
#pragma once

#include <gda/formats/packet.h>

#include "sim/engine/state.h"

namespace sim {

// A packet has arrived, for whatever queue pair: requests here, datagrams in datagram.cc, answers to the requester.
void arrived(DeviceState& s, const Packet& packet);

// The request is refused for good: the peer is told, an open receive ends in error, and the queue pair goes to ERR
// once the answer is on its way. Over UC nobody is told: the message is dropped, and the queue pair ends only when its
// own receive was at fault.
void refuse(DeviceState& s, Qp* qp, uint32_t psn, gda::prm::aeth_syndrome answer, gda::prm::cqe_syndrome syndrome,
            uint8_t vendor, const Why& why);

// The same for an operation that the queue pair itself does not allow, whatever the key: to its peer that is no lack of
// access but an operation that is not supported there. False always.
bool not_allowed(DeviceState& s, Qp* qp, uint32_t psn, const char* what, const char* right);

// A request was carried out: noted in the trace, named as its requester names it.
inline void trace_arrival(DeviceState& s, const Qp* qp, const Packet& packet, uint32_t psn) {
    s.trace.note(gda::prm::TRACE_ARRIVE, qp->remote_qpn, static_cast<uint32_t>(packet.note_index), packet.payload_bytes,
                 psn, qp->number, static_cast<uint32_t>(GDA_GET(bth, packet.header, opcode)), 0, Trace::NOW);
}

// What was written to GPU memory before is not there yet, and the packet at hand must follow it. True: so must it come
// again later, or the queue pair has failed meanwhile; the caller leaves without a trace. False: it is there now.
bool not_yet(DeviceState& s, const Qp* qp, const Packet& packet);

// fetch.cc: a read or an atomic, in order; one that was done before.
void take_fetch(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn);
void repeat_fetch(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn);

// datagram.cc: for a UD queue pair that is ready to receive.
void datagram_arrived(DeviceState& s, Qp* qp, const Packet& packet);

}  // namespace sim
