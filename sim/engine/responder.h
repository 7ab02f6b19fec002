// SPDX-License-Identifier: Apache-2.0
// The receiving half of a queue pair: requests from the peer, receive WQEs, answers. Called by device.cc for each
// packet that a link hands over, and by the requester for flushes.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// A packet has arrived, for whatever queue pair: requests here, answers to the requester.
void arrived(DeviceState& s, const Packet& packet);

// Sends an answer, or keeps it until the link has room (serve() tries again).
void send_answer(DeviceState& s, Qp* qp, uint8_t syndrome, uint32_t psn);

// In ERR: a completion for each receive WQE that is posted.
void flush_receives(DeviceState& s, Qp* qp);

}  // namespace sim
