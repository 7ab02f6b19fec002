// SPDX-License-Identifier: Apache-2.0
// Dynamically connected transport. An initiator (DCI) is the sending half of a reliable queue pair whose peer stands in
// every WQE: it turns to another target when all that it asked of the one before is answered, and each turn is a new
// connection with sequence numbers from 0 on. A target (DCT) keeps the receiving half for each initiator that asked it:
// all rules of the responder hold there. Packets are RC's with a DCETH behind BTH (gda/formats/packet.h), for the
// card's own format is not published. Called by the requester, the responder and the firmware. Source: ConnectX manual,
// "Dynamically Connected Transport"; how a connection begins and ends is this model's choice.
#pragma once

#include "sim/engine/wqe.h"

namespace sim {

// Whether the WQE, at the cursor, needs another connection than the initiator has. It begins when nothing is awaited.
bool must_turn(const DeviceState& s, const Qp* qp, const ParsedWqe& wqe);
void turn(DeviceState& s, Qp* qp, const ParsedWqe& wqe, Message* m);

// The initiator's oldest message has just ended in error: its stream ends, and what was fetched of it is flushed.
// False: the initiator has no streams, or as many in error as it may: all of it ends.
bool end_stream(DeviceState& s, Qp* qp, const Message& failed);

// Whether an answer belongs to the initiator's connection; else it is an earlier one's.
bool of_connection(const Qp* qp, const Packet& packet);

// The connection of a target that a request belongs to; made when it is the first of one. Null: the packet is dropped.
Qp* connection_of(DeviceState& s, Qp* target, const Packet& packet);

// All connections of a target, with what was being received; or those through this shared receive queue.
void end_connections(DeviceState& s, Qp* target);

// Writes the DCETH behind BTH.
void add_dceth(const Qp* qp, Packet* packet);

}  // namespace sim
