// SPDX-License-Identifier: Apache-2.0
// Datagrams: messages over a queue pair of transport UD, each with its own receiver. Called by kernels. Refusals and
// tickets: put.h; receiving: message.h. Source: ConnectX Programmer's Reference Manual, "Datagram Segment".
//
//   gda_send_to(qp, peer, src, 0, bytes);     // peer: a gda_address, QueuePair.peer(other.info)
//
// A datagram is at most one packet (the port's MTU) and at least one byte. It may be lost without an error. It arrives
// behind 40 bytes of network header, for which a receive must have room, and which its length counts.
#pragma once

#include <gda/message.h>

namespace gda {

template <class Poster>
GDA_DEVICE gda_ticket datagram(Poster& p, uint32_t opcode, const gda_address& to, const gda_mr& src, uint64_t offset,
                               uint64_t bytes, uint32_t immediate, uint32_t flags) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    bool fits = bytes != 0 && within(src, offset, bytes) && bytes <= largest_message(p.q);
    datagram_request r;
    r.opcode = opcode;
    r.immediate_be = be32(immediate);
    r.addr = src.addr + offset;
    r.lkey_be = src.lkey_be;
    r.bytes = static_cast<uint32_t>(bytes);
    r.to = to;
    return p.submit(r, manner_of(flags, true), fits ? 0 : out_of_bounds(p.q));
}

template <class Poster>
GDA_DEVICE gda_ticket send_to(Poster& p, const gda_address& to, const gda_mr& src, uint64_t offset, uint64_t bytes,
                              uint32_t flags = 0) {
    return datagram(p, prm::MLX5_OPCODE_SEND, to, src, offset, bytes, 0, flags);
}

template <class Poster>
GDA_DEVICE gda_ticket send_imm_to(Poster& p, const gda_address& to, const gda_mr& src, uint64_t offset, uint64_t bytes,
                                  uint32_t immediate, uint32_t flags = 0) {
    return datagram(p, prm::MLX5_OPCODE_SEND_IMM, to, src, offset, bytes, immediate, flags);
}

}  // namespace gda

// Sends `bytes` bytes from src + src_offset to `to`, as one datagram.
GDA_API gda_ticket gda_send_to(gda_qp* qp, gda_address to, gda_mr src, uint64_t src_offset, uint64_t bytes,
                               uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::send_to(p, to, src, src_offset, bytes, flags);
}

// The same with four bytes for the receiver's completion.
GDA_API gda_ticket gda_send_imm_to(gda_qp* qp, gda_address to, gda_mr src, uint64_t src_offset, uint64_t bytes,
                                   uint32_t immediate, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::send_imm_to(p, to, src, src_offset, bytes, immediate, flags);
}
