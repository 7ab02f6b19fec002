// SPDX-License-Identifier: Apache-2.0
// One work request into its slot: 16-byte stores built from the declarations of formats/wqe.h. Called by put.h, between
// reserve and publish; read by the NIC after the doorbell. Document: docs/one_put.md, step 5.
#pragma once

#include <gda/formats/wqe.h>
#include <gda/ring.h>

namespace gda {

GDA_DEVICE uint8_t* slot_address(const queue_view& q, uint64_t index) {
    return q.sq + (index & (q.depth - 1)) * prm::WQE_BASIC_BLOCK_BYTES;
}

// The first segment of every WQE. `segments` counts all of its 16-byte segments, this one too.
GDA_DEVICE void store_control(const queue_view& q, uint8_t* slot, uint64_t index, uint32_t opcode, uint32_t segments,
                              bool signaled) {
    uint32_t what =
        GDA_FIELD(wqe_ctrl_seg, wqe_index, static_cast<uint16_t>(index)) | GDA_FIELD(wqe_ctrl_seg, opcode, opcode);
    uint32_t whose = GDA_FIELD(wqe_ctrl_seg, qp_or_sq, q.qpn) | GDA_FIELD(wqe_ctrl_seg, ds, segments);
    uint32_t how = GDA_FIELD(wqe_ctrl_seg, ce, signaled ? prm::CE_ALWAYS : prm::CE_ON_ERROR);
    target::store_segment(slot, join(be32(whose), be32(what)), join(0, be32(how)));
}

GDA_DEVICE void store_remote_address(uint8_t* segment, uint64_t raddr, uint32_t rkey_be) {
    target::store_segment(segment, be64(raddr), rkey_be);
}

GDA_DEVICE void store_data(uint8_t* segment, uint64_t addr, uint32_t lkey_be, uint32_t bytes) {
    target::store_segment(segment, join(lkey_be, be32(GDA_FIELD(wqe_data_seg, byte_count, bytes))), be64(addr));
}

// An RDMA write of one message. Without bytes it has no data segment: a byte_count of zero would mean 2^31.
GDA_DEVICE void store_rdma_write(const queue_view& q, uint64_t index, uint64_t raddr, uint32_t rkey_be, uint64_t addr,
                                 uint32_t lkey_be, uint32_t bytes, bool signaled) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(slot + prm::WQE_SEGMENT_BYTES, raddr, rkey_be);
    if (bytes != 0) store_data(slot + 2 * prm::WQE_SEGMENT_BYTES, addr, lkey_be, bytes);
    store_control(q, slot, index, prm::MLX5_OPCODE_RDMA_WRITE, bytes != 0 ? 3 : 2, signaled);
}

}  // namespace gda
