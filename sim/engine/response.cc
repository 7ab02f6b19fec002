// SPDX-License-Identifier: Apache-2.0
// The requester's third part: read data and results of atomics arrive. See requester.h and retry.h.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer", "Requester: RDMA READ responses".

#include <algorithm>
#include <cstring>

#include "sim/engine/packet.h"
#include "sim/engine/requester.h"
#include "sim/engine/retry.h"
#include "sim/engine/vendor.h"
#include "sim/engine/wqe.h"

namespace sim {

using namespace gda::prm;

namespace {

// Writes `part` at `offset` of the WQE's pieces. False: a fault, which the message then carries.
bool scatter(DeviceState& s, Qp* qp, const ParsedWqe& wqe, Message* m, uint64_t offset, const Span& part,
             const Packet& packet) {
    uint64_t taken = 0;
    for (size_t i = 0; i < wqe.pieces && taken < part.bytes; ++i) {
        const Span& piece = wqe.piece[i];
        if (offset >= piece.bytes) {
            offset -= piece.bytes;
            continue;
        }
        const uint64_t bytes = std::min(part.bytes - taken, piece.bytes - offset);
        const Span from = plain_span(part.address + taken, bytes, part.gpu);
        const auto fresh = gpu::Copier::Order::behind_and_fresh;  // the responder's writes before it are in the source
        Copied copied = copy_later(s, piece, offset, from, fresh, &qp->scattered, qp->name);
        if (copied == Copied::later && !packet.may_wait) {
            s.copier.settle();
            copied = copy_later(s, piece, offset, from, fresh, &qp->scattered, qp->name);
        }
        if (copied == Copied::later) {
            packet.later = true;
            return false;
        }
        m->placed = qp->scattered;
        if (copied == Copied::no_source) {
            packet.unreadable = true;  // the peer's memory: it says so itself
            return false;
        }
        if (copied == Copied::no_destination) {
            m->syndrome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
            m->vendor = VENDOR_LOCAL_UNMAPPED;
            return false;
        }
        taken += bytes;
        offset = 0;
    }
    return true;
}

// What came back goes to where the WQE says. The WQE is read again: it stays in its ring until it is completed.
bool place_response(DeviceState& s, Qp* qp, Message* m, const Packet& packet, bool atomic) {
    ParsedWqe wqe;
    parse_wqe(s, qp, m->index, &wqe);
    if (!wqe.syndrome && (wqe.bytes != m->bytes || wqe.opcode != m->opcode)) {
        s.report.say(Kind::wqe_overwritten,
                     std::string(qp->name) + text(": WQE %u was overwritten before its response came", m->index),
                     {{"qp", qp->number}, {"index", m->index}});
        wqe.syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        wqe.vendor = VENDOR_STALE_WQE;
    }
    if (wqe.syndrome) {
        m->syndrome = wqe.syndrome;
        m->vendor = wqe.vendor;
        return false;
    }
    uint64_t offset = uint64_t{m->arrived} * qp->mtu;
    if (atomic) {
        const uint8_t* at = operation_headers(packet) + GDA_BYTES_OF(aeth);
        uint64_t value = GDA_GET(atomicacketh, at, original);
        // Eight bytes come in the byte order of the host (atomic_req_8B_endianness_mode 1); the mode speaks of no other
        // size, and four bytes are big-endian like the operands: NVSHMEM swaps them.
        if (wqe.atomic.bytes == 4) value = gda::swap32(static_cast<uint32_t>(value));
        return scatter(s, qp, wqe, m, 0, plain_span(&value, wqe.atomic.bytes), packet);
    }
    const uint64_t whole = uint64_t{packets_for(qp, packet.payload_bytes)} * qp->mtu;
    if (packet.payload_bytes != std::min(whole, m->bytes - offset) || !same_cut(qp, packet)) {
        s.report.say(Kind::bad_response,
                     std::string(qp->name) + text(": WQE %u: a response of %zu bytes, which is not what was asked for",
                                                  m->index, packet.payload_bytes),
                     {{"qp", qp->number}, {"index", m->index}, {"bytes", packet.payload_bytes}});
        m->syndrome = MLX5_CQE_SYNDROME_BAD_RESP_ERR;
        m->vendor = VENDOR_BAD_RESPONSE;
        return false;
    }
    for (size_t i = 0; i < packet.payload_count; ++i) {
        if (!scatter(s, qp, wqe, m, offset, payload_span(s, packet.payload[i]), packet)) return false;
        offset += packet.payload[i].iov_len;
    }
    return true;
}

}  // namespace

bool is_response(uint32_t operation) {
    return (operation >= RC_RDMA_READ_RESPONSE_FIRST && operation <= RC_RDMA_READ_RESPONSE_ONLY) ||
           operation == RC_ATOMIC_ACKNOWLEDGE;
}

Message* oldest_fetch(Qp* qp) {
    if (!qp->fetches) return nullptr;
    for (size_t i = 0; i < qp->sent.size(); ++i) {
        Message& m = qp->sent[i];
        if (m.fetches && m.arrived < m.packets) return &m;
    }
    return nullptr;
}

void responded(DeviceState& s, Qp* qp, const Packet& packet) {
    Message* m = oldest_fetch(qp);
    if (qp->state != MLX5_QPC_STATE_RTS || !m || m->syndrome) return;
    const uint32_t psn = static_cast<uint32_t>(GDA_GET(bth, packet.header, psn));
    const uint32_t operation = static_cast<uint32_t>(GDA_GET(bth_parts, packet.header, operation));
    const int32_t ahead = psn_difference(psn, psn_add(m->first_psn, m->arrived));
    if (ahead < 0) return;  // taken before
    if (ahead > 0) {        // one before it was lost
        return ask_again(s, qp, psn_add(m->first_psn, m->arrived));
    }
    const bool atomic = operation == RC_ATOMIC_ACKNOWLEDGE;
    if (atomic != is_atomic(m->opcode)) return;
    if (!place_response(s, qp, m, packet, atomic)) {
        // What is before it was answered with it; then its own fault is told.
        if (m->syndrome) advance(s, qp, psn_add(psn, 0xffffff));
        return;
    }
    const uint32_t count = packets_for(qp, packet.payload_bytes);
    m->arrived += count;
    s.trace.note(TRACE_RESPONSE, qp->number, m->index, packet.payload_bytes, psn, qp->remote_qpn, m->opcode, 0,
                 Trace::NOW);
    if (m->arrived == m->packets) --qp->fetches;
    ++s.done;
    advance(s, qp, psn_add(psn, count - 1));
}

}  // namespace sim
