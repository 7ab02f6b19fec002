// SPDX-License-Identifier: Apache-2.0
// RoCE transport headers, as the software NIC puts them on its links, and the network headers around them.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer" (BTH, RETH, AETH, ImmDt, AtomicETH,
// AtomicAckETH, DETH), annexes A16 (RoCE) and A17 (RoCE v2); IEEE 802.3; RFC 768 (UDP), 791 (IPv4), 826 (ARP), 4861
// (neighbour discovery), 8200 (IPv6).
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum bth_opcode {
    RC_SEND_FIRST = 0x00,
    RC_SEND_MIDDLE = 0x01,
    RC_SEND_LAST = 0x02,
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03,
    RC_SEND_ONLY = 0x04,
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05,
    RC_RDMA_WRITE_FIRST = 0x06,
    RC_RDMA_WRITE_MIDDLE = 0x07,
    RC_RDMA_WRITE_LAST = 0x08,
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09,
    RC_RDMA_WRITE_ONLY = 0x0a,
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b,
    RC_RDMA_READ_REQUEST = 0x0c,
    RC_RDMA_READ_RESPONSE_FIRST = 0x0d,
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e,
    RC_RDMA_READ_RESPONSE_LAST = 0x0f,
    RC_RDMA_READ_RESPONSE_ONLY = 0x10,
    RC_ACKNOWLEDGE = 0x11,
    RC_ATOMIC_ACKNOWLEDGE = 0x12,
    RC_COMPARE_SWAP = 0x13,
    RC_FETCH_ADD = 0x14,
    RC_SEND_LAST_WITH_INVALIDATE = 0x16,
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17,
    UC_SEND_FIRST = 0x20,
    UC_SEND_MIDDLE = 0x21,
    UC_SEND_LAST = 0x22,
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23,
    UC_SEND_ONLY = 0x24,
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25,
    UC_RDMA_WRITE_FIRST = 0x26,
    UC_RDMA_WRITE_MIDDLE = 0x27,
    UC_RDMA_WRITE_LAST = 0x28,
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29,
    UC_RDMA_WRITE_ONLY = 0x2a,
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2b,
    UD_SEND_ONLY = 0x64,
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65,
};

// The three high bits of a BTH opcode. Opcodes from 0xc0 on are for manufacturers. Of the first half two carry masked
// atomics here, for which the specification has none, and the two after them the same over XRC. The second half is the
// dynamically connected transport, whose packets nobody has published: RC's operations, each with a DCETH behind BTH;
// the numbers of the operations that RC lacks are those of masked atomics.
enum bth_transport {
    BTH_RC = 0x0,
    BTH_UC = 0x1,
    BTH_UD = 0x3,
    BTH_XRC = 0x5,
    BTH_MANUFACTURER = 0x6,
    BTH_DC = 0x7,
};
enum bth_manufacturer_opcode {
    OWN_MASKED_COMPARE_SWAP = 0xd3,
    OWN_MASKED_FETCH_ADD = 0xd4,
    XRC_MASKED_COMPARE_SWAP = 0xd8,
    XRC_MASKED_FETCH_ADD = 0xd9,
    DC_MASKED_COMPARE_SWAP = 0xf8,
    DC_MASKED_FETCH_ADD = 0xf9,
};

struct bth_bits {
    u8 opcode[0x8];  // enum bth_opcode
    u8 se[0x1];
    u8 mig_req[0x1];
    u8 pad_count[0x2];
    u8 tver[0x4];
    u8 pkey[0x10];
    u8 reserved_at_20[0x8];
    u8 dest_qp[0x18];
    u8 ack_req[0x1];
    u8 reserved_at_41[0x7];
    u8 psn[0x18];
};

// The same, with the opcode in its two parts.
struct bth_parts_bits {
    u8 transport[0x3];  // enum bth_transport
    u8 operation[0x5];  // enum bth_opcode of RC: the same in all transports
    u8 reserved_at_8[0x58];
};

struct reth_bits {
    u8 va[0x40];
    u8 rkey[0x20];
    u8 dma_length[0x20];
};

struct atomiceth_bits {
    u8 va[0x40];
    u8 rkey[0x20];
    u8 swap_add[0x40];
    u8 compare[0x40];
};

// Ours: follows the AtomicETH of a masked atomic. For fetch-add swap_mask is the field boundary.
struct atomic_mask_bits {
    u8 swap_mask[0x40];
    u8 compare_mask[0x40];
    u8 bytes[0x20];  // 4 or 8
};

struct atomicacketh_bits {
    u8 original[0x40];
};

struct deth_bits {
    u8 qkey[0x20];
    u8 reserved_at_20[0x8];
    u8 src_qp[0x18];
};

// Follows BTH in every request over XRC: the shared receive queue that it is for.
struct xrceth_bits {
    u8 reserved_at_0[0x8];
    u8 xrcsrq[0x18];
};

// Ours: follows BTH in every packet of the dynamically connected transport, answers included. A connection ends when
// its initiator begins another one; a later one has a greater number.
struct dceth_bits {
    u8 access_key[0x40];  // of the target; 0 in answers
    u8 connection[0x40];
    u8 reserved_at_80[0x8];
    u8 src_qp[0x18];  // who sent it
};

// What precedes the payload of a received datagram: an IPv6 header, or 20 bytes of nothing and an IPv4 header.
struct grh_bits {
    u8 ip_version[0x4];
    u8 tclass[0x8];
    u8 flow_label[0x14];
    u8 payload_length[0x10];
    u8 next_header[0x8];
    u8 hop_limit[0x8];
    u8 sgid[0x10][0x8];
    u8 dgid[0x10][0x8];
};
struct grh_ipv4_bits {
    u8 reserved_at_0[0xa0];
    u8 version[0x4];
    u8 ihl[0x4];
    u8 tos[0x8];
    u8 total_length[0x10];
    u8 identification[0x10];
    u8 flags_fragment[0x10];
    u8 ttl[0x8];
    u8 protocol[0x8];
    u8 checksum[0x10];
    u8 source[0x20];
    u8 destination[0x20];
};

// An Ethernet header behind two bytes that are not part of it: whole dwords, and IP behind them is aligned.
enum ether_type {
    ETHER_IPV4 = 0x0800,
    ETHER_ARP = 0x0806,
    ETHER_IPV6 = 0x86dd,
    ETHER_ROCE_V1 = 0x8915,  // a GRH follows
};
struct ethernet_bits {
    u8 reserved_at_0[0x10];
    u8 destination[0x6][0x8];
    u8 source[0x6][0x8];
    u8 type[0x10];  // enum ether_type
};

enum ip_protocol {
    IP_UDP = 0x11,
    IP_IBA = 0x1b,  // in a GRH: BTH follows
    IP_ICMPV6 = 0x3a,
};
struct ipv4_bits {
    u8 version[0x4];
    u8 ihl[0x4];  // in dwords: 5 without options
    u8 tos[0x8];
    u8 total_length[0x10];
    u8 identification[0x10];
    u8 reserved_at_30[0x1];
    u8 df[0x1];
    u8 mf[0x1];
    u8 fragment_offset[0xd];
    u8 ttl[0x8];
    u8 protocol[0x8];  // enum ip_protocol
    u8 checksum[0x10];
    u8 source[0x4][0x8];
    u8 destination[0x4][0x8];
};

enum udp_port {
    UDP_ROCE_V2 = 4791,
};
struct udp_bits {
    u8 source_port[0x10];
    u8 destination_port[0x10];  // enum udp_port
    u8 length[0x10];
    u8 checksum[0x10];  // 0: none
};

enum arp_operation {
    ARP_REQUEST = 0x1,
    ARP_REPLY = 0x2,
};
struct arp_bits {
    u8 hardware_type[0x10];  // 1: Ethernet
    u8 protocol_type[0x10];  // enum ether_type
    u8 hardware_bytes[0x8];
    u8 protocol_bytes[0x8];
    u8 operation[0x10];  // enum arp_operation
    u8 sender_hardware[0x6][0x8];
    u8 sender_protocol[0x4][0x8];
    u8 target_hardware[0x6][0x8];
    u8 target_protocol[0x4][0x8];
};

// A neighbour solicitation or advertisement with one option that holds a MAC.
enum icmpv6_type {
    ICMPV6_NEIGHBOUR_SOLICITATION = 135,
    ICMPV6_NEIGHBOUR_ADVERTISEMENT = 136,
};
struct neighbour_bits {
    u8 type[0x8];  // enum icmpv6_type
    u8 code[0x8];
    u8 checksum[0x10];
    u8 router[0x1];
    u8 solicited[0x1];
    u8 overriding[0x1];
    u8 reserved_at_23[0x1d];
    u8 target[0x10][0x8];
    u8 option_type[0x8];   // 1: MAC of the sender, 2: of the target
    u8 option_units[0x8];  // of 8 bytes
    u8 option_mac[0x6][0x8];
};

struct immdt_bits {
    u8 imm[0x20];
};

// The key that ends with a send.
struct ieth_bits {
    u8 rkey[0x20];
};

// The two high bits of the syndrome tell the kind; the rest is a credit count, a timer or a NAK code.
enum aeth_syndrome {
    AETH_ACK = 0x1f,  // no credit limit
    AETH_RNR_NAK = 0x20,
    AETH_NAK_PSN_SEQUENCE = 0x60,
    AETH_NAK_INVALID_REQUEST = 0x61,
    AETH_NAK_REMOTE_ACCESS = 0x62,
    AETH_NAK_REMOTE_OPERATIONAL = 0x63,
    AETH_NAK_INVALID_RD_REQUEST = 0x64,
};

struct aeth_bits {
    u8 syndrome[0x8];  // enum aeth_syndrome
    u8 msn[0x18];
};

// The same, with the syndrome in its parts.
enum aeth_kind {
    AETH_KIND_ACK = 0x0,      // value: credits, 0x1f: not limited
    AETH_KIND_RNR_NAK = 0x1,  // value: how long to wait, by the specification's table
    AETH_KIND_NAK = 0x3,      // value: why
};
struct aeth_parts_bits {
    u8 reserved_at_0[0x1];
    u8 kind[0x2];  // enum aeth_kind
    u8 value[0x5];
    u8 msn[0x18];
};

}  // namespace prm
}  // namespace gda
