// SPDX-License-Identifier: Apache-2.0
// See packet.h.

#include "sim/engine/packet.h"

#include <cstring>

#include "sim/engine/dc.h"

namespace sim {

using namespace gda::prm;

uint16_t flow_port_of(uint32_t own_qpn, uint32_t peer_qpn) {
    const uint32_t mixed = (own_qpn * 0x9e3779b1u) ^ (peer_qpn * 0x85ebca6bu);
    return static_cast<uint16_t>(0xc000 + mixed % 0x4000);
}

uint32_t wire_transport(const Qp* qp) {
    switch (qp->transport) {
        case MLX5_QPC_ST_UC:
            return BTH_UC;
        case MLX5_QPC_ST_UD:
            return BTH_UD;
        case MLX5_QPC_ST_XRC:
            return BTH_XRC;
        case MLX5_QPC_ST_DCI:
        case MLX5_QP_ST_DCT:
            return BTH_DC;
        default:
            return BTH_RC;
    }
}

void begin_packet(const Qp* qp, uint8_t opcode, uint32_t psn, Packet* packet) {
    std::memcpy(packet->source, qp->local_gid, sizeof packet->source);
    std::memcpy(packet->destination, qp->remote_gid, sizeof packet->destination);
    packet->port = qp->port;
    packet->version1 = qp->version1;
    packet->traffic_class = qp->traffic_class;
    packet->hop_limit = qp->hop_limit;
    packet->flow_port = qp->flow_port;
    packet->note_qpn = qp->number;
    uint8_t* h = packet->header;
    std::memset(h, 0, sizeof packet->header);
    GDA_SET(bth, h, opcode, opcode);
    if (GDA_GET(bth_parts, h, transport) == BTH_RC) GDA_SET(bth_parts, h, transport, wire_transport(qp));
    GDA_SET(bth, h, pkey, DEFAULT_PKEY);
    GDA_SET(bth, h, dest_qp, qp->remote_qpn);
    GDA_SET(bth, h, psn, psn);
    packet->header_bytes = GDA_BYTES_OF(bth);
    if (qp->dc_initiator() || qp->dc_target()) add_dceth(qp, packet);
}

void set_payload(const Qp* qp, const iovec* list, size_t count, uint64_t bytes, Packet* packet) {
    packet->payload = list;
    packet->payload_count = count;
    packet->payload_bytes = bytes;
    packet->run_mtu = bytes > qp->mtu ? qp->mtu : 0;
    const uint64_t last = bytes > qp->mtu ? bytes % qp->mtu : bytes;  // only the last packet may need padding
    GDA_SET(bth, packet->header, pad_count, (4 - last % 4) % 4);
}

}  // namespace sim
