// SPDX-License-Identifier: Apache-2.0
// One work request into its slot: 16-byte stores built from the declarations of formats/wqe.h. Called by submit.h,
// between reserve and publish; read by the NIC after the doorbell. Document: docs/one_put.md, step 4. How to add one:
// docs/adding_an_operation.md.
//
// A request is one basic block unless its `extent` says otherwise. Keys are kept as the WQE carries them (big-endian),
// everything else in the processor's order.
#pragma once

#include <gda/formats/wqe.h>
#include <gda/ring.h>

namespace gda {

GDA_DEVICE uint8_t* slot_address(const queue_view& q, uint64_t index) {
    uint32_t slot = static_cast<uint32_t>(index) & static_cast<uint32_t>(q.depth - 1);
    return q.sq + static_cast<uint64_t>(slot) * prm::WQE_BASIC_BLOCK_BYTES;
}

// The basic blocks that a request takes, in one piece, and where among them its last WQE begins: that one's completion
// is the request's.
template <class Request>
struct extent {
    static constexpr uint64_t BLOCKS = 1;
    static constexpr uint64_t LAST = 0;
};

// What the control segment says beside what is to be done.
struct conduct {
    bool signaled;  // writes a completion
    bool fenced;    // waits for the reads and atomics before it
    // For a trace.
    uint32_t unnoted;  // blocks whose reservation it learns of from this request, see reserve()
    uint32_t bytes;    // of payload
    GDA_MEMBER conduct(bool signal, bool fence = false, uint32_t reserved = 0, uint32_t payload = 0)
        : signaled(signal), fenced(fence), unnoted(reserved), bytes(payload) {}
    GDA_MEMBER conduct of(uint32_t payload) const { return conduct(signaled, fenced, unnoted, payload); }
};

// ---- segments, 16 bytes each

// The first segment of every WQE. `segments` counts all of its 16-byte segments, this one too.
GDA_DEVICE void store_control(const queue_view& q, uint8_t* slot, uint64_t index, uint32_t opcode, uint32_t segments,
                              conduct c, uint32_t immediate_be = 0, uint32_t opmod = 0) {
    target::meter(GDA_METER_REQUESTS);
    uint32_t what = GDA_FIELD(wqe_ctrl_seg, wqe_index, static_cast<uint16_t>(index)) |
                    GDA_FIELD(wqe_ctrl_seg, opcode, opcode) | GDA_FIELD(wqe_ctrl_seg, opmod, opmod);
    uint32_t whose = GDA_FIELD(wqe_ctrl_seg, qp_or_sq, q.qpn) | GDA_FIELD(wqe_ctrl_seg, ds, segments);
    uint32_t fence = c.fenced ? prm::MLX5_FENCE_MODE_SMALL_AND_FENCE : prm::MLX5_FENCE_MODE_NONE;
    uint32_t how = GDA_FIELD(wqe_ctrl_seg, ce, c.signaled ? prm::CE_ALWAYS : prm::CE_ON_ERROR) |
                   GDA_FIELD(wqe_ctrl_seg, fm, fence);
    target::store_segment(slot, join(be32(whose), be32(what)), join(immediate_be, be32(how)));
    trace(c.unnoted != 0 ? prm::TRACE_POSTED : prm::TRACE_WRITE, q.qpn, index, c.bytes, c.unnoted, opcode);
}

GDA_DEVICE void store_remote_address(uint8_t* segment, uint64_t raddr, uint32_t rkey_be) {
    target::store_segment(segment, be64(raddr), rkey_be);
}

GDA_DEVICE void store_data(uint8_t* segment, uint64_t addr, uint32_t lkey_be, uint32_t bytes) {
    target::meter(GDA_METER_PAYLOAD_BYTES, bytes);
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

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const rdma_request& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    if (r.bytes != 0) store_data(segment_of(slot, 2), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, r.opcode, r.bytes != 0 ? 3 : 2, c.of(r.bytes), r.immediate_be);
}

// An RDMA write whose bytes lie in the work request itself: behind the inline segment's dword, in memory order.
static constexpr uint32_t MOST_INLINE_BYTES = 28;

struct inline_write {
    uint64_t raddr;
    uint32_t rkey_be;
    uint32_t bytes;  // 1 to MOST_INLINE_BYTES
    uint32_t words[MOST_INLINE_BYTES / 4];
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const inline_write& r, conduct c) {
    static_assert(2 * prm::WQE_SEGMENT_BYTES + 4 + MOST_INLINE_BYTES == prm::WQE_BASIC_BLOCK_BYTES, "fills the block");
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    uint32_t head = GDA_FIELD(wqe_inline_seg, is_inline, 1u) |
                    GDA_FIELD(wqe_inline_seg, byte_count, static_cast<uint32_t>(r.bytes));
    bool two = r.bytes > prm::WQE_SEGMENT_BYTES - 4;
    target::meter(GDA_METER_PAYLOAD_BYTES, r.bytes);
    target::store_segment(segment_of(slot, 2), join(r.words[0], be32(head)), join(r.words[2], r.words[1]));
    if (two) target::store_segment(segment_of(slot, 3), join(r.words[4], r.words[3]), join(r.words[6], r.words[5]));
    store_control(q, slot, index, prm::MLX5_OPCODE_RDMA_WRITE, two ? 4 : 3, c.of(r.bytes));
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

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const atomic_request& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    target::store_segment(segment_of(slot, 2), be64(r.swap_add), be64(r.compare));
    store_data(segment_of(slot, 3), r.addr, r.lkey_be, sizeof(uint64_t));
    store_control(q, slot, index, r.opcode, 4, c.of(sizeof(uint64_t)));
}

// The same on some bits of four or eight remote bytes: a card's extended atomics. Operands of four bytes stand in the
// low halves.
struct masked_add_request {
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    uint32_t bytes;  // 4 or 8
    uint64_t add;
    uint64_t boundary;  // bits that let no carry out of them
};

GDA_DEVICE uint32_t masked_opmod(uint32_t bytes) {
    return bytes == sizeof(uint32_t) ? prm::ATOMIC_OPMOD_EXTENDED_4_BYTES : prm::ATOMIC_OPMOD_EXTENDED_8_BYTES;
}
GDA_DEVICE uint32_t low_be(uint64_t v) { return be32(static_cast<uint32_t>(v)); }

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const masked_add_request& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    if (r.bytes == sizeof(uint32_t)) {
        target::store_segment(segment_of(slot, 2), join(low_be(r.boundary), low_be(r.add)), 0);
    } else {
        target::store_segment(segment_of(slot, 2), be64(r.add), be64(r.boundary));
    }
    store_data(segment_of(slot, 3), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, prm::MLX5_OPCODE_ATOMIC_MASKED_FA, 4, c.of(r.bytes), 0, masked_opmod(r.bytes));
}

// Masked compare-and-swap. Of eight bytes it has five segments, so two blocks; of four it fits one.
template <class T>
struct masked_swap_request {
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    T swap;
    T swap_mask;  // bits that are replaced
    T compare;
    T compare_mask;  // bits that are compared
};

template <>
struct extent<masked_swap_request<uint64_t>> {
    static constexpr uint64_t BLOCKS = 2;
    static constexpr uint64_t LAST = 0;
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const masked_swap_request<uint32_t>& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    target::store_segment(segment_of(slot, 2), join(be32(r.compare), be32(r.swap)),
                          join(be32(r.compare_mask), be32(r.swap_mask)));
    store_data(segment_of(slot, 3), r.addr, r.lkey_be, sizeof(uint32_t));
    store_control(q, slot, index, prm::MLX5_OPCODE_ATOMIC_MASKED_CS, 4, c.of(sizeof(uint32_t)), 0,
                  masked_opmod(sizeof(uint32_t)));
}

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const masked_swap_request<uint64_t>& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    store_remote_address(segment_of(slot, 1), r.raddr, r.rkey_be);
    target::store_segment(segment_of(slot, 2), be64(r.swap), be64(r.compare));
    target::store_segment(segment_of(slot, 3), be64(r.swap_mask), be64(r.compare_mask));
    store_data(slot_address(q, index + 1), r.addr, r.lkey_be, sizeof(uint64_t));  // perhaps the ring's first block
    store_control(q, slot, index, prm::MLX5_OPCODE_ATOMIC_MASKED_CS, 5, c.of(sizeof(uint64_t)), 0,
                  masked_opmod(sizeof(uint64_t)));
}

// Two requests as one submission, the second behind the first; only the second completes.
template <class First, class Second>
struct pair_request {
    First first;
    Second second;
};

template <class First, class Second>
struct extent<pair_request<First, Second>> {
    static constexpr uint64_t BLOCKS = extent<First>::BLOCKS + extent<Second>::BLOCKS;
    static constexpr uint64_t LAST = extent<First>::BLOCKS + extent<Second>::LAST;
};

template <class First, class Second>
GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const pair_request<First, Second>& r, conduct c) {
    store_request(q, index, r.first, conduct(false, c.fenced, c.unnoted));
    store_request(q, index + extent<First>::BLOCKS, r.second,
                  c.signaled);  // in order behind the first, so behind its fence
}

// Send, with or without immediate: the other side's next posted receive says where the bytes go.
struct send_request {
    uint32_t opcode;
    uint32_t immediate_be;
    uint64_t addr;
    uint32_t lkey_be;
    uint32_t bytes;
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const send_request& r, conduct c) {
    uint8_t* slot = slot_address(q, index);
    if (r.bytes != 0) store_data(segment_of(slot, 1), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, r.opcode, r.bytes != 0 ? 2 : 1, c.of(r.bytes), r.immediate_be);
}

// A send over UD: the request itself says to whom. Control and address fill a block, the data begins the next.
struct datagram_request {
    uint32_t opcode;
    uint32_t immediate_be;
    uint64_t addr;
    uint32_t lkey_be;
    uint32_t bytes;  // at least 1
    gda_address to;
};

template <>
struct extent<datagram_request> {
    static constexpr uint64_t BLOCKS = 2;
    static constexpr uint64_t LAST = 0;
};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const datagram_request& r, conduct c) {
    static_assert(GDA_BYTES_OF(wqe_av_seg) == sizeof(gda_address), "three segments");
    uint8_t* slot = slot_address(q, index);
    target::store_segment(segment_of(slot, 1), r.to.key, r.to.queue);
    target::store_segment(segment_of(slot, 2), r.to.hardware, r.to.route);
    target::store_segment(segment_of(slot, 3), r.to.gid_first, r.to.gid_last);
    store_data(slot_address(q, index + 1), r.addr, r.lkey_be, r.bytes);
    store_control(q, slot, index, r.opcode, 5, c.of(r.bytes), r.immediate_be);
}

// Nothing but a completion.
struct nop_request {};

GDA_DEVICE void store_request(const queue_view& q, uint64_t index, const nop_request&, conduct c) {
    store_control(q, slot_address(q, index), index, prm::MLX5_OPCODE_NOP, 1, c);
}

}  // namespace gda
