// SPDX-License-Identifier: Apache-2.0
// Packets as a queue pair makes and counts them: the base header with its addresses, and how many packets a payload
// takes at the path MTU. Used by both halves of a queue pair.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer", "Base Transport Header".
#pragma once

#include <gda/formats/packet.h>

#include <algorithm>

#include "sim/engine/state.h"
#include "sim/link/wire.h"

namespace sim {

// The one entry of the table: full member of the default partition. A limited member may talk to it.
enum : uint32_t { DEFAULT_PKEY = 0xffff, DEFAULT_PKEY_LIMITED = 0x7fff };

enum : uint8_t { DEFAULT_HOP_LIMIT = 64 };

// The UDP source port of a connection whose program chose none: of the dynamic range, spread by both numbers, since
// switches choose among paths by it. Source: annex A17, "UDP source port".
uint16_t flow_port_of(uint32_t own_qpn, uint32_t peer_qpn);

// The transport that a queue pair speaks: enum bth_transport.
uint32_t wire_transport(const Qp* qp);

// Base header and addresses of a packet to the peer of a connection; what follows the base header is added behind it.
// The opcode is RC's, and becomes that of the queue pair's transport; or one of the masked atomics.
void begin_packet(const Qp* qp, uint8_t opcode, uint32_t psn, Packet* packet);

// What the operation of a packet brings behind BTH and the headers of its transport.
inline const uint8_t* operation_headers(const Packet& packet) {
    const uint8_t opcode = static_cast<uint8_t>(GDA_GET(bth, packet.header, opcode));
    return packet.header + GDA_BYTES_OF(bth) + meaning_of(opcode).lead_bytes;
}

// `bytes` of payload at `list`; a run when it is more than one packet's.
void set_payload(const Qp* qp, const iovec* list, size_t count, uint64_t bytes, Packet* packet);

// How many packets a payload takes: at least one. Most messages are one packet: no division for those, nor below.
inline uint32_t packets_for(const Qp* qp, uint64_t bytes) {
    return bytes <= qp->mtu ? 1 : static_cast<uint32_t>((bytes + qp->mtu - 1) / qp->mtu);
}

// Whether a run was cut as this end would cut it: else its packets are not what it takes them for.
inline bool same_cut(const Qp* qp, const Packet& packet) {
    return packet.run_mtu == 0 ? packet.payload_bytes <= qp->mtu : packet.run_mtu == qp->mtu;
}

// How much of the `rest` of a payload goes into one call of the link: at most one packet's, or a run of whole packets.
inline uint64_t portion(const Qp* qp, const Link* link, uint64_t rest) {
    if (rest <= qp->mtu) return rest;
    return std::min(rest, std::max<uint64_t>(qp->mtu, link->run_bytes() / qp->mtu * qp->mtu));
}

}  // namespace sim
