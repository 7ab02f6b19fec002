// SPDX-License-Identifier: Apache-2.0
// A run of packets (link.h) taken apart into the packets it stands for. Called where each packet counts: a packet that
// is longer than the netdev's MTU, a carrier that takes single packets, a capture.
#pragma once

#include <functional>

#include "sim/link/link.h"

namespace sim {

// Calls `use` with each packet of a run, in order, until it answers false; a packet that is no run is handed on as it
// is. False: `use` did. The payload of each is a part of the run's.
bool for_each_packet(const Packet& packet, const std::function<bool(const Packet&)>& use);

}  // namespace sim
