// SPDX-License-Identifier: Apache-2.0
// See wire.h.

#include "sim/link/wire.h"

#include <gda/formats/packet.h>

#include "sim/link/guard.h"
#include "sim/link/icrc.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t BTH_BYTES = GDA_BYTES_OF(bth);

// IP and UDP, or a GRH, as they stand before BTH.
struct Network {
    uint8_t bytes[MAX_NETWORK_BYTES] = {};
    size_t count = 0;
    bool version1 = false, ipv4 = false;

    uint8_t* udp() { return bytes + (ipv4 ? IPV4_BYTES : IPV6_BYTES); }
};

// `transport_bytes`: from BTH to the ICRC.
Network network_of(const Packet& packet, size_t transport_bytes) {
    Network n;
    n.version1 = packet.version1;
    n.ipv4 = !packet.version1 && is_ipv4(packet.destination);
    n.count = network_bytes(packet);
    const size_t udp_bytes = transport_bytes + UDP_BYTES;
    uint8_t* ip = n.bytes;
    if (n.ipv4) {
        GDA_SET(ipv4, ip, version, 4);
        GDA_SET(ipv4, ip, ihl, IPV4_BYTES / 4);
        GDA_SET(ipv4, ip, tos, packet.traffic_class);
        GDA_SET(ipv4, ip, total_length, IPV4_BYTES + udp_bytes);
        GDA_SET(ipv4, ip, df, 1);
        GDA_SET(ipv4, ip, ttl, packet.hop_limit);
        GDA_SET(ipv4, ip, protocol, IP_UDP);
        std::memcpy(ip + GDA_BYTE_OFFSET(ipv4, source), packet.source + 12, 4);
        std::memcpy(ip + GDA_BYTE_OFFSET(ipv4, destination), packet.destination + 12, 4);
        GDA_SET(ipv4, ip, checksum, complement(internet_sum(ip, IPV4_BYTES)));
    } else {
        GDA_SET(grh, ip, ip_version, 6);
        GDA_SET(grh, ip, tclass, packet.traffic_class);
        GDA_SET(grh, ip, payload_length, packet.version1 ? transport_bytes : udp_bytes);
        GDA_SET(grh, ip, next_header, packet.version1 ? IP_IBA : IP_UDP);
        GDA_SET(grh, ip, hop_limit, packet.hop_limit);
        std::memcpy(ip + GDA_BYTE_OFFSET(grh, sgid), packet.source, 16);
        std::memcpy(ip + GDA_BYTE_OFFSET(grh, dgid), packet.destination, 16);
    }
    if (!packet.version1) {
        GDA_SET(udp, n.udp(), source_port, packet.flow_port);
        GDA_SET(udp, n.udp(), destination_port, UDP_ROCE_V2);
        GDA_SET(udp, n.udp(), length, udp_bytes);
    }
    return n;
}

// Over what does not change on the way; what may, counts as ones. Eight bytes of ones stand for the LRH of InfiniBand.
uint32_t icrc_of(const Network& network, const uint8_t* transport, size_t bytes) {
    Network masked = network;
    uint8_t* ip = masked.bytes;
    if (masked.ipv4) {
        GDA_SET(ipv4, ip, tos, 0xff);
        GDA_SET(ipv4, ip, ttl, 0xff);
        GDA_SET(ipv4, ip, checksum, 0xffff);
    } else {
        GDA_SET(grh, ip, tclass, 0xff);
        GDA_SET(grh, ip, flow_label, 0xfffff);
        GDA_SET(grh, ip, hop_limit, 0xff);
    }
    if (!masked.version1) GDA_SET(udp, masked.udp(), checksum, 0xffff);
    uint8_t header[BTH_BYTES];
    std::memcpy(header, transport, BTH_BYTES);
    GDA_SET(bth, header, reserved_at_20, 0xff);

    const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    Crc32 crc;
    crc.add(ones, sizeof ones);
    crc.add(masked.bytes, masked.count);
    crc.add(header, BTH_BYTES);
    crc.add(transport + BTH_BYTES, bytes - BTH_BYTES);
    return crc.value();
}

void store_little(uint8_t* at, uint32_t value) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<uint8_t>(value >> 8 * i);
}

// Headers, payload and pad, and the ICRC.
bool put_transport(const Packet& packet, const Network& network, uint8_t* out) {
    uint8_t* at = out;
    std::memcpy(at, packet.header, packet.header_bytes);
    at += packet.header_bytes;
    for (size_t i = 0; i < packet.payload_count; ++i) {
        if (!guarded_copy(at, packet.payload[i].iov_base, packet.payload[i].iov_len)) {
            packet.unreadable = true;
            return false;
        }
        at += packet.payload[i].iov_len;
    }
    const size_t pad = pad_of(packet.payload_bytes);
    std::memset(at, 0, pad);
    at += pad;
    store_little(at, icrc_of(network, out, static_cast<size_t>(at - out)));
    return true;
}

bool sound(const Packet& packet) {
    return packet.header_bytes >= BTH_BYTES && packet.header_bytes <= sizeof packet.header &&
           network_packet_bytes(packet) <= MAX_IP_BYTES;
}

// `transport` begins with BTH and ends with the ICRC. The network's part of the packet is filled in already.
Refusal take_transport(const Network& network, const uint8_t* transport, size_t bytes, Decoded* decoded) {
    if (bytes < BTH_BYTES + ICRC_BYTES) return Refusal::header_length;
    Packet& packet = decoded->packet;
    const uint8_t opcode = static_cast<uint8_t>(GDA_GET(bth, transport, opcode));
    packet.header_bytes = transport_header_bytes(opcode);
    if (bytes < packet.header_bytes + ICRC_BYTES) return Refusal::header_length;
    const size_t padded = bytes - packet.header_bytes - ICRC_BYTES, pad = GDA_GET(bth, transport, pad_count);
    if (pad > padded || bytes % 4) return Refusal::pad;
    uint8_t stored[ICRC_BYTES];
    store_little(stored, icrc_of(network, transport, bytes - ICRC_BYTES));
    if (std::memcmp(stored, transport + bytes - ICRC_BYTES, ICRC_BYTES) != 0) return Refusal::icrc;

    std::memset(packet.header, 0, sizeof packet.header);
    std::memcpy(packet.header, transport, packet.header_bytes);
    packet.payload_bytes = padded - pad;
    decoded->piece = {const_cast<uint8_t*>(transport) + packet.header_bytes, packet.payload_bytes};
    packet.payload = &decoded->piece;
    packet.payload_count = packet.payload_bytes ? 1 : 0;
    packet.run_mtu = 0;
    return Refusal::none;
}

void map_ipv4(uint8_t gid[16], const uint8_t address[4]) {
    std::memset(gid, 0, 10);
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid + 12, address, 4);
}

// An IP packet or GRH packet: `type` is what the Ethernet header announced.
Refusal take_network(uint32_t type, const uint8_t* ip, size_t bytes, Decoded* decoded) {
    Network network;
    Packet& packet = decoded->packet;
    size_t whole, header;
    network.version1 = packet.version1 = type == ETHER_ROCE_V1;
    network.ipv4 = type == ETHER_IPV4;
    uint32_t protocol;
    if (network.ipv4) {
        if (bytes < IPV4_BYTES) return Refusal::too_short;
        if (GDA_GET(ipv4, ip, version) != 4) return Refusal::ip_version;
        if (GDA_GET(ipv4, ip, ihl) != IPV4_BYTES / 4) return Refusal::ip_options;
        whole = GDA_GET(ipv4, ip, total_length);
        header = IPV4_BYTES;
        if (whole < header || whole > bytes) return Refusal::ip_length;
        if (complement(internet_sum(ip, header)) != 0) return Refusal::ip_checksum;
        if (GDA_GET(ipv4, ip, mf) || GDA_GET(ipv4, ip, fragment_offset)) return Refusal::ip_fragment;
        protocol = static_cast<uint32_t>(GDA_GET(ipv4, ip, protocol));
        packet.traffic_class = static_cast<uint8_t>(GDA_GET(ipv4, ip, tos));
        packet.hop_limit = static_cast<uint8_t>(GDA_GET(ipv4, ip, ttl));
        map_ipv4(packet.source, ip + GDA_BYTE_OFFSET(ipv4, source));
        map_ipv4(packet.destination, ip + GDA_BYTE_OFFSET(ipv4, destination));
    } else {
        if (bytes < IPV6_BYTES) return Refusal::too_short;
        if (GDA_GET(grh, ip, ip_version) != 6) return Refusal::ip_version;
        header = IPV6_BYTES;
        whole = header + GDA_GET(grh, ip, payload_length);
        if (whole > bytes) return Refusal::ip_length;
        protocol = static_cast<uint32_t>(GDA_GET(grh, ip, next_header));
        packet.traffic_class = static_cast<uint8_t>(GDA_GET(grh, ip, tclass));
        packet.hop_limit = static_cast<uint8_t>(GDA_GET(grh, ip, hop_limit));
        std::memcpy(packet.source, ip + GDA_BYTE_OFFSET(grh, sgid), 16);
        std::memcpy(packet.destination, ip + GDA_BYTE_OFFSET(grh, dgid), 16);
    }
    if (protocol != (packet.version1 ? IP_IBA : IP_UDP)) return Refusal::protocol;
    if (!packet.version1) {
        const uint8_t* udp = ip + header;
        if (whole < header + UDP_BYTES) return Refusal::ip_length;
        if (GDA_GET(udp, udp, destination_port) != UDP_ROCE_V2) return Refusal::udp_port;
        const size_t udp_bytes = GDA_GET(udp, udp, length);
        if (udp_bytes != whole - header) return Refusal::udp_length;
        if (GDA_GET(udp, udp, checksum) != 0) {  // over a pseudo header of addresses, protocol and length too
            const size_t first = network.ipv4 ? GDA_BYTE_OFFSET(ipv4, source) : GDA_BYTE_OFFSET(grh, sgid);
            uint32_t sum = internet_sum(ip + first, header - first, IP_UDP + static_cast<uint32_t>(udp_bytes));
            if (complement(internet_sum(udp, udp_bytes, sum)) != 0) return Refusal::udp_checksum;
        }
        packet.flow_port = static_cast<uint16_t>(GDA_GET(udp, udp, source_port));
        header += UDP_BYTES;
    }
    network.count = header;
    std::memcpy(network.bytes, ip, header);
    return take_transport(network, ip + header, whole - header, decoded);
}

}  // namespace

uint32_t internet_sum(const void* data, size_t bytes, uint32_t before) {
    const uint8_t* p = static_cast<const uint8_t*>(data);
    uint64_t sum = before;
    for (size_t i = 0; i + 1 < bytes; i += 2) sum += p[i] * 256u + p[i + 1];
    if (bytes % 2) sum += p[bytes - 1] * 256u;
    return static_cast<uint32_t>((sum & 0xffffffffu) + (sum >> 32));
}

uint16_t complement(uint32_t sum) {
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
}

namespace {

struct Masked {
    uint8_t opcode;
    bth_transport transport;
    bth_opcode code;
};
constexpr Masked MASKED[] = {
    {OWN_MASKED_COMPARE_SWAP, BTH_RC, RC_COMPARE_SWAP},  {OWN_MASKED_FETCH_ADD, BTH_RC, RC_FETCH_ADD},
    {XRC_MASKED_COMPARE_SWAP, BTH_XRC, RC_COMPARE_SWAP}, {XRC_MASKED_FETCH_ADD, BTH_XRC, RC_FETCH_ADD},
    {DC_MASKED_COMPARE_SWAP, BTH_DC, RC_COMPARE_SWAP},   {DC_MASKED_FETCH_ADD, BTH_DC, RC_FETCH_ADD},
};

constexpr Meaning find_meaning(uint8_t opcode) {
    const uint32_t dword = GDA_FIELD(bth, opcode, opcode);
    Meaning o = {static_cast<uint8_t>(GDA_EXTRACT(bth_parts, transport, dword)),
                 static_cast<uint8_t>(GDA_EXTRACT(bth_parts, operation, dword)), false, 0};
    for (const Masked& masked : MASKED) {
        if (masked.opcode == opcode)
            o = {static_cast<uint8_t>(masked.transport), static_cast<uint8_t>(masked.code), true, 0};
    }
    const bool answer = o.code >= RC_RDMA_READ_RESPONSE_FIRST && o.code <= RC_ATOMIC_ACKNOWLEDGE;
    if (o.transport == BTH_UD) o.lead_bytes = GDA_BYTES_OF(deth);
    if (o.transport == BTH_DC) o.lead_bytes = GDA_BYTES_OF(dceth);
    if (o.transport == BTH_XRC && !answer) o.lead_bytes = GDA_BYTES_OF(xrceth);
    return o;
}

constexpr Meanings find_meanings() {
    Meanings all = {};
    for (int opcode = 0; opcode < 256; ++opcode) all.of[opcode] = find_meaning(static_cast<uint8_t>(opcode));
    return all;
}

}  // namespace

constexpr Meanings MEANINGS = find_meanings();

uint32_t transport_header_bytes(uint8_t opcode) {
    const Meaning operation = meaning_of(opcode);
    if (operation.transport == BTH_MANUFACTURER) return BTH_BYTES;
    uint32_t extra = operation.masked ? GDA_BYTES_OF(atomic_mask) : 0;
    switch (operation.code) {
        case RC_SEND_LAST_WITH_IMMEDIATE:
        case RC_SEND_ONLY_WITH_IMMEDIATE:
        case RC_RDMA_WRITE_LAST_WITH_IMMEDIATE:
            extra = GDA_BYTES_OF(immdt);
            break;
        case RC_SEND_LAST_WITH_INVALIDATE:
        case RC_SEND_ONLY_WITH_INVALIDATE:
            extra = GDA_BYTES_OF(ieth);
            break;
        case RC_RDMA_WRITE_FIRST:
        case RC_RDMA_WRITE_ONLY:
        case RC_RDMA_READ_REQUEST:
            extra = GDA_BYTES_OF(reth);
            break;
        case RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
            extra = GDA_BYTES_OF(reth) + GDA_BYTES_OF(immdt);
            break;
        case RC_RDMA_READ_RESPONSE_FIRST:
        case RC_RDMA_READ_RESPONSE_LAST:
        case RC_RDMA_READ_RESPONSE_ONLY:
        case RC_ACKNOWLEDGE:
            extra = GDA_BYTES_OF(aeth);
            break;
        case RC_ATOMIC_ACKNOWLEDGE:
            extra = GDA_BYTES_OF(aeth) + GDA_BYTES_OF(atomicacketh);
            break;
        case RC_COMPARE_SWAP:
        case RC_FETCH_ADD:
            extra += GDA_BYTES_OF(atomiceth);
            break;
        default:
            break;
    }
    return BTH_BYTES + operation.lead_bytes + extra;
}

const char* name_of(Refusal refusal) {
    switch (refusal) {
        case Refusal::none:
            return "none";
        case Refusal::too_short:
            return "shorter than its headers";
        case Refusal::ether_type:
            return "Ethernet type is neither IP nor RoCE v1";
        case Refusal::ip_version:
            return "IP version does not fit the Ethernet type";
        case Refusal::ip_options:
            return "IP options";
        case Refusal::ip_length:
            return "IP length";
        case Refusal::ip_fragment:
            return "IP fragment";
        case Refusal::ip_checksum:
            return "IP header checksum";
        case Refusal::protocol:
            return "IP protocol is not UDP, or in a GRH not BTH";
        case Refusal::udp_port:
            return "UDP port is not 4791";
        case Refusal::udp_length:
            return "UDP length";
        case Refusal::udp_checksum:
            return "UDP checksum";
        case Refusal::header_length:
            return "shorter than its transport headers";
        case Refusal::pad:
            return "pad";
        case Refusal::icrc:
            return "ICRC";
    }
    return "unknown";
}

bool encode_frame(const Packet& packet, const uint8_t destination_mac[6], const uint8_t source_mac[6], uint8_t* out) {
    if (!sound(packet)) return false;
    const Network network = network_of(packet, datagram_bytes(packet));
    uint8_t ethernet[GDA_BYTES_OF(ethernet)] = {};
    const size_t lead = GDA_BYTES_OF(ethernet) - ETHERNET_BYTES;  // not on the wire
    std::memcpy(ethernet + GDA_BYTE_OFFSET(ethernet, destination), destination_mac, 6);
    std::memcpy(ethernet + GDA_BYTE_OFFSET(ethernet, source), source_mac, 6);
    GDA_SET(ethernet, ethernet, type, network.version1 ? ETHER_ROCE_V1 : network.ipv4 ? ETHER_IPV4 : ETHER_IPV6);
    std::memcpy(out, ethernet + lead, ETHERNET_BYTES);
    std::memcpy(out + ETHERNET_BYTES, network.bytes, network.count);
    return put_transport(packet, network, out + ETHERNET_BYTES + network.count);
}

bool encode_datagram(const Packet& packet, uint8_t* out) {
    return sound(packet) && put_transport(packet, network_of(packet, datagram_bytes(packet)), out);
}

Refusal decode_frame(const uint8_t* frame, size_t bytes, Decoded* decoded) {
    if (bytes < ETHERNET_BYTES) return Refusal::too_short;
    uint8_t ethernet[GDA_BYTES_OF(ethernet)] = {};
    std::memcpy(ethernet + GDA_BYTES_OF(ethernet) - ETHERNET_BYTES, frame, ETHERNET_BYTES);
    const uint32_t type = static_cast<uint32_t>(GDA_GET(ethernet, ethernet, type));
    if (type != ETHER_IPV4 && type != ETHER_IPV6 && type != ETHER_ROCE_V1) return Refusal::ether_type;
    return take_network(type, frame + ETHERNET_BYTES, bytes - ETHERNET_BYTES, decoded);
}

Refusal decode_datagram(const uint8_t* datagram, size_t bytes, const uint8_t source_gid[16],
                        const uint8_t destination_gid[16], uint16_t source_port, Decoded* decoded) {
    Packet& packet = decoded->packet;
    std::memcpy(packet.source, source_gid, 16);
    std::memcpy(packet.destination, destination_gid, 16);
    packet.version1 = false;
    packet.flow_port = source_port;
    if (bytes + MAX_NETWORK_BYTES > MAX_IP_BYTES) return Refusal::ip_length;
    return take_transport(network_of(packet, bytes), datagram, bytes, decoded);
}

}  // namespace sim
