// SPDX-License-Identifier: Apache-2.0
// What kernels call to move bytes: put, put with immediate, put of a value, get, and the request that moves nothing.
// Document: docs/one_put.md. Completions: wait.h; atomics: atomic.h; send and receive: message.h.
//
//   gda_ticket t = gda_put(qp, dst, 0, src, 0, bytes);      // posts and returns; may wait for a free slot
//   gda_status s = gda_wait(qp, t, GDA_MS(100));            // 0, an error, or GDA_TIMEOUT: see gda_code(s)
//
// These are in thread scope; collective.h has the forms for warps and blocks, owner.h those for a queue's owner.
// All of them, and those of atomic.h, signal.h and message.h, are refused in the same way, with gda_failed(ticket): at
// once when a region is too small, the handle is wrong, the queue has failed or is not connected; after the queue's
// deadline when no slot becomes free. gda_wait and gda_test turn such a ticket into its status.
#pragma once

#include <gda/scope.h>

namespace gda {

// What moves between remote and local memory, as messages of at most the queue's largest. Made once it is checked.
struct transfer_plan {
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    uint64_t most;  // bytes of a message
};

GDA_DEVICE transfer_plan plan_of(const queue_view& q, const gda_mr& remote, uint64_t remote_offset, const gda_mr& local,
                                 uint64_t local_offset) {
    transfer_plan p;
    p.raddr = remote.addr + remote_offset;
    p.addr = local.addr + local_offset;
    p.rkey_be = remote.rkey_be;
    p.lkey_be = local.lkey_be;
    p.most = largest_message(q);
    return p;
}

GDA_DEVICE rdma_request piece_of(const transfer_plan& p, uint32_t opcode, uint64_t offset, uint64_t bytes) {
    rdma_request r;
    r.opcode = opcode;
    r.immediate_be = 0;
    r.raddr = p.raddr + offset;
    r.rkey_be = p.rkey_be;
    r.addr = p.addr + offset;
    r.lkey_be = p.lkey_be;
    r.bytes = static_cast<uint32_t>(bytes);
    return r;
}

// Posts all messages of a transfer of several but the last, and answers that one's offset. `*refused` becomes why not.
// An owner's lanes come here together, also those whose own transfer is a single message.
template <class Poster>
GDA_DEVICE uint64_t post_first_pieces(Poster& p, const transfer_plan& t, uint32_t opcode, uint64_t bytes,
                                      uint32_t flags, gda_status* refused) {
    uint64_t round = 0;
    for (;;) {
        uint64_t at = round + p.share() * t.most;
        bool mine = *refused == 0 && p.share() < p.shares() && at < bytes && bytes - at > t.most;
        if (!p.any(mine)) break;
        gda_ticket ticket = p.submit_each(piece_of(t, opcode, at, t.most), manner_of(flags, false), mine);
        if (*refused == 0 && gda_failed(ticket)) *refused = ticket & ~GDA_TICKET_FAILED;
        round += p.shares() * t.most;
    }
    return bytes > t.most ? (bytes - 1) / t.most * t.most : 0;
}

// `last_opcode` and the immediate are the last message's.
template <class Poster>
GDA_DEVICE gda_ticket transfer(Poster& p, uint32_t opcode, uint32_t last_opcode, uint32_t immediate,
                               const gda_mr& remote, uint64_t remote_offset, const gda_mr& local, uint64_t local_offset,
                               uint64_t bytes, uint32_t flags) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    gda_status refused = 0;
    if (!within(remote, remote_offset, bytes) || !within(local, local_offset, bytes)) refused = out_of_bounds(p.q);
    transfer_plan t = plan_of(p.q, remote, remote_offset, local, local_offset);
    uint64_t last = 0;
    if (__builtin_expect(p.any(bytes > t.most), 0)) last = post_first_pieces(p, t, opcode, bytes, flags, &refused);
    rdma_request r = piece_of(t, last_opcode, last, bytes - last);
    r.immediate_be = be32(immediate);
    return p.submit(r, manner_of(flags, true), refused);
}

template <class Poster>
GDA_DEVICE gda_ticket put(Poster& p, const gda_mr& dst, uint64_t dst_offset, const gda_mr& src, uint64_t src_offset,
                          uint64_t bytes, uint32_t flags = 0) {
    constexpr uint32_t WRITE = prm::MLX5_OPCODE_RDMA_WRITE;
    return transfer(p, WRITE, WRITE, 0, dst, dst_offset, src, src_offset, bytes, flags);
}

template <class Poster>
GDA_DEVICE gda_ticket put_imm(Poster& p, const gda_mr& dst, uint64_t dst_offset, const gda_mr& src, uint64_t src_offset,
                              uint64_t bytes, uint32_t immediate, uint32_t flags = 0) {
    return transfer(p, prm::MLX5_OPCODE_RDMA_WRITE, prm::MLX5_OPCODE_RDMA_WRITE_IMM, immediate, dst, dst_offset, src,
                    src_offset, bytes, flags);
}

template <class Poster>
GDA_DEVICE gda_ticket get(Poster& p, const gda_mr& dst, uint64_t dst_offset, const gda_mr& src, uint64_t src_offset,
                          uint64_t bytes, uint32_t flags = 0) {
    constexpr uint32_t READ = prm::MLX5_OPCODE_RDMA_READ;
    return transfer(p, READ, READ, 0, src, src_offset, dst, dst_offset, bytes, flags);
}

// `bytes` is 1 to MOST_INLINE_BYTES.
GDA_DEVICE inline_write inline_of(const gda_mr& dst, uint64_t dst_offset, const void* data, uint32_t bytes) {
    inline_write r;
    r.raddr = dst.addr + dst_offset;
    r.rkey_be = dst.rkey_be;
    r.bytes = bytes;
    const uint8_t* from = static_cast<const uint8_t*>(data);
    for (uint32_t word = 0; word < MOST_INLINE_BYTES / 4; ++word) {
        r.words[word] = 0;
        for (uint32_t i = 0; i < 4; ++i) {
            uint32_t at = 4 * word + i;
            if (at < bytes) r.words[word] |= static_cast<uint32_t>(from[at]) << 8 * i;
        }
    }
    return r;
}

template <class Poster>
GDA_DEVICE gda_ticket put_inline(Poster& p, const gda_mr& dst, uint64_t dst_offset, const void* data, uint32_t bytes,
                                 uint32_t flags = 0) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    bool fits = bytes != 0 && bytes <= MOST_INLINE_BYTES && within(dst, dst_offset, bytes);
    return p.submit(inline_of(dst, dst_offset, data, fits ? bytes : 0), manner_of(flags, true),
                    fits ? 0 : out_of_bounds(p.q));
}

template <class Poster, class T>
GDA_DEVICE gda_ticket put_value(Poster& p, const gda_mr& dst, uint64_t dst_offset, const T& value, uint32_t flags = 0) {
    static_assert(sizeof(T) <= MOST_INLINE_BYTES, "a value of at most 28 bytes fits a work request");
    return put_inline(p, dst, dst_offset, &value, sizeof(T), flags);
}

template <class Poster>
GDA_DEVICE gda_ticket nop(Poster& p, uint32_t flags = 0) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    return p.submit(nop_request(), manner_of(flags, true), 0);
}

}  // namespace gda

// Writes `bytes` bytes from src + src_offset to dst + dst_offset. The source may be changed again when the ticket is
// complete. Longer than the queue's max_message_bytes: several messages, one ticket.
GDA_API gda_ticket gda_put(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset, uint64_t bytes,
                           uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put(p, dst, dst_offset, src, src_offset, bytes, flags);
}

// A put that also tells the other side: it uses up one of the receives posted there and completes it, with this
// number, after all bytes have arrived. No byte goes to the receive's own memory.
GDA_API gda_ticket gda_put_imm(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                               uint64_t bytes, uint32_t immediate, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put_imm(p, dst, dst_offset, src, src_offset, bytes, immediate, flags);
}

// Reads `bytes` bytes from the other side's src + src_offset to dst + dst_offset here; they are there when the ticket
// is complete. Requests posted later do not wait for it: wait before sending on what it fetches, or post with
// GDA_FENCE.
GDA_API gda_ticket gda_get(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset, uint64_t bytes,
                           uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::get(p, dst, dst_offset, src, src_offset, bytes, flags);
}

// Writes 1 to 28 bytes from `data`, which is read before the call returns and need not be registered: the work request
// carries them, and the NIC fetches nothing else.
GDA_API gda_ticket gda_put_inline(gda_qp* qp, gda_mr dst, uint64_t dst_offset, const void* data, uint32_t bytes,
                                  uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put_inline(p, dst, dst_offset, data, bytes, flags);
}

// The same for one value of a plain type of at most 28 bytes: gda_put_value(qp, dst, 0, uint64_t(1)).
template <class T>
GDA_API gda_ticket gda_put_value(gda_qp* qp, gda_mr dst, uint64_t dst_offset, const T& value, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put_value(p, dst, dst_offset, value, flags);
}

// Moves nothing; its ticket is complete when all earlier requests of the queue are.
GDA_API gda_ticket gda_nop(gda_qp* qp, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::nop(p, flags);
}
