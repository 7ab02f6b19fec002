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

// By which link an address is reached. Without a link to other processes a foreign address is a cable that ends
// nowhere: loopback drops what is not ours.
Link* link_to(DeviceState& s, const uint8_t gid[16]);

}  // namespace sim
