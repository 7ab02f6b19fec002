// SPDX-License-Identifier: Apache-2.0
// See transmit.h. Source of the headers: InfiniBand Architecture Specification, volume 1, "Transport Layer".

#include "sim/engine/transmit.h"

#include <algorithm>
#include <cstring>

#include "sim/engine/packet.h"
#include "sim/engine/poster.h"
#include "sim/engine/retry.h"
#include "sim/engine/shadow.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t BYTES_PER_TURN = 65536;  // a run of more counts as several packets
const uint32_t WINDOW_PACKETS = 32;     // of 4 KiB fit into a socket's buffer as the system makes it
const uint32_t ASK_EVERY = 16;          // packets of a long message for which an answer is asked before its end

// The operation, as RC numbers it.
uint8_t operation_of(uint8_t wqe_opcode, bool first, bool last) {
    const bool immediate = has_immediate(wqe_opcode);
    if (is_write(wqe_opcode)) {
        if (first && last) return immediate ? RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE : RC_RDMA_WRITE_ONLY;
        if (first) return RC_RDMA_WRITE_FIRST;
        if (!last) return RC_RDMA_WRITE_MIDDLE;
        return immediate ? RC_RDMA_WRITE_LAST_WITH_IMMEDIATE : RC_RDMA_WRITE_LAST;
    }
    if (last && wqe_opcode == MLX5_OPCODE_SEND_INVAL) {
        return first ? RC_SEND_ONLY_WITH_INVALIDATE : RC_SEND_LAST_WITH_INVALIDATE;
    }
    if (first && last) return immediate ? RC_SEND_ONLY_WITH_IMMEDIATE : RC_SEND_ONLY;
    if (first) return RC_SEND_FIRST;
    if (!last) return RC_SEND_MIDDLE;
    return immediate ? RC_SEND_LAST_WITH_IMMEDIATE : RC_SEND_LAST;
}

void add_reth(const ParsedWqe& wqe, uint64_t offset, Packet* packet) {
    uint8_t* at = packet->header + packet->header_bytes;
    GDA_SET(reth, at, va, wqe.remote_address + offset);
    GDA_SET(reth, at, rkey, wqe.remote_key);
    GDA_SET(reth, at, dma_length, wqe.bytes - offset);
    packet->header_bytes += GDA_BYTES_OF(reth);
}

void add_xrceth(const ParsedWqe& wqe, Packet* packet) {
    GDA_SET(xrceth, packet->header + packet->header_bytes, xrcsrq, wqe.xrc_srqn);
    packet->header_bytes += GDA_BYTES_OF(xrceth);
}

uint8_t masked_opcode(const Qp* qp, bool compares) {
    if (qp->over_xrc()) return compares ? XRC_MASKED_COMPARE_SWAP : XRC_MASKED_FETCH_ADD;
    if (qp->dc_initiator()) return compares ? DC_MASKED_COMPARE_SWAP : DC_MASKED_FETCH_ADD;
    return compares ? OWN_MASKED_COMPARE_SWAP : OWN_MASKED_FETCH_ADD;
}

// Of a request that carries payload, or of the part of one that has begun.
void build_request(const DeviceState& s, const Qp* qp, const ParsedWqe& wqe, uint32_t psn, bool first, bool last,
                   bool ask, Packet* packet) {
    uint8_t* h = packet->header;
    begin_packet(qp, operation_of(wqe.opcode, first, last), psn, packet);
    GDA_SET(bth, h, se, last && wqe.solicited);
    GDA_SET(bth, h, ack_req, ask && qp->reliable());
    if (qp->datagrams()) {
        GDA_SET(bth, h, dest_qp, wqe.to_qpn);
        uint8_t* at = h + packet->header_bytes;
        GDA_SET(deth, at, qkey, wqe.q_key);
        GDA_SET(deth, at, src_qp, qp->number);
        packet->header_bytes += GDA_BYTES_OF(deth);
        packet->version1 = s.gid_version1[wqe.from_gid];
        std::memcpy(packet->source, s.gids[wqe.from_gid], sizeof packet->source);
        std::memcpy(packet->destination, wqe.to_gid, sizeof packet->destination);
    }
    if (qp->over_xrc()) add_xrceth(wqe, packet);
    if (first && is_write(wqe.opcode)) add_reth(wqe, 0, packet);
    if (last && has_immediate(wqe.opcode)) {
        GDA_SET(immdt, h + packet->header_bytes, imm, wqe.immediate);
        packet->header_bytes += GDA_BYTES_OF(immdt);
    }
    if (last && wqe.opcode == MLX5_OPCODE_SEND_INVAL) {
        GDA_SET(ieth, h + packet->header_bytes, rkey, wqe.immediate);
        packet->header_bytes += GDA_BYTES_OF(ieth);
    }
}

// The request of a read (from `offset` on) or of an atomic: no payload.
void build_fetch(const Qp* qp, const ParsedWqe& wqe, uint32_t psn, uint64_t offset, Packet* packet) {
    const AtomicOperation& o = wqe.atomic;
    const bool masked = wqe.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || wqe.opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
    const uint8_t opcode = wqe.opcode == MLX5_OPCODE_RDMA_READ ? static_cast<uint8_t>(RC_RDMA_READ_REQUEST)
                           : masked ? masked_opcode(qp, o.compares)
                                    : static_cast<uint8_t>(o.compares ? RC_COMPARE_SWAP : RC_FETCH_ADD);
    begin_packet(qp, opcode, psn, packet);
    uint8_t* h = packet->header;
    GDA_SET(bth, h, se, wqe.solicited);
    GDA_SET(bth, h, ack_req, 1);
    if (qp->over_xrc()) add_xrceth(wqe, packet);
    if (wqe.opcode == MLX5_OPCODE_RDMA_READ) return add_reth(wqe, offset, packet);
    uint8_t* at = h + packet->header_bytes;
    GDA_SET(atomiceth, at, va, wqe.remote_address);
    GDA_SET(atomiceth, at, rkey, wqe.remote_key);
    GDA_SET(atomiceth, at, swap_add, o.swap_add);
    GDA_SET(atomiceth, at, compare, o.compare);
    packet->header_bytes += GDA_BYTES_OF(atomiceth);
    if (!masked) return;
    at = h + packet->header_bytes;
    GDA_SET(atomic_mask, at, swap_mask, o.swap_mask);
    GDA_SET(atomic_mask, at, compare_mask, o.compare_mask);
    GDA_SET(atomic_mask, at, bytes, o.bytes);
    packet->header_bytes += GDA_BYTES_OF(atomic_mask);
}

// The part [offset, offset + bytes) of the message as a list for the link, in s.parts. GPU memory is brought to the CPU
// for links that leave this NIC. False: it could not be read (a sentence was said).
bool gather(DeviceState& s, Qp* qp, bool local, const ParsedWqe& wqe, uint64_t offset, uint64_t bytes) {
    uint64_t bounced = 0;
    s.parts.clear();
    for (size_t i = 0; i < wqe.pieces && bytes; ++i) {
        const Span& piece = wqe.piece[i];
        if (offset >= piece.bytes) {
            offset -= piece.bytes;
            continue;
        }
        const uint64_t part = std::min(bytes, piece.bytes - offset);
        if (!list_parts(s, piece, offset, part, local, &bounced, &s.parts, qp->name)) return false;
        bytes -= part;
        offset = 0;
    }
    return true;
}

// A cable that takes single packets may lose them: only so many are on their way, and answers are asked for meanwhile.
bool in_window(const Qp* qp, const Link* link) {
    if (psn_difference(qp->cursor_psn, psn_add(qp->acked_psn, 1)) < static_cast<int32_t>(WINDOW_PACKETS)) return true;
    return !qp->reliable() || link->run_bytes() >= qp->mtu;
}

// Hands it over, with what it says of itself to people. False: no room.
bool hand_over(DeviceState& s, Qp* qp, const Message& m, Link* link, uint32_t packets, Packet* packet) {
    packet->note_index = m.index;
    packet->note_again = psn_difference(qp->cursor_psn, qp->fresh_psn) < 0;
    if (s.port->capture().on()) packet->note_words = who_posted(s, qp, m);
    // Before: a loopback delivers within the call. Others may take long.
    const uint64_t left = s.port->in_place(link) ? s.trace.latest() : s.trace.now();
    if (!link->send(*packet)) {
        s.report.count(Counter::link_full);
        return false;
    }
    if (packet->unreadable) return true;
    if (packet->later) return false;
    s.trace.note(TRACE_SEND, qp->number, m.index, packet->payload_bytes, qp->cursor_psn, qp->remote_qpn,
                 static_cast<uint32_t>(GDA_GET(bth, packet->header, opcode)), packet->note_again ? TRACE_AGAIN : 0,
                 left);
    s.report.count(Counter::packets_sent);
    s.report.count(Counter::bytes_sent, packet->payload_bytes);
    if (packet->note_again) s.report.count(Counter::packets_resent);
    ++s.done;
    if (!qp->deadline_ns && qp->reliable()) {
        qp->first_try_ns = s.now_ns;
        await(s, qp);
    }
    qp->cursor_psn = psn_add(qp->cursor_psn, packets);
    if (psn_difference(qp->cursor_psn, qp->fresh_psn) > 0) qp->fresh_psn = qp->cursor_psn;
    return true;
}

}  // namespace

uint32_t packets_of(const Qp* qp, const ParsedWqe& wqe) { return wqe.atomic.bytes ? 1 : packets_for(qp, wqe.bytes); }

Sent transmit(DeviceState& s, Qp* qp, const ParsedWqe& wqe, int* budget) {
    Message& m = qp->sent[qp->cursor];
    Link* link = qp->link ? qp->link : s.port->route(wqe.to_gid);
    const uint32_t packets = m.packets, first_psn = m.first_psn;
    uint32_t at = static_cast<uint32_t>(psn_difference(qp->cursor_psn, first_psn));
    if (m.fetches) {
        if (!in_window(qp, link)) return Sent::no_room;
        Packet packet;
        build_fetch(qp, wqe, qp->cursor_psn, uint64_t{at} * qp->mtu, &packet);
        packet.may_wait = s.port->in_place(link);
        --*budget;
        if (!hand_over(s, qp, m, link, packets - at, &packet)) return Sent::no_room;
        ++qp->cursor;
        return Sent::all;
    }
    while (at < packets) {
        if (*budget <= 0 || !in_window(qp, link)) return Sent::no_room;
        Packet packet;
        const uint64_t offset = uint64_t{at} * qp->mtu;
        const uint64_t bytes = portion(qp, link, wqe.bytes - offset);
        const uint32_t count = packets_for(qp, bytes);
        const bool last = at + count == packets;
        *budget -= 1 + static_cast<int>(bytes / BYTES_PER_TURN);
        packet.may_wait = s.port->in_place(link);
        bool readable = gather(s, qp, packet.may_wait, wqe, offset, bytes);
        if (readable) {
            if (s.shadows) s.shadows->look_through(s, qp, m.index, &s.parts);
            const bool ask = last || (qp->cursor_psn + count) % ASK_EVERY < count;
            build_request(s, qp, wqe, qp->cursor_psn, at == 0, last, ask, &packet);
            set_payload(qp, s.parts.data(), s.parts.size(), bytes, &packet);
            if (!hand_over(s, qp, m, link, count, &packet)) return Sent::no_room;
            readable = !packet.unreadable;
        }
        if (!readable) {
            s.report.say(Kind::memory_gone,
                         std::string(qp->name) +
                             text(": WQE %u: its payload cannot be read (registered memory that is no longer "
                                  "mapped): local protection error",
                                  m.index),
                         {{"qp", qp->number}, {"index", m.index}});
            m.syndrome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
            m.vendor = VENDOR_LOCAL_UNMAPPED;
            return Sent::stopped;
        }
        at += count;
    }
    ++qp->cursor;
    return Sent::all;
}

}  // namespace sim
