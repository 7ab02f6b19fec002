// SPDX-License-Identifier: Apache-2.0
// Messages into packets: headers, payload lists, the link. Called by the requester.
#pragma once

#include "sim/engine/wqe.h"

namespace sim {

enum class Sent { all, no_room, stopped };

// Sends the message at the queue pair's cursor from its next packet on. `stopped`: its payload cannot be read; the
// message carries the syndrome.
Sent transmit(DeviceState& s, Qp* qp, const ParsedWqe& wqe, int* budget);

// How many sequence numbers it takes: at least one.
uint32_t packets_of(const Qp* qp, const ParsedWqe& wqe);

}  // namespace sim
