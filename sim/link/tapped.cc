// SPDX-License-Identifier: Apache-2.0
// See tapped.h.

#include "sim/link/tapped.h"

#include "sim/link/run.h"
#include "sim/link/wire.h"

namespace sim {

bool Tapped::send(const Packet& packet) {
    if (network_packet_bytes(packet) <= tap_.mtu_bytes) return carrier_.send(packet);
    if (packet.run_mtu) return apart(packet);
    tap_.counters.count(LinkCounter::packets_over_link_mtu);
    return true;
}

// A run with a packet that is too long: the last of them may be short enough.
bool Tapped::apart(const Packet& run) {
    return for_each_packet(run, [this](const Packet& packet) { return send(packet); });
}

}  // namespace sim
