// SPDX-License-Identifier: Apache-2.0
// One work request into its slot: 16-byte stores built from the declarations of formats/wqe.h. Called by submit.h,
// between reserve and publish; read by the NIC after the doorbell. Document: docs/one_put.md, step 4. A new operation
// is a struct and its store_request here, and the function that kernels call in put.h, atomic.h
// or message.h.
//
// Every request here fits one basic block, so a request is a slot. Keys are kept as the WQE carries them (big-endian),
// everything else in the processor's order.
#pragma once

#include <gda/formats/wqe.h>
#include <gda/ring.h>

namespace gda {

GDA_DEVICE uint8_t* slot_address(const queue_view& q, uint64_t index) {
    return q.sq + (index & (q.depth - 1)) * prm::WQE_BASIC_BLOCK_BYTES;
}

// ---- segments, 16 bytes each

// The first segment of every WQE. `segments` counts all of its 16-byte segments, this one too.
GDA_DEVICE void store_control(const queue_view& q, uint8_t* slot, uint64_t index, uint32_t opcode, uint32_t segments,
                              bool signaled, uint32_t immediate_be = 0) {
    uint32_t what =
        GDA_FIELD(wqe_ctrl_seg, wqe_index, static_cast<uint16_t>(index)) | GDA_FIELD(wqe_ctrl_seg, opcode, opcode);
    uint32_t whose = GDA_FIELD(wqe_ctrl_seg, qp_or_sq, q.qpn) | GDA_FIELD(wqe_ctrl_seg, ds, segments);
    uint32_t how = GDA_FIELD(wqe_ctrl_seg, ce, signaled ? prm::CE_ALWAYS : prm::CE_ON_ERROR);
    target::store_segment(slot, join(be32(whose), be32(what)), join(immediate_be, be32(how)));
}

GDA_DEVICE void store_remote_address(uint8_t* segment, uint64_t raddr, uint32_t rkey_be) {
    target::store_segment(segment, be64(raddr), rkey_be);
}

GDA_DEVICE void store_data(uint8_t* segment, uint64_t addr, uint32_t lkey_be, uint32_t bytes) {
    target::store_segment(segment, join(lkey_be, be32(GDA_FIELD(wqe_data_seg, byte_count, bytes))), be64(addr));
}

GDA_DEVICE uint8_t* segment_of(uint8_t* slot, uint32_t number) { return slot + number * prm::WQE_SEGMENT_BYTES; }

// ---- requests

// RDMA write, write with immediate and read: remote memory and one piece of local memory. Without bytes it has no data
// segment: a byte_count of zero would mean 2^31.
struct rdma_request {
    uint32_t opcode;
    uint32_t immediate_be;
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    uint32_t bytes;
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const rdma_request& r, bool signaled) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    if (r.bytes != 0) store_data(segment_of(slot, 2), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, r.opcode, r.bytes != 0 ? 3 : 2, signaled, r.immediate_be);
}

// An RDMA write whose bytes lie in the work request itself: behind the inline segment's dword, in memory order.
static constexpr uint32_t MOST_INLINE_BYTES = 28;

struct inline_write {
    uint64_t raddr;
    uint32_t rkey_be;
    uint32_t bytes;  // 1 to MOST_INLINE_BYTES
    uint32_t words[MOST_INLINE_BYTES / 4];
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const inline_write& r, bool signaled) {
    static_assert(2 * prm::WQE_SEGMENT_BYTES + 4 + MOST_INLINE_BYTES == prm::WQE_BASIC_BLOCK_BYTES, "fills the block");
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    uint32_t head = GDA_FIELD(wqe_inline_seg, is_inline, 1u) |
                    GDA_FIELD(wqe_inline_seg, byte_count, static_cast<uint32_t>(r.bytes));
    bool two = r.bytes > prm::WQE_SEGMENT_BYTES - 4;
    target::store_segment(segment_of(slot, 2), join(r.words[0], be32(head)), join(r.words[2], r.words[1]));
    if (two) target::store_segment(segment_of(slot, 3), join(r.words[4], r.words[3]), join(r.words[6], r.words[5]));
    store_control(q, slot, index, prm::MLX5_OPCODE_RDMA_WRITE, two ? 4 : 3, signaled);
}

// Fetch-and-add or compare-and-swap on eight remote bytes; the old value lands in eight local ones.
struct atomic_request {
    uint32_t opcode;
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    uint64_t swap_add;  // what to add, or the new value
    uint64_t compare;   // of compare-and-swap
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const atomic_request& r, bool signaled) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    target::store_segment(segment_of(slot, 2), be64(r.swap_add), be64(r.compare));
    store_data(segment_of(slot, 3), r.addr, r.lkey_be, sizeof(uint64_t));
    store_control(q, slot, index, r.opcode, 4, signaled);
}

// Send, with or without immediate: the other side's next posted receive says where the bytes go.
struct send_request {
    uint32_t opcode;
    uint32_t immediate_be;
    uint64_t addr;
    uint32_t lkey_be;
    uint32_t bytes;
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const send_request& r, bool signaled) {
    uint8_t* slot = slot_address(q, index);
    if (r.bytes != 0) store_data(segment_of(slot, 1), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, r.opcode, r.bytes != 0 ? 2 : 1, signaled, r.immediate_be);
}

// Nothing but a completion.
struct nop_request {};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const nop_request&, bool signaled) {
    store_control(q, slot_address(q, index), index, prm::MLX5_OPCODE_NOP, 1, signaled);
}

}  // namespace gda
