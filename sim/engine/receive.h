// SPDX-License-Identifier: Apache-2.0
// Receive WQEs, of a queue pair's own ring or of a shared receive queue: taken, filled, completed, flushed. Called by
// responder.cc and datagram.cc, and by the requester when a queue pair enters ERR.
#pragma once

#include <gda/formats/packet.h>

#include "sim/engine/completion.h"
#include "sim/engine/memory.h"

namespace sim {

// Opens the next receive WQE. False: none is posted.
bool open_receive(DeviceState& s, Qp* qp);

// Fills the open receive with `bytes` at `from`, behind what is in it.
enum class Filled { yes, too_long, bad_key, unmapped, no_source };
Filled fill_receive(DeviceState& s, Qp* qp, const iovec& part, Why* why);

// Ends it: with a completion for `c.opcode`; index is filled in here.
void complete_receive(DeviceState& s, Qp* qp, Completion c);
void fail_receive(DeviceState& s, Qp* qp, gda::prm::cqe_syndrome syndrome, uint8_t vendor);

// In ERR: a completion for each receive WQE that the queue pair holds or that lies in its own ring.
void flush_receives(DeviceState& s, Qp* qp);

// Of a shared receive queue: how many are posted and not taken; tells the limit event when it is due.
uint32_t receives_left(DeviceState& s, Srq* srq);
void check_limit(DeviceState& s, Srq* srq);

}  // namespace sim
