// SPDX-License-Identifier: Apache-2.0
// Packets as they lie on a wire: sizes. Called by the port (port.h) to hold packets against the MTU of the netdev.
// Source: InfiniBand Architecture Specification, annexes A16 (RoCE) and A17 (RoCE v2).
#pragma once

#include <cstring>

#include "sim/link/link.h"

namespace sim {

enum : uint32_t { ICRC_BYTES = 4, IPV4_BYTES = 20, IPV6_BYTES = 40, UDP_BYTES = 8 };

// Whether a GID stands for an IPv4 address: ::ffff:a.b.c.d
inline bool is_ipv4(const uint8_t gid[16]) {
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid, prefix, sizeof prefix) == 0;
}

inline size_t pad_of(size_t payload_bytes) { return (4 - payload_bytes % 4) % 4; }

// What stands before BTH: a GRH for RoCE v1, else IPv4 or IPv6, and UDP.
inline size_t network_bytes(const Packet& packet) {
    if (packet.version1) return IPV6_BYTES;
    return (is_ipv4(packet.destination) ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
}

// Everything that a netdev counts against its MTU, for a packet or the longest packet of a run.
inline size_t network_packet_bytes(const Packet& packet) {
    const size_t payload =
        packet.run_mtu && packet.payload_bytes > packet.run_mtu ? packet.run_mtu : packet.payload_bytes;
    return network_bytes(packet) + packet.header_bytes + payload + pad_of(payload) + ICRC_BYTES;
}

}  // namespace sim
