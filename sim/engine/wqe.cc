// SPDX-License-Identifier: Apache-2.0
// See wqe.h.

#include "sim/engine/wqe.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/requester.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

bool is_write(uint8_t opcode) { return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM; }
bool has_immediate(uint8_t opcode) { return opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_SEND_IMM; }

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

void wrong(DeviceState& s, Qp* qp, uint16_t index, ParsedWqe* out, cqe_syndrome syndrome, uint8_t vendor,
           const std::string& why) {
    out->syndrome = static_cast<uint8_t>(syndrome);
    out->vendor = vendor;
    s.report.say(text("%s: WQE %u, slot %u: %s", qp->name, index, index & (qp->send_blocks - 1), why.c_str()));
}

void parse_data(DeviceState& s, Qp* qp, uint16_t index, const uint8_t* segment, ParsedWqe* out) {
    uint64_t bytes = GDA_GET(wqe_data_seg, segment, byte_count);
    if (bytes == 0) bytes = uint64_t{1} << 31;
    const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, lkey));
    const uint64_t address = GDA_GET(wqe_data_seg, segment, addr);
    out->bytes += bytes;
    if (out->bytes > qp->max_message_bytes) return;  // told as one length error
    std::string why;
    if (!resolve(s, key, address, bytes, qp->pd, Access::local_read, &out->piece[out->pieces], &why)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_LOCAL_KEY,
                     "local protection error: " + why);
    }
    ++out->pieces;
}

}  // namespace

void parse_wqe(DeviceState& s, Qp* qp, uint16_t index, ParsedWqe* out) {
    uint8_t* wqe = s.wqe;
    if (!fetch(s, qp, index, 1, wqe)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_QUEUE_GONE,
                     "the send queue cannot be read");
    }
    const uint16_t told_index = static_cast<uint16_t>(GDA_GET(wqe_ctrl_seg, wqe, wqe_index));
    const uint32_t told_qpn = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, qp_or_sq));
    const uint32_t ds = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, ds));
    out->opcode = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, wqe, opcode));
    out->completion = static_cast<uint8_t>(GDA_GET(wqe_ctrl_seg, wqe, ce));
    out->solicited = GDA_GET(wqe_ctrl_seg, wqe, se) != 0;
    out->immediate = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, wqe, imm));
    const uint16_t published = static_cast<uint16_t>(qp->producer - index);
    const uint32_t segments_per_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
    const uint32_t blocks = (ds + segments_per_block - 1) / segments_per_block;
    if (told_index != index || told_qpn != qp->number || ds == 0 || blocks > published) {
        return wrong(
            s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_STALE_WQE,
            text("index/opcode/QPN do not match: it holds index %u, opcode 0x%02x, QPN 0x%06x, ds %u; expected "
                 "index %u, QPN 0x%06x, ds 1..%u; a stale or half-written WQE: was the doorbell rung before it "
                 "was written?",
                 told_index, out->opcode, told_qpn, ds, index, qp->number, published * segments_per_block));
    }
    out->blocks = static_cast<uint16_t>(blocks);
    if (blocks > 1 && !fetch(s, qp, index, out->blocks, wqe)) {
        return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_QUEUE_GONE,
                     "the send queue cannot be read");
    }
    if (out->opcode == MLX5_OPCODE_NOP) return;
    const bool send = out->opcode == MLX5_OPCODE_SEND || out->opcode == MLX5_OPCODE_SEND_IMM;
    if (!send && !is_write(out->opcode)) {
        return wrong(
            s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_UNSUPPORTED,
            text("opcode 0x%02x is not supported by the software NIC (it has NOP, RDMA WRITE and SEND, both with "
                 "and without immediate)",
                 out->opcode));
    }
    uint32_t at = 1;  // in segments
    if (is_write(out->opcode)) {
        if (ds < 2) {
            return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_BAD_SEGMENTS,
                         "an RDMA WRITE needs a remote address segment: ds is 1");
        }
        const uint8_t* segment = wqe + WQE_SEGMENT_BYTES;
        out->remote_address = GDA_GET(wqe_raddr_seg, segment, raddr);
        out->remote_key = static_cast<uint32_t>(GDA_GET(wqe_raddr_seg, segment, rkey));
        at = 2;
    }
    while (at < ds && !out->syndrome) {
        const uint8_t* segment = wqe + at * WQE_SEGMENT_BYTES;
        if (!GDA_GET(wqe_inline_seg, segment, is_inline)) {
            parse_data(s, qp, index, segment, out);
            ++at;
            continue;
        }
        const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_inline_seg, segment, byte_count));
        const uint32_t whole = (GDA_BYTES_OF(wqe_inline_seg) + bytes + WQE_SEGMENT_BYTES - 1) / WQE_SEGMENT_BYTES;
        if (at + whole > ds) {
            return wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, VENDOR_BAD_SEGMENTS,
                         text("%u inline bytes need %u segments, the WQE has %u left", bytes, whole, ds - at));
        }
        if (bytes)
            out->piece[out->pieces++] = {const_cast<uint8_t*>(segment) + GDA_BYTES_OF(wqe_inline_seg), bytes, nullptr};
        out->bytes += bytes;
        at += whole;
    }
    if (!out->syndrome && out->bytes > qp->max_message_bytes) {
        wrong(s, qp, index, out, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_LOCAL_LENGTH,
              text("local length error: %" PRIu64 " bytes, the largest message is %" PRIu64
                   " (a data segment with byte_count 0 means 2^31 bytes)",
                   out->bytes, qp->max_message_bytes));
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
