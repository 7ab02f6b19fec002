// SPDX-License-Identifier: Apache-2.0
// See request.h.

#include "proxy/request.h"

namespace proxy {

using namespace gda::prm;

namespace {

const uint32_t LONGEST = WQE_MAX_SEGMENTS * WQE_SEGMENT_BYTES;

// The segments of a WQE, copied out of the ring, which goes round: whoever writes there next does so later, but what
// is judged and what is posted must be the same bytes.
struct Segments {
    alignas(8) uint8_t bytes[LONGEST];
    uint32_t count;
    uint32_t at;  // the next one

    const uint8_t* take(uint32_t more = 1) {
        const uint8_t* p = bytes + at * WQE_SEGMENT_BYTES;
        at += more;
        return p;
    }
    uint32_t left() const { return count - at; }
};

void copy_out(const Ring& ring, uint64_t index, uint32_t bytes, uint8_t* out) {
    for (uint32_t done = 0; done < bytes; done += WQE_BASIC_BLOCK_BYTES, ++index) {
        const uint32_t part = bytes - done < WQE_BASIC_BLOCK_BYTES ? bytes - done : uint32_t{WQE_BASIC_BLOCK_BYTES};
        const uint64_t slot = index & (ring.depth - 1);
        std::memcpy(out + done, ring.blocks + slot * WQE_BASIC_BLOCK_BYTES, part);
    }
}

struct Operation {
    uint8_t opcode;  // enum wqe_opcode
    enum ibv_wr_opcode verb;
    bool remote;     // a remote address follows
    bool atomic;     // and operands
    bool immediate;  // in the control segment
    bool inlines;    // its bytes may stand in the request
};

const Operation OPERATIONS[] = {
    {MLX5_OPCODE_RDMA_WRITE, IBV_WR_RDMA_WRITE, true, false, false, true},
    {MLX5_OPCODE_RDMA_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, true, false, true, true},
    {MLX5_OPCODE_SEND, IBV_WR_SEND, false, false, false, true},
    {MLX5_OPCODE_SEND_IMM, IBV_WR_SEND_WITH_IMM, false, false, true, true},
    {MLX5_OPCODE_RDMA_READ, IBV_WR_RDMA_READ, true, false, false, false},
    {MLX5_OPCODE_ATOMIC_CS, IBV_WR_ATOMIC_CMP_AND_SWP, true, true, false, false},
    {MLX5_OPCODE_ATOMIC_FA, IBV_WR_ATOMIC_FETCH_AND_ADD, true, true, false, false},
};

const Operation* operation_of(uint8_t opcode) {
    for (const Operation& o : OPERATIONS) {
        if (o.opcode == opcode) return &o;
    }
    return nullptr;
}

bool is_allowed(const Ring& ring, const Operation& o) {
    const enum ibv_qp_type type = ring.type;
    if (ring.iwarp && (o.atomic || o.immediate)) return false;
    if (type == IBV_QPT_UD) return !o.remote;
    if (type == IBV_QPT_UC) return !o.atomic && o.verb != IBV_WR_RDMA_READ;
    return true;
}

// Local memory: pieces, or the bytes themselves.
Refusal read_data(const Ring& ring, const Operation& o, Segments* s, Request* r) {
    while (s->left() != 0) {
        const uint8_t* segment = s->take();
        if (GDA_GET(wqe_inline_seg, segment, is_inline)) {
            const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_inline_seg, segment, byte_count));
            const uint32_t head = GDA_BYTES_OF(wqe_inline_seg);
            const uint32_t segments = (head + bytes + WQE_SEGMENT_BYTES - 1) / WQE_SEGMENT_BYTES;
            if (!o.inlines || r->wr.num_sge != 0 || segments - 1 != s->left()) return REFUSAL_SEGMENTS;
            if (bytes > MOST_INLINE_BYTES || bytes > ring.most_inline) return REFUSAL_PIECES;
            std::memcpy(r->inline_bytes, segment + head, bytes);
            r->pieces[0] = {reinterpret_cast<uintptr_t>(r->inline_bytes), bytes, 0};
            r->wr.num_sge = bytes != 0;
            r->wr.send_flags |= IBV_SEND_INLINE;
            r->bytes = bytes;
            return REFUSAL_NONE;
        }
        const int number = r->wr.num_sge;
        if (number == MOST_PIECES || static_cast<uint32_t>(number) == ring.most_pieces) return REFUSAL_PIECES;
        const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, byte_count));
        const uint32_t most = GDA_PLACE(wqe_data_seg, byte_count)::mask;
        r->pieces[number] = {GDA_GET(wqe_data_seg, segment, addr), bytes != 0 ? bytes : most + 1,
                             static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, lkey))};
        r->bytes += r->pieces[number].length;
        ++r->wr.num_sge;
    }
    return REFUSAL_NONE;
}

Refusal read_parts(const Ring& ring, const Addresses& addresses, const Operation& o, Segments* s, Request* r) {
    if (ring.type == IBV_QPT_UD) {
        AddressBytes address;
        if (s->left() < address.size() / WQE_SEGMENT_BYTES) return REFUSAL_SEGMENTS;
        const uint8_t* segment = s->take(address.size() / WQE_SEGMENT_BYTES);
        std::memcpy(address.data(), segment, address.size());
        const auto found = addresses.find(address);
        if (found == addresses.end()) return REFUSAL_ADDRESS;
        r->wr.wr.ud.ah = found->second;
        r->wr.wr.ud.remote_qpn = static_cast<uint32_t>(GDA_GET(wqe_av_seg, segment, dqp_dct));
        r->wr.wr.ud.remote_qkey = static_cast<uint32_t>(GDA_GET(wqe_av_seg, segment, qkey));
    }
    if (o.remote) {
        if (s->left() == 0) return REFUSAL_SEGMENTS;
        const uint8_t* segment = s->take();
        const uint64_t address = GDA_GET(wqe_raddr_seg, segment, raddr);
        const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_raddr_seg, segment, rkey));
        if (o.atomic) {
            if (s->left() == 0) return REFUSAL_SEGMENTS;
            const uint8_t* operands = s->take();
            const uint64_t value = GDA_GET(wqe_atomic_seg, operands, swap_add);
            const bool swaps = o.verb == IBV_WR_ATOMIC_CMP_AND_SWP;
            r->wr.wr.atomic.remote_addr = address;
            r->wr.wr.atomic.rkey = key;
            r->wr.wr.atomic.compare_add = swaps ? GDA_GET(wqe_atomic_seg, operands, compare) : value;
            r->wr.wr.atomic.swap = swaps ? value : 0;
        } else {
            r->wr.wr.rdma.remote_addr = address;
            r->wr.wr.rdma.rkey = key;
        }
    }
    return read_data(ring, o, s, r);
}

}  // namespace

void read_request(const Ring& ring, const Addresses& addresses, uint64_t index, uint64_t there, Request* r) {
    Segments s;
    copy_out(ring, index, GDA_BYTES_OF(wqe_ctrl_seg), s.bytes);
    const uint8_t* control = s.bytes;
    r->opcode = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, control, opcode));
    r->signaled = GDA_GET(wqe_ctrl_seg, control, ce) == CE_ALWAYS;
    r->bytes = 0;
    r->refusal = REFUSAL_NONE;
    r->is_nop = false;
    s.count = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, control, ds));
    s.at = 1;
    const uint32_t in_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
    r->blocks = (s.count + in_block - 1) / in_block;
    const bool torn = GDA_GET(wqe_ctrl_seg, control, wqe_index) != static_cast<uint16_t>(index) ||
                      GDA_GET(wqe_ctrl_seg, control, qp_or_sq) != ring.qpn || s.count == 0 || r->blocks > there;
    if (torn) {
        r->blocks = 1;  // where the next one begins is not known
        r->refusal = REFUSAL_TORN;
        return;
    }
    if (r->opcode == MLX5_OPCODE_NOP) {
        r->is_nop = true;
        return;
    }
    const Operation* o = operation_of(r->opcode);
    if (!o || !is_allowed(ring, *o)) {
        r->refusal = REFUSAL_OPERATION;
        return;
    }
    copy_out(ring, index, s.count * WQE_SEGMENT_BYTES, s.bytes);
    r->wr = ibv_send_wr{};
    r->pieces[0] = ibv_sge{};
    r->wr.sg_list = r->pieces;
    r->wr.opcode = o->verb;
    if (o->immediate) r->wr.imm_data = gda::load32(control + GDA_DWORD_OFFSET(wqe_ctrl_seg, imm));
    r->wr.send_flags = IBV_SEND_SIGNALED;  // each: what is complete behind libibverbs must be known in order
    if (GDA_GET(wqe_ctrl_seg, control, se)) r->wr.send_flags |= IBV_SEND_SOLICITED;
    // Below it modes order small things, which verbs order anyway.
    const uint64_t fence = GDA_GET(wqe_ctrl_seg, control, fm);
    const bool reads = o->verb == IBV_WR_RDMA_READ;
    // On iWARP a read waits for no other: responses come in order, and siw refuses what says it waits.
    if (fence >= MLX5_FENCE_MODE_FENCE && !(ring.iwarp && reads)) r->wr.send_flags |= IBV_SEND_FENCE;
    r->refusal = read_parts(ring, addresses, *o, &s, r);
    if (ring.iwarp && reads && r->refusal == REFUSAL_NONE) {
        if (r->wr.num_sge > 1) r->refusal = REFUSAL_PIECES;
        r->wr.num_sge = 1;  // of no bytes, where none was named
    }
}

}  // namespace proxy
