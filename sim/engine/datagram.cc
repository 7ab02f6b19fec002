// SPDX-License-Identifier: Apache-2.0
// Datagrams that arrive at a UD queue pair. See responder.h.
// Source: InfiniBand Architecture Specification, volume 1, "Unreliable Datagram", and annex A17 for what precedes the
// payload: an IPv6 header, or 20 bytes of nothing and an IPv4 header.

#include <algorithm>
#include <cstring>

#include "sim/engine/packet.h"
#include "sim/engine/receive.h"
#include "sim/engine/responder.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t PROTOCOL_UDP = 17, HOP_LIMIT = 64;
const uint32_t UDP_HEADER_BYTES = 8, ICRC_BYTES = 4, IPV4_HEADER_BYTES = 20;
const uint32_t CQE_HAS_GRH = 1;
// RoCE has no service level: the field says what precedes the payload (Linux, mlx5 cq.c: MLX5_CQE_ROCE_L3_HEADER_TYPE).
const uint8_t CQE_NETWORK_IPV6 = 1, CQE_NETWORK_IPV4 = 2;
const uint8_t MAPPED_PREFIX[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// The ones' complement sum of an IPv4 header. Source: RFC 791.
uint16_t checksum(const uint8_t* header) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < IPV4_HEADER_BYTES; i += 2) sum += header[i] * 256u + header[i + 1];
    while (sum > 0xffff) sum = sum % 0x10000 + sum / 0x10000;
    return static_cast<uint16_t>(~sum);
}

void build_grh(const Packet& packet, uint8_t grh[GDA_BYTES_OF(grh)]) {
    std::memset(grh, 0, GDA_BYTES_OF(grh));
    const uint32_t bytes =
        UDP_HEADER_BYTES + packet.header_bytes + static_cast<uint32_t>(packet.payload_bytes) + ICRC_BYTES;
    if (std::memcmp(packet.destination, MAPPED_PREFIX, sizeof MAPPED_PREFIX) == 0) {
        GDA_SET(grh_ipv4, grh, version, 4);
        GDA_SET(grh_ipv4, grh, ihl, IPV4_HEADER_BYTES / 4);
        GDA_SET(grh_ipv4, grh, total_length, IPV4_HEADER_BYTES + bytes);
        GDA_SET(grh_ipv4, grh, ttl, HOP_LIMIT);
        GDA_SET(grh_ipv4, grh, protocol, PROTOCOL_UDP);
        std::memcpy(grh + GDA_BYTE_OFFSET(grh_ipv4, source), packet.source + 12, 4);
        std::memcpy(grh + GDA_BYTE_OFFSET(grh_ipv4, destination), packet.destination + 12, 4);
        GDA_SET(grh_ipv4, grh, checksum, checksum(grh + GDA_BYTE_OFFSET(grh_ipv4, version)));
        return;
    }
    GDA_SET(grh, grh, ip_version, 6);
    GDA_SET(grh, grh, payload_length, bytes);
    GDA_SET(grh, grh, next_header, PROTOCOL_UDP);
    GDA_SET(grh, grh, hop_limit, HOP_LIMIT);
    std::memcpy(grh + GDA_BYTE_OFFSET(grh, sgid), packet.source, 16);
    std::memcpy(grh + GDA_BYTE_OFFSET(grh, dgid), packet.destination, 16);
}

}  // namespace

void datagram_arrived(DeviceState& s, Qp* qp, const Packet& packet) {
    const uint32_t operation = static_cast<uint32_t>(GDA_GET(bth_parts, packet.header, operation));
    const uint8_t* deth = packet.header + GDA_BYTES_OF(bth);
    const uint32_t key = static_cast<uint32_t>(GDA_GET(deth, deth, qkey));
    const bool immediate = operation == RC_SEND_ONLY_WITH_IMMEDIATE;
    if (operation != RC_SEND_ONLY && !immediate) return s.report.count(Counter::packets_dropped);
    if (key != qp->q_key) {
        s.report.say(Kind::q_key,
                     text("%s: dropped a datagram with Q_Key 0x%x; its own is 0x%x", qp->name, key, qp->q_key),
                     {{"qp", qp->number}, {"q_key", key}, {"own_q_key", qp->q_key}});
        return s.report.count(Counter::datagrams_dropped);
    }
    if (!open_receive(s, qp)) return s.report.count(Counter::datagrams_dropped);
    uint8_t grh[GDA_BYTES_OF(grh)];
    build_grh(packet, grh);
    Why why;
    Filled filled = fill_receive(s, qp, {grh, sizeof grh}, &why);
    for (size_t i = 0; filled == Filled::yes && i < packet.payload_count; ++i) {
        filled = fill_receive(s, qp, packet.payload[i], &why);
    }
    if (filled == Filled::no_source) {
        packet.unreadable = true;  // the receive stays open for the next one
        return;
    }
    if (filled != Filled::yes) {  // its own receive is at fault: a program's mistake, told by an error completion
        const bool length = filled == Filled::too_long;
        Values values = why.values;
        values.insert(values.begin(), {"qp", qp->number});
        s.report.say(why.kind,
                     std::string(qp->name) + ": a datagram could not be placed: " + why.words +
                         (length ? " (40 of them are for the GRH)" : ""),
                     values);
        s.report.count(Counter::datagrams_dropped);
        fail_receive(s, qp, length ? MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
                     length                       ? VENDOR_RECEIVE_LENGTH
                     : filled == Filled::unmapped ? VENDOR_RECEIVE_UNMAPPED
                                                  : VENDOR_RECEIVE_KEY);
        qp->failing = true;
        return s.look_at(qp);
    }
    Completion c;
    c.opcode = immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
    c.bytes = static_cast<uint32_t>(qp->receive.filled);
    c.solicited = GDA_GET(bth, packet.header, se) != 0;
    c.from_qpn = static_cast<uint32_t>(GDA_GET(deth, deth, src_qp));
    c.grh = CQE_HAS_GRH;
    s.trace.note(TRACE_ARRIVE, c.from_qpn, static_cast<uint32_t>(packet.note_index), packet.payload_bytes,
                 static_cast<uint32_t>(GDA_GET(bth, packet.header, psn)), qp->number,
                 static_cast<uint32_t>(GDA_GET(bth, packet.header, opcode)), 0, Trace::NOW);
    c.network = GDA_GET(grh, grh, ip_version) == 6 ? CQE_NETWORK_IPV6 : CQE_NETWORK_IPV4;
    if (immediate) c.immediate = static_cast<uint32_t>(GDA_GET(immdt, deth + GDA_BYTES_OF(deth), imm));
    complete_receive(s, qp, c);
    s.report.count(Counter::sends_received);
    ++s.done;
}

}  // namespace sim
