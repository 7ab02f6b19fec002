// SPDX-License-Identifier: Apache-2.0
// Packets as they lie on a wire: Ethernet, IP and UDP (RoCE v1: Ethernet and GRH), the transport headers, payload, pad
// and ICRC. Called by the port for sizes, by faults and the capture, and by the carriers that leave this host.
// Decoding takes any bytes: what comes from a network is nobody's promise.
// Source: InfiniBand Architecture Specification, annexes A16 (RoCE) and A17 (RoCE v2); formats/packet.h.
#pragma once

#include <cstring>

#include "sim/link/link.h"

namespace sim {

enum : uint32_t { ICRC_BYTES = 4, IPV4_BYTES = 20, IPV6_BYTES = 40, UDP_BYTES = 8, ETHERNET_BYTES = 14 };
enum : size_t { MAX_NETWORK_BYTES = IPV6_BYTES + UDP_BYTES, MAX_IP_BYTES = 65535 };

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
inline size_t frame_bytes(const Packet& packet) { return ETHERNET_BYTES + network_packet_bytes(packet); }
// What a UDP socket is given for a RoCE v2 packet.
inline size_t datagram_bytes(const Packet& packet) { return network_packet_bytes(packet) - network_bytes(packet); }

// Write a packet (no run) to `out`, which has frame_bytes() or datagram_bytes(). IPv4 gets ID 0 and "do not fragment",
// which is what Linux gives datagrams of a socket that discovers its path MTU. False: the packet is longer than IP
// allows, or its payload cannot be read (then it is marked unreadable).
bool encode_frame(const Packet& packet, const uint8_t destination_mac[6], const uint8_t source_mac[6], uint8_t* out);
bool encode_datagram(const Packet& packet, uint8_t* out);

// Why bytes are no packet.
enum class Refusal {
    none,
    too_short,      // less than the headers announce
    ether_type,     // neither IP nor RoCE v1
    ip_version,     // does not fit the Ethernet type
    ip_options,     // or extension headers: no RoCE packet has them
    ip_length,      // less than its headers, or more than there is
    ip_fragment,    // RoCE packets are not fragmented
    ip_checksum,    //
    protocol,       // not UDP; in a GRH: not BTH
    udp_port,       // not 4791
    udp_length,     // not what IP says
    udp_checksum,   // neither 0 nor right
    header_length,  // less than the opcode's headers and the ICRC
    pad,            // more pad than payload, or not whole dwords
    icrc,           //
};
const char* name_of(Refusal refusal);

// A packet and the payload it points to, which lies in the bytes that were decoded.
struct Decoded {
    Packet packet;
    iovec piece;
};
Refusal decode_frame(const uint8_t* frame, size_t bytes, Decoded* decoded);
// What a UDP socket received on port 4791 of `destination`; assumes the ID and flags that encode_datagram() does.
Refusal decode_datagram(const uint8_t* datagram, size_t bytes, const uint8_t source_gid[16],
                        const uint8_t destination_gid[16], uint16_t source_port, Decoded* decoded);

// What a BTH opcode means: masked atomics, which have opcodes of their own, are told as the atomics that they are.
struct Meaning {
    uint8_t transport;  // enum bth_transport
    uint8_t code;       // as RC numbers it
    bool masked;
    uint8_t lead_bytes;  // of what stands between BTH and the operation's headers: DCETH, XRCETH, DETH
};
struct Meanings {
    Meaning of[256];
};
extern const Meanings MEANINGS;
inline Meaning meaning_of(uint8_t opcode) { return MEANINGS.of[opcode]; }  // several times for each packet
// BTH and the headers that its opcode brings, up to the payload. An opcode that nobody defined has BTH alone.
uint32_t transport_header_bytes(uint8_t opcode);

// The checksum of IP, UDP and ICMP over bytes, added to what was summed before; complement() makes the field of it.
uint32_t internet_sum(const void* data, size_t bytes, uint32_t before = 0);
uint16_t complement(uint32_t sum);

}  // namespace sim
