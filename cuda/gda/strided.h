// SPDX-License-Identifier: Apache-2.0
// What kernels call to move many pieces that lie at equal distances: a column of a matrix, every third row, a block of
// a larger one. Document: docs/programs.md, "Window". Refusals and tickets: put.h.
//
//   gda_ticket t = gda_put_strided(qp, dst, 0, 4096, src, 0, 64, rows, 64);   // 64 bytes to the head of each page
//
// A message per piece, of which only the last completes: one ticket for all. The forms for warps and blocks
// (collective.h) share the pieces among their lanes. Pieces that touch on both sides are one transfer.
#pragma once

#include <gda/put.h>

namespace gda {

struct strided_plan {
    transfer_plan first;  // of the first piece
    uint64_t remote_stride;
    uint64_t local_stride;
    uint64_t bytes;     // of a piece
    uint64_t messages;  // of a piece
};

GDA_DEVICE rdma_request message_of(const strided_plan& s, uint32_t opcode, uint64_t number) {
    uint64_t piece = number, at = 0;
    if (s.messages > 1) {
        piece = number / s.messages;
        at = (number - piece * s.messages) * s.first.most;
    }
    transfer_plan t = s.first;
    t.raddr += piece * s.remote_stride;
    t.addr += piece * s.local_stride;
    uint64_t left = s.bytes - at;
    return piece_of(t, opcode, at, left < t.most ? left : t.most);
}

// Whether all pieces lie in the region; nothing overflows, whatever the numbers are.
GDA_DEVICE bool all_within(const gda_mr& region, uint64_t offset, uint64_t stride, uint64_t count, uint64_t bytes) {
    if (!target::CHECKED) return true;
    if (!within(region, offset, bytes)) return false;
    if (count < 2 || stride == 0) return true;
    uint64_t room = region.bytes - offset - bytes;  // behind the first piece
    return count - 1 <= room / stride;
}

template <class Poster>
GDA_DEVICE gda_ticket transfer_strided(Poster& p, uint32_t opcode, const gda_mr& remote, uint64_t remote_offset,
                                       uint64_t remote_stride, const gda_mr& local, uint64_t local_offset,
                                       uint64_t local_stride, uint64_t count, uint64_t bytes, uint32_t flags) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    gda_status refused = 0;
    if (!all_within(remote, remote_offset, remote_stride, count, bytes) ||
        !all_within(local, local_offset, local_stride, count, bytes)) {
        refused = out_of_bounds(p.q);
    }
    if (count == 0 || bytes == 0) {  // as a put of nothing: one message without bytes
        count = 1;
        bytes = 0;
    } else if (remote_stride == bytes && local_stride == bytes) {
        bytes *= count;
        count = 1;
    }
    transfer_plan first = plan_of(p.q, remote, remote_offset, local, local_offset);
    uint64_t messages = bytes > first.most ? (bytes - 1) / first.most + 1 : 1;
    strided_plan s = {first, remote_stride, local_stride, bytes, messages};
    uint64_t last = count * messages - 1;
    for (uint64_t round = 0;; round += p.shares()) {
        uint64_t number = round + p.share();
        bool mine = refused == 0 && p.share() < p.shares() && number < last;
        if (!p.any(mine)) break;
        gda_ticket ticket = p.submit_each(message_of(s, opcode, number), manner_of(flags, false), mine);
        if (refused == 0 && gda_failed(ticket)) refused = ticket & ~GDA_TICKET_FAILED;
    }
    return p.submit(message_of(s, opcode, last), manner_of(flags, true), refused);
}

template <class Poster>
GDA_DEVICE gda_ticket put_strided(Poster& p, const gda_mr& dst, uint64_t dst_offset, uint64_t dst_stride,
                                  const gda_mr& src, uint64_t src_offset, uint64_t src_stride, uint64_t count,
                                  uint64_t bytes, uint32_t flags = 0) {
    return transfer_strided(p, prm::MLX5_OPCODE_RDMA_WRITE, dst, dst_offset, dst_stride, src, src_offset, src_stride,
                            count, bytes, flags);
}

template <class Poster>
GDA_DEVICE gda_ticket get_strided(Poster& p, const gda_mr& dst, uint64_t dst_offset, uint64_t dst_stride,
                                  const gda_mr& src, uint64_t src_offset, uint64_t src_stride, uint64_t count,
                                  uint64_t bytes, uint32_t flags = 0) {
    return transfer_strided(p, prm::MLX5_OPCODE_RDMA_READ, src, src_offset, src_stride, dst, dst_offset, dst_stride,
                            count, bytes, flags);
}

}  // namespace gda

// Writes `count` pieces of `bytes` bytes each: piece i from src + src_offset + i * src_stride to dst + dst_offset +
// i * dst_stride. A stride of zero is the same place again, for the source a row that goes to many.
GDA_API gda_ticket gda_put_strided(gda_qp* qp, gda_mr dst, uint64_t dst_offset, uint64_t dst_stride, gda_mr src,
                                   uint64_t src_offset, uint64_t src_stride, uint64_t count, uint64_t bytes,
                                   uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put_strided(p, dst, dst_offset, dst_stride, src, src_offset, src_stride, count, bytes, flags);
}

// Reads them from the other side's src to dst here, in the same way.
GDA_API gda_ticket gda_get_strided(gda_qp* qp, gda_mr dst, uint64_t dst_offset, uint64_t dst_stride, gda_mr src,
                                   uint64_t src_offset, uint64_t src_stride, uint64_t count, uint64_t bytes,
                                   uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::get_strided(p, dst, dst_offset, dst_stride, src, src_offset, src_stride, count, bytes, flags);
}
