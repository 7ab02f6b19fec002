// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair: fetches WQEs, checks them, cuts messages into packets, resends, completes.
// Called by device.cc for every queue pair with work, by doorbell.cc, and by the firmware's moves of state.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// One round for a queue pair of the busy list. False: nothing is left to do for it.
bool serve(DeviceState& s, Qp* qp);

// An acknowledgement or refusal from the peer.
void answered(DeviceState& s, Qp* qp, const Packet& packet);

// Read data or the result of an atomic (response.cc).
bool is_response(uint32_t operation);
void responded(DeviceState& s, Qp* qp, const Packet& packet);

// When time alone gives it something to do; 0: never.
uint64_t due_ns(const Qp* qp);

// The producer index was read again, from the record or from the doorbell.
void produced(DeviceState& s, Qp* qp, uint16_t producer);

// Moves to ERR: everything outstanding is flushed, and so is what is posted later.
void enter_error(DeviceState& s, Qp* qp);

// In ERR: a completion for each send WQE that was posted.
void flush_sends(DeviceState& s, Qp* qp);

// Leaves every list: before it is destroyed.
void forget(DeviceState& s, Qp* qp);

}  // namespace sim
