// SPDX-License-Identifier: Apache-2.0
// See transmit.h. Source of the headers: InfiniBand Architecture Specification, volume 1, "Transport Layer".

#include "sim/engine/transmit.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cstring>

#include "sim/engine/retry.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t BYTES_PER_TURN = 65536;  // a packet of more counts as several

// The operation, as RC numbers it.
uint8_t operation_of(uint8_t wqe_opcode, bool first, bool last) {
    const bool immediate = has_immediate(wqe_opcode);
    if (is_write(wqe_opcode)) {
        if (first && last) return immediate ? RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE : RC_RDMA_WRITE_ONLY;
        if (first) return RC_RDMA_WRITE_FIRST;
        if (!last) return RC_RDMA_WRITE_MIDDLE;
        return immediate ? RC_RDMA_WRITE_LAST_WITH_IMMEDIATE : RC_RDMA_WRITE_LAST;
    }
    if (first && last) return immediate ? RC_SEND_ONLY_WITH_IMMEDIATE : RC_SEND_ONLY;
    if (first) return RC_SEND_FIRST;
    if (!last) return RC_SEND_MIDDLE;
    return immediate ? RC_SEND_LAST_WITH_IMMEDIATE : RC_SEND_LAST;
}

void begin_header(const Qp* qp, const ParsedWqe& wqe, uint32_t psn, bool last, Packet* packet) {
    uint8_t* h = packet->header;
    GDA_SET(bth, h, se, last && wqe.solicited);
    GDA_SET(bth, h, pkey, 0xffff);
    GDA_SET(bth, h, dest_qp, qp->datagrams() ? wqe.to_qpn : qp->remote_qpn);
    GDA_SET(bth, h, ack_req, last && qp->reliable());
    GDA_SET(bth, h, psn, psn);
    packet->header_bytes = GDA_BYTES_OF(bth);
}

void add_reth(const ParsedWqe& wqe, uint64_t offset, Packet* packet) {
    uint8_t* at = packet->header + packet->header_bytes;
    GDA_SET(reth, at, va, wqe.remote_address + offset);
    GDA_SET(reth, at, rkey, wqe.remote_key);
    GDA_SET(reth, at, dma_length, wqe.bytes - offset);
    packet->header_bytes += GDA_BYTES_OF(reth);
}

void build_header(const DeviceState& s, const Qp* qp, const ParsedWqe& wqe, uint32_t psn, bool first, bool last,
                  Packet* packet) {
    uint8_t* h = packet->header;
    begin_header(qp, wqe, psn, last, packet);
    GDA_SET(bth, h, opcode, operation_of(wqe.opcode, first, last));
    if (qp->reliable()) {
        std::memcpy(packet->source, qp->local_gid, 16);
        std::memcpy(packet->destination, qp->remote_gid, 16);
    } else if (qp->datagrams()) {
        GDA_SET(bth_parts, h, transport, BTH_UD);
        uint8_t* at = h + packet->header_bytes;
        GDA_SET(deth, at, qkey, wqe.q_key);
        GDA_SET(deth, at, src_qp, qp->number);
        packet->header_bytes += GDA_BYTES_OF(deth);
        std::memcpy(packet->source, s.gids[wqe.from_gid], 16);
        std::memcpy(packet->destination, wqe.to_gid, 16);
    } else {
        GDA_SET(bth_parts, h, transport, BTH_UC);
        std::memcpy(packet->source, qp->local_gid, 16);
        std::memcpy(packet->destination, qp->remote_gid, 16);
    }
    if (first && is_write(wqe.opcode)) add_reth(wqe, 0, packet);
    if (last && has_immediate(wqe.opcode)) {
        GDA_SET(immdt, h + packet->header_bytes, imm, wqe.immediate);
        packet->header_bytes += GDA_BYTES_OF(immdt);
    }
}

// The request of a read (from `offset` on) or of an atomic: no payload.
void build_fetch(const Qp* qp, const ParsedWqe& wqe, uint32_t psn, uint64_t offset, Packet* packet) {
    begin_header(qp, wqe, psn, true, packet);
    std::memcpy(packet->source, qp->local_gid, 16);
    std::memcpy(packet->destination, qp->remote_gid, 16);
    uint8_t* h = packet->header;
    if (wqe.opcode == MLX5_OPCODE_RDMA_READ) {
        GDA_SET(bth, h, opcode, RC_RDMA_READ_REQUEST);
        return add_reth(wqe, offset, packet);
    }
    const AtomicOperation& o = wqe.atomic;
    const bool masked = wqe.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || wqe.opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
    if (masked) {
        GDA_SET(bth, h, opcode, o.compares ? OWN_MASKED_COMPARE_SWAP : OWN_MASKED_FETCH_ADD);
    } else {
        GDA_SET(bth, h, opcode, o.compares ? RC_COMPARE_SWAP : RC_FETCH_ADD);
    }
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

// The part [offset, offset + bytes) of the message as a list for the link. GPU memory is brought to the CPU for links
// that leave this NIC. False: it could not be read (a sentence was said).
bool gather(DeviceState& s, Qp* qp, bool local, const ParsedWqe& wqe, uint64_t offset, uint64_t bytes, iovec* list,
            size_t* count) {
    uint64_t bounced = 0;
    *count = 0;
    for (size_t i = 0; i < wqe.pieces && bytes; ++i) {
        const Span& piece = wqe.piece[i];
        if (offset >= piece.bytes) {
            offset -= piece.bytes;
            continue;
        }
        const uint64_t part = std::min(bytes, piece.bytes - offset);
        uint8_t* from = piece.address + offset;
        if (piece.gpu && !local) {
            from = bring_to_host(s, {from, part, piece.gpu}, bounced, qp->name);
            if (!from) return false;
            bounced += part;
        }
        list[(*count)++] = {from, part};
        bytes -= part;
        offset = 0;
    }
    return true;
}

void sent(DeviceState& s, Qp* qp, uint64_t bytes) {
    s.report.count(Counter::packets_sent);
    s.report.count(Counter::bytes_sent, bytes);
    ++s.done;
    if (!qp->deadline_ns && qp->reliable()) {
        qp->first_try_ns = s.now_ns;
        await(s, qp);
    }
}

}  // namespace

Link* link_to(DeviceState& s, const uint8_t gid[16]) {
    bool own = false;
    for (const Gid& g : s.gids) own = own || std::memcmp(g, gid, sizeof g) == 0;
    return own || !s.shm ? static_cast<Link*>(s.loopback.get()) : s.shm.get();
}

uint32_t packets_of(const Qp* qp, const ParsedWqe& wqe) {
    if (!qp->link || wqe.atomic.bytes) return 1;
    const uint64_t mtu = qp->link->run_bytes();
    return static_cast<uint32_t>(std::max<uint64_t>(1, (wqe.bytes + mtu - 1) / mtu));
}

Sent transmit(DeviceState& s, Qp* qp, const ParsedWqe& wqe, int* budget) {
    Message& m = qp->sent[qp->cursor];
    Link* link = qp->link ? qp->link : link_to(s, wqe.to_gid);
    const uint64_t mtu = link->run_bytes();
    const uint32_t packets = m.packets, first_psn = m.first_psn;
    uint32_t at = static_cast<uint32_t>(psn_difference(qp->cursor_psn, first_psn));
    if (m.fetches) {
        Packet packet;
        build_fetch(qp, wqe, qp->cursor_psn, at * mtu, &packet);
        --*budget;
        if (!link->send(packet)) {
            s.report.count(Counter::link_full);
            return Sent::no_room;
        }
        sent(s, qp, 0);
        qp->cursor_psn = psn_add(first_psn, packets);
        ++qp->cursor;
        return Sent::all;
    }
    iovec list[64];
    for (; at < packets; ++at) {
        if (*budget <= 0) return Sent::no_room;
        Packet packet;
        const uint64_t offset = at * mtu, bytes = std::min(mtu, wqe.bytes - offset);
        *budget -= 1 + static_cast<int>(bytes / BYTES_PER_TURN);
        bool readable = gather(s, qp, link == s.loopback.get(), wqe, offset, bytes, list, &packet.payload_count);
        if (readable) {
            build_header(s, qp, wqe, qp->cursor_psn, at == 0, at + 1 == packets, &packet);
            packet.payload = list;
            packet.payload_bytes = bytes;
            if (!link->send(packet)) {
                s.report.count(Counter::link_full);
                return Sent::no_room;
            }
            readable = !packet.unreadable;
        }
        if (!readable) {
            s.report.say(std::string(qp->name) +
                         text(": WQE %u: its payload cannot be read (registered memory that is no longer "
                              "mapped): local protection error",
                              m.index));
            m.syndrome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
            m.vendor = VENDOR_LOCAL_UNMAPPED;
            return Sent::stopped;
        }
        sent(s, qp, bytes);
        qp->cursor_psn = psn_add(qp->cursor_psn, 1);
    }
    ++qp->cursor;
    return Sent::all;
}

}  // namespace sim
