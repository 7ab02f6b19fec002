// SPDX-License-Identifier: Apache-2.0
// See wqe.h.

#include "sim/engine/wqe.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/requester.h"
#include "sim/engine/vendor.h"
#include "sim/engine/wqe_faults.h"

namespace sim {

using namespace gda::prm;

bool is_write(uint8_t opcode) { return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM; }
bool has_immediate(uint8_t opcode) { return opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_SEND_IMM; }

bool is_atomic(uint8_t opcode) {
    return opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA ||
           opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
}

namespace {

const uint16_t WINDOW_BLOCKS = 64;

// Copies `blocks` basic blocks from the ring, round its end.
bool read_blocks(DeviceState& s, Qp* qp, uint16_t index, uint16_t blocks, uint8_t* to) {
    while (blocks) {
        const uint32_t slot = index & (qp->send_blocks - 1);
        const uint16_t run = static_cast<uint16_t>(std::min<uint32_t>(blocks, qp->send_blocks - slot));
        if (!read_ring(s, qp->send_ring, uint64_t{slot} * WQE_BASIC_BLOCK_BYTES, to,
                       size_t{run} * WQE_BASIC_BLOCK_BYTES, qp->name)) {
            return false;
        }
        to += size_t{run} * WQE_BASIC_BLOCK_BYTES;
        index = static_cast<uint16_t>(index + run);
        blocks = static_cast<uint16_t>(blocks - run);
    }
    return true;
}

// A copy from GPU memory costs 10 us whatever its size: fetch all that is published, up to 4 KiB, at once.
bool fetch(DeviceState& s, Qp* qp, uint16_t index, uint16_t blocks, uint8_t* to) {
    if (!qp->send_ring.umem->gpu) return read_blocks(s, qp, index, blocks, to);
    const bool inside = s.window_qp == qp && static_cast<uint16_t>(index - s.window_first) < s.window_blocks &&
                        static_cast<uint16_t>(index - s.window_first) + blocks <= s.window_blocks;
    if (!inside) {
        const uint16_t published = static_cast<uint16_t>(qp->producer - index);
        const uint16_t wanted = std::max(blocks, std::min(published, WINDOW_BLOCKS));
        s.window.resize(size_t{WINDOW_BLOCKS} * WQE_BASIC_BLOCK_BYTES);
        s.window_qp = nullptr;
        if (!read_blocks(s, qp, index, wanted, s.window.data())) return false;
        s.window_qp = qp, s.window_first = index, s.window_blocks = wanted;
    }
    std::memcpy(to, s.window.data() + size_t{static_cast<uint16_t>(index - s.window_first)} * WQE_BASIC_BLOCK_BYTES,
                size_t{blocks} * WQE_BASIC_BLOCK_BYTES);
    return true;
}

}  // namespace

uint16_t read_record_and_window(DeviceState& s, Qp* qp, uint64_t record_offset, uint32_t* big_endian) {
    const uint32_t slot = qp->next & (qp->send_blocks - 1);
    const uint16_t blocks = static_cast<uint16_t>(std::min<uint32_t>(WINDOW_BLOCKS, qp->send_blocks - slot));
    s.window.resize(size_t{WINDOW_BLOCKS} * WQE_BASIC_BLOCK_BYTES);
    s.window_qp = nullptr;
    const bool read = read_word_and_ring(s, qp->record, record_offset, big_endian, qp->send_ring,
                                         uint64_t{slot} * WQE_BASIC_BLOCK_BYTES, s.window.data(),
                                         size_t{blocks} * WQE_BASIC_BLOCK_BYTES, qp->name);
    return read ? blocks : 0;
}

void keep_window(DeviceState& s, const Qp* qp, uint16_t blocks) {
    const uint16_t published = static_cast<uint16_t>(qp->producer - qp->next);
    s.window_qp = qp, s.window_first = qp->next, s.window_blocks = std::min(blocks, published);
}

namespace {

void wrong(DeviceState& s, Qp* qp, uint16_t index, ParsedWqe* out, cqe_syndrome syndrome, uint8_t vendor,
           const Why& why) {
    out->syndrome = static_cast<uint8_t>(syndrome);
    out->vendor = vendor;
    Values values = why.values;
    values.insert(values.begin(), {{"qp", qp->number}, {"index", index}});
    s.report.say(why.kind,
                 text("%s: WQE %u, slot %u: %s", qp->name, index, index & (qp->send_blocks - 1), why.words.c_str()),
                 values);
}

// `left`: segments of the request from this one on.
void parse_data(DeviceState& s, Qp* qp, uint16_t index, const uint8_t* segment, uint32_t left, ParsedWqe* out) {
    uint64_t bytes = GDA_GET(wqe_data_seg, segment, byte_count);
    if (bytes == 0) bytes = uint64_t{1} << 31;
    const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, lkey));
    const uint64_t address = GDA_GET(wqe_data_seg, segment, addr);
    out->bytes += bytes;
    if (out->bytes > qp->max_message_bytes) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_LOCAL_LENGTH,
                     likely(s, qp, index, segment, left, too_long(qp, out->bytes)));
    }
    Why why;
    const Access access = out->fetches ? Access::local_write : Access::local_read;
    if (!resolve(s, key, address, bytes, qp, access, &out->piece[out->pieces], &why)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_LOCAL_KEY,
                     "local protection error: " + likely(s, qp, index, segment, left, why));
    }
    ++out->pieces;
}

bool is_send(uint8_t opcode) {
    return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_SEND_INVAL;
}

// Whether queue pairs of this kind have the opcode. Source: IBA volume 1, table "Operations by transport".
bool has_operation(const Qp* qp, uint8_t opcode) {
    if (opcode == MLX5_OPCODE_SEND_INVAL) return qp->reliable();
    if (is_send(opcode)) return true;
    if (is_write(opcode)) return !qp->datagrams();
    return qp->reliable() && (opcode == MLX5_OPCODE_RDMA_READ || is_atomic(opcode));
}

// The operands of an atomic, which begin at `segment`. Answers how many segments they have; 0: opmod makes no sense.
uint32_t parse_atomic(const uint8_t* segment, uint32_t opmod, ParsedWqe* out) {
    AtomicOperation& o = out->atomic;
    o.compares = out->opcode == MLX5_OPCODE_ATOMIC_CS || out->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
    const bool masked = out->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || out->opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
    o.bytes = masked && opmod == ATOMIC_OPMOD_EXTENDED_4_BYTES ? 4 : 8;
    if (masked ? opmod != 0 && opmod != ATOMIC_OPMOD_EXTENDED_4_BYTES && opmod != ATOMIC_OPMOD_EXTENDED_8_BYTES
               : opmod != 0) {
        return 0;
    }
    if (o.bytes == 4 && o.compares) {
        o.swap_add = GDA_GET(wqe_atomic32_swap_seg, segment, swap);
        o.compare = GDA_GET(wqe_atomic32_swap_seg, segment, compare);
        o.swap_mask = GDA_GET(wqe_atomic32_swap_seg, segment, swap_mask);
        o.compare_mask = GDA_GET(wqe_atomic32_swap_seg, segment, compare_mask);
        return 1;
    }
    if (o.bytes == 4) {
        o.swap_add = GDA_GET(wqe_atomic32_add_seg, segment, add);
        o.swap_mask = GDA_GET(wqe_atomic32_add_seg, segment, field_boundary);
        return 1;
    }
    o.swap_add = GDA_GET(wqe_atomic_seg, segment, swap_add);
    o.compare = o.compares ? GDA_GET(wqe_atomic_seg, segment, compare) : 0;
    o.swap_mask = o.compare_mask = o.compares ? ~uint64_t{0} : 0;
    if (!masked) return 1;
    if (!o.compares) {
        o.swap_mask = GDA_GET(wqe_atomic64_add_seg, segment, field_boundary);
        return 1;
    }
    segment += WQE_SEGMENT_BYTES;
    o.swap_mask = GDA_GET(wqe_atomic_mask_seg, segment, swap_mask);
    o.compare_mask = GDA_GET(wqe_atomic_mask_seg, segment, compare_mask);
    return 2;
}

// The address vector of a datagram or a dynamically connected request. False: there is none of 48 bytes, or its own GID
// does not exist.
bool parse_address(const DeviceState& s, const Qp* qp, const uint8_t* wqe, uint32_t ds, ParsedWqe* out) {
    const uint8_t* segment = wqe + WQE_SEGMENT_BYTES;
    if (ds < 1 + GDA_BYTES_OF(wqe_av_seg) / WQE_SEGMENT_BYTES || !GDA_GET(wqe_av_seg, segment, extended)) return false;
    out->to_qpn = static_cast<uint32_t>(GDA_GET(wqe_av_seg, segment, dqp_dct));
    out->q_key = static_cast<uint32_t>(GDA_GET(wqe_av_seg, segment, qkey));
    if (static_cast<int32_t>(out->q_key) < 0) out->q_key = qp->q_key;  // a controlled Q_Key: the queue pair's own
    out->access_key = GDA_GET(wqe_dc_av_seg, segment, dc_key);
    out->flow_port = static_cast<uint16_t>(GDA_GET(wqe_av_seg, segment, rlid_udp_sport));
    out->traffic_class = static_cast<uint8_t>(GDA_GET(wqe_av_seg, segment, tclass));
    out->hop_limit = static_cast<uint8_t>(GDA_GET(wqe_av_seg, segment, hop_limit));
    const uint32_t from = static_cast<uint32_t>(GDA_GET(wqe_av_seg, segment, src_addr_index));
    out->from_gid = s.gid_place(qp->port, from);
    out->to_gid = segment + GDA_BYTE_OFFSET(wqe_av_seg, rgid);
    return s.has_gid(qp->port, from);
}

// What stands between the control segment and the payload. False: a fault was told.
bool parse_head(DeviceState& s, Qp* qp, uint16_t index, uint32_t ds, ParsedWqe* out, uint32_t* at) {
    const uint8_t* wqe = s.wqe;
    const auto refuse = [&](const std::string& why) {
        wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_BAD_SEGMENTS,
              Why(ds == 1 ? Kind::wqe_size : Kind::wqe_segments,
                  ds == 1 ? why + " (hint: ds counts units of 16 bytes, not blocks)" : why, {{"ds", ds}}));
        return false;
    };
    *at = 1;
    if (qp->datagrams() || qp->dc_initiator()) {
        if (!parse_address(s, qp, wqe, ds, out)) {
            return refuse(
                text("%s needs an address vector of 48 bytes (extended) with the index of a GID that is there: ds %u, "
                     "index %u",
                     qp->datagrams() ? "a datagram" : "a dynamically connected request", ds, out->from_gid));
        }
        *at += GDA_BYTES_OF(wqe_av_seg) / WQE_SEGMENT_BYTES;
        if (qp->datagrams()) return true;
    }
    if (qp->over_xrc()) {
        if (ds < 2) return refuse("a request over XRC needs a segment that names the receive queue: ds is 1");
        out->xrc_srqn = static_cast<uint32_t>(GDA_GET(wqe_xrc_seg, wqe + WQE_SEGMENT_BYTES, xrc_srqn));
        *at += GDA_BYTES_OF(wqe_xrc_seg) / WQE_SEGMENT_BYTES;
    }
    if (is_send(out->opcode)) return true;
    const bool write = is_write(out->opcode);
    if (ds <= *at) {
        return refuse(text("%s needs a remote address segment: ds is %u",
                           write                    ? "an RDMA WRITE"
                           : is_atomic(out->opcode) ? "an atomic"
                                                    : "an RDMA READ",
                           ds));
    }
    const uint8_t* segment = wqe + *at * WQE_SEGMENT_BYTES;
    out->remote_address = GDA_GET(wqe_raddr_seg, segment, raddr);
    out->remote_key = static_cast<uint32_t>(GDA_GET(wqe_raddr_seg, segment, rkey));
    if (GDA_GET(wqe_raddr_seg, segment, reserved_at_60)) {
        say_reserved(s, qp, index, "remote address segment", segment);
    }
    ++*at;
    if (write) return true;
    out->fetches = true;
    if (!is_atomic(out->opcode)) return true;
    const uint32_t opmod = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, opmod));
    const uint32_t operands = parse_atomic(wqe + *at * WQE_SEGMENT_BYTES, opmod, out);
    *at += operands;
    if (operands == 0 || ds != *at + 1) {
        return refuse(
            text("an atomic has %u segments of operands and one of data: ds %u, opmod 0x%x (masked: 8 for 4 "
                 "bytes, 9 for 8)",
                 operands ? operands : 1, ds, opmod));
    }
    return true;
}

}  // namespace

void parse_wqe(DeviceState& s, Qp* qp, uint16_t index, ParsedWqe* out) {
    uint8_t* wqe = s.wqe;
    if (!fetch(s, qp, index, 1, wqe)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_QUEUE_GONE,
                     Why(Kind::memory_gone, "the send queue cannot be read"));
    }
    const uint16_t told_index = static_cast<uint16_t>(GDA_GET(wqe_ctrl_seg, wqe, wqe_index));
    const uint32_t told_qpn = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, qp_or_sq));
    const uint32_t ds = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, ds));
    out->opcode = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, wqe, opcode));
    out->completion = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, wqe, ce));
    out->solicited = GDA_GET(wqe_ctrl_seg, wqe, se) != 0;
    out->stream = static_cast<uint16_t>(GDA_GET(wqe_ctrl_seg, wqe, dci_stream_channel_id));
    out->immediate = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, imm));
    const uint32_t fence = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, fm));
    out->fenced = fence >= MLX5_FENCE_MODE_FENCE;
    const uint16_t published = static_cast<uint16_t>(qp->producer - index);
    const uint32_t segments_per_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
    const uint32_t blocks = (ds + segments_per_block - 1) / segments_per_block;
    if (told_index != index || told_qpn != qp->number || ds == 0 || blocks > published) {
        const bool sized = told_index == index && told_qpn == qp->number && ds != 0;
        std::string words = text(
            "index/opcode/QPN do not match: it holds index %u, opcode 0x%02x, QPN 0x%06x, ds %u; expected "
            "index %u, QPN 0x%06x, ds 1..%u; a stale or half-written WQE: was the doorbell rung before it "
            "was written?",
            told_index, out->opcode, told_qpn, ds, index, qp->number, published * segments_per_block);
        if (sized) {
            words = text("ds %u needs %u blocks of 64 bytes, and %u %s published: %s", ds, blocks, published,
                         published == 1 ? "is" : "are",
                         ds % WQE_SEGMENT_BYTES == 0 ? "does it count bytes? it counts units of 16"
                                                     : "does the producer index count requests? it counts blocks");
        }
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_STALE_WQE,
                     Why(sized ? Kind::wqe_size : Kind::wqe_stale, words,
                         {{"slot_index", told_index},
                          {"opcode", out->opcode},
                          {"slot_qp", told_qpn},
                          {"ds", ds},
                          {"published", published}}));
    }
    out->blocks = static_cast<uint16_t>(blocks);
    if (GDA_GET(wqe_ctrl_seg, wqe, reserved_at_38) | GDA_GET(wqe_ctrl_seg, wqe, reserved_at_5b) |
        GDA_GET(wqe_ctrl_seg, wqe, reserved_at_5f)) {
        say_reserved(s, qp, index, "control segment", wqe);
    }
    if (blocks > 1 && !fetch(s, qp, index, out->blocks, wqe)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_QUEUE_GONE,
                     Why(Kind::memory_gone, "the send queue cannot be read"));
    }
    if (out->opcode == MLX5_OPCODE_NOP) return;
    if (out->opcode == MLX5_OPCODE_UMR && !qp->datagrams()) return;  // umr.cc reads on
    if (!has_operation(qp, out->opcode)) {
        const char* has =
            qp->reliable()
                ? "NOP, SEND and RDMA WRITE, both with and without immediate, SEND with invalidate, RDMA READ, atomics "
                  "and UMR"
            : qp->datagrams() ? "NOP and SEND, with and without immediate"
                              : "NOP, SEND and RDMA WRITE, both with and without immediate";
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_UNSUPPORTED,
                     Why(Kind::wqe_opcode,
                         text("opcode 0x%02x is not supported by this queue pair of the software NIC (it has %s)",
                              out->opcode, has),
                         {{"opcode", out->opcode}}));
    }
    uint32_t at;  // in segments
    if (!parse_head(s, qp, index, ds, out, &at)) return;
    while (at < ds && !out->syndrome) {
        const uint8_t* segment = wqe + at * WQE_SEGMENT_BYTES;
        if (!GDA_GET(wqe_inline_seg, segment, is_inline)) {
            parse_data(s, qp, index, segment, ds - at, out);
            ++at;
            continue;
        }
        if (out->fetches) {
            return wrong(
                s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_BAD_SEGMENTS,
                Why(Kind::wqe_segments, "inline data in a WQE that fetches: there is no place for what comes back"));
        }
        const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_inline_seg, segment, byte_count));
        const uint32_t whole = (GDA_BYTES_OF(wqe_inline_seg) + bytes + WQE_SEGMENT_BYTES - 1) / WQE_SEGMENT_BYTES;
        if (at + whole > ds) {
            return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_BAD_SEGMENTS,
                         Why(Kind::wqe_size,
                             text("%u inline bytes need %u segments, the WQE has %u left", bytes, whole, ds - at),
                             {{"bytes", bytes}, {"ds", ds}}));
        }
        if (bytes)
            out->piece[out->pieces++] = {const_cast<uint8_t*>(segment) + GDA_BYTES_OF(wqe_inline_seg), bytes, nullptr,
                                         nullptr, false};
        out->bytes += bytes;
        at += whole;
    }
    if (!out->syndrome && out->atomic.bytes && out->bytes != out->atomic.bytes) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_LOCAL_LENGTH,
                     Why(Kind::message_too_long,
                         text("local length error: an atomic of %u bytes with a data segment of %" PRIu64,
                              out->atomic.bytes, out->bytes),
                         {{"bytes", out->bytes}, {"most", out->atomic.bytes}}));
    }
    if (!out->syndrome && out->bytes > qp->max_message_bytes) {
        wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_LOCAL_LENGTH, too_long(qp, out->bytes));
    }
}

uint16_t wqe_blocks(DeviceState& s, Qp* qp, uint16_t index, uint8_t* opcode) {
    uint8_t block[WQE_BASIC_BLOCK_BYTES];
    *opcode = MLX5_OPCODE_NOP;
    if (!fetch(s, qp, index, 1, block)) return 1;
    const uint32_t segments_per_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
    const uint32_t ds = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, block, ds));
    const uint16_t blocks = static_cast<uint16_t>((ds + segments_per_block - 1) / segments_per_block);
    const uint16_t published = static_cast<uint16_t>(qp->producer - index);
    if (GDA_GET(wqe_ctrl_seg, block, wqe_index) != index || blocks == 0 || blocks > published) return 1;
    *opcode = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, block, opcode));
    return blocks;
}

}  // namespace sim
