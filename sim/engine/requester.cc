// SPDX-License-Identifier: Apache-2.0
// See requester.h. Source of the transport rules: InfiniBand Architecture Specification, volume 1, "Transport Layer".

#include "sim/engine/requester.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/completion.h"
#include "sim/engine/responder.h"
#include "sim/engine/retry.h"
#include "sim/engine/vendor.h"
#include "sim/engine/wqe.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t BYTES_PER_TURN = 65536;  // a packet of more counts as several
const int BUDGET = 256;                 // packets per queue pair and round: others want their turn
void complete_error(DeviceState& s, Qp* qp, const Message& m, uint8_t syndrome, uint8_t vendor) {
    Completion c;
    c.opcode = MLX5_CQE_REQ_ERR;
    c.wqe_opcode = m.opcode;
    c.index = m.index;
    c.syndrome = syndrome;
    c.vendor = vendor;
    complete(s, qp->send_cq, *qp, c);
}

uint8_t packet_opcode(uint8_t wqe_opcode, bool first, bool last) {
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

void build_header(const Qp* qp, const ParsedWqe& wqe, uint32_t psn, bool first, bool last, Packet* packet) {
    uint8_t* h = packet->header;
    const uint8_t opcode = packet_opcode(wqe.opcode, first, last);
    GDA_SET(bth, h, opcode, opcode);
    GDA_SET(bth, h, se, last && wqe.solicited);
    GDA_SET(bth, h, pkey, 0xffff);
    GDA_SET(bth, h, dest_qp, qp->remote_qpn);
    GDA_SET(bth, h, ack_req, last);
    GDA_SET(bth, h, psn, psn);
    uint32_t bytes = GDA_BYTES_OF(bth);
    if (first && is_write(wqe.opcode)) {
        GDA_SET(reth, h + bytes, va, wqe.remote_address);
        GDA_SET(reth, h + bytes, rkey, wqe.remote_key);
        GDA_SET(reth, h + bytes, dma_length, wqe.bytes);
        bytes += GDA_BYTES_OF(reth);
    }
    if (last && has_immediate(wqe.opcode)) {
        GDA_SET(immdt, h + bytes, imm, wqe.immediate);
        bytes += GDA_BYTES_OF(immdt);
    }
    packet->header_bytes = bytes;
    std::memcpy(packet->source, qp->local_gid, 16);
    std::memcpy(packet->destination, qp->remote_gid, 16);
}

// The part [offset, offset + bytes) of the message as a list for the link. GPU memory is brought to the CPU for links
// that leave this NIC. False: it could not be read (a sentence was said).
bool gather(DeviceState& s, Qp* qp, const ParsedWqe& wqe, uint64_t offset, uint64_t bytes, iovec* list, size_t* count) {
    const bool local = qp->link == s.loopback.get();
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
            s.bounce.resize(qp->link->mtu_bytes());
            const Span to = {s.bounce.data() + bounced, part, nullptr};
            if (copy(s, to, 0, {from, part, piece.gpu}, qp->name) != Copied::yes) return false;
            from = s.bounce.data() + bounced;
            bounced += part;
        }
        list[(*count)++] = {from, part};
        bytes -= part;
        offset = 0;
    }
    return true;
}

enum class Sent { all, no_room, stopped };

// Sends the message at the cursor from its next packet on.
Sent transmit(DeviceState& s, Qp* qp, const ParsedWqe& wqe, int* budget) {
    Message& m = qp->sent[qp->cursor];
    const uint64_t mtu = qp->link->mtu_bytes();
    const uint32_t packets = m.packets, first_psn = m.first_psn;
    uint32_t at = static_cast<uint32_t>(psn_difference(qp->cursor_psn, first_psn));
    iovec list[64];
    for (; at < packets; ++at) {
        if (*budget <= 0) return Sent::no_room;
        Packet packet;
        const uint64_t offset = at * mtu, bytes = std::min(mtu, wqe.bytes - offset);
        *budget -= 1 + static_cast<int>(bytes / BYTES_PER_TURN);
        bool readable = gather(s, qp, wqe, offset, bytes, list, &packet.payload_count);
        if (readable) {
            build_header(qp, wqe, qp->cursor_psn, at == 0, at + 1 == packets, &packet);
            packet.payload = list;
            packet.payload_bytes = bytes;
            if (!qp->link->send(packet)) {
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
        s.report.count(Counter::packets_sent);
        ++s.done;
        qp->cursor_psn = psn_add(qp->cursor_psn, 1);
        if (!qp->deadline_ns) {
            qp->first_try_ns = s.now_ns;
            await(s, qp);
        }
    }
    ++qp->cursor;
    return Sent::all;
}

void pump(DeviceState& s, Qp* qp) {
    int budget = BUDGET;
    while (qp->state == MLX5_QPC_STATE_RTS && !qp->failing && budget > 0) {
        if (qp->rnr_until_ns) {
            if (s.now_ns < qp->rnr_until_ns) return;
            qp->rnr_until_ns = 0;
        }
        ParsedWqe wqe;
        if (qp->cursor == qp->sent.size()) {
            if (qp->next == qp->producer) return;
            parse_wqe(s, qp, qp->next, &wqe);
            Message m;
            m.index = qp->next;
            m.blocks = wqe.blocks;
            m.opcode = wqe.opcode;
            m.completion = wqe.completion;
            m.bytes = wqe.bytes;
            m.syndrome = wqe.syndrome;
            m.vendor = wqe.vendor;
            m.first_psn = qp->next_psn;
            const uint64_t mtu = qp->link->mtu_bytes();
            if (!m.syndrome && m.opcode != MLX5_OPCODE_NOP) {
                m.packets = static_cast<uint32_t>(std::max<uint64_t>(1, (m.bytes + mtu - 1) / mtu));
            }
            qp->next_psn = psn_add(qp->next_psn, m.packets);
            qp->cursor_psn = m.first_psn;
            qp->next = static_cast<uint16_t>(qp->next + m.blocks);
            qp->sent.push_back(m);
            s.report.count(Counter::wqes);
            ++s.done;
        } else if (!qp->sent[qp->cursor].syndrome && qp->sent[qp->cursor].packets) {  // again, or the rest of it
            Message& m = qp->sent[qp->cursor];
            parse_wqe(s, qp, m.index, &wqe);
            if (!wqe.syndrome && wqe.bytes != m.bytes) {
                s.report.say(std::string(qp->name) + text(": WQE %u was overwritten while it was being sent", m.index));
                wqe.syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
                wqe.vendor = VENDOR_STALE_WQE;
            }
            m.syndrome = wqe.syndrome;
            m.vendor = wqe.vendor;
            if (psn_difference(qp->cursor_psn, m.first_psn) < 0) qp->cursor_psn = m.first_psn;
        }
        const Message& m = qp->sent[qp->cursor];
        if (m.syndrome) {
            retire(s, qp);
            return;  // told now, or when what is before it is done
        }
        if (m.packets == 0) {
            ++qp->cursor;
            if (qp->cursor < qp->sent.size()) qp->cursor_psn = qp->sent[qp->cursor].first_psn;
            retire(s, qp);
            continue;
        }
        const Sent sent = transmit(s, qp, wqe, &budget);
        if (sent == Sent::stopped) retire(s, qp);
        if (sent != Sent::all) return;
        if (qp->cursor < qp->sent.size()) qp->cursor_psn = qp->sent[qp->cursor].first_psn;
    }
}

}  // namespace

// The oldest message failed: its error completion, and everything after it is flushed.
void fail_oldest(DeviceState& s, Qp* qp, uint8_t syndrome, uint8_t vendor) {
    const Message m = qp->sent.front();
    qp->sent.pop_front();
    qp->retired = static_cast<uint16_t>(m.index + m.blocks);
    if (qp->cursor) --qp->cursor;
    complete_error(s, qp, m, syndrome, vendor);
    enter_error(s, qp);
}

// Completes, in order, what the peer has acknowledged and what needs no answer.
void retire(DeviceState& s, Qp* qp) {
    while (!qp->sent.empty()) {
        const Message& m = qp->sent.front();
        if (m.syndrome) return fail_oldest(s, qp, m.syndrome, m.vendor);
        if (qp->cursor == 0) return;
        if (m.packets && psn_difference(psn_add(m.first_psn, m.packets - 1), qp->acked_psn) > 0) return;
        const Message done = m;
        qp->sent.pop_front();
        --qp->cursor;
        qp->retired = static_cast<uint16_t>(done.index + done.blocks);
        ++s.done;
        if (done.completion != CE_ALWAYS) continue;
        Completion c;
        c.opcode = MLX5_CQE_REQ;
        c.wqe_opcode = done.opcode;
        c.index = done.index;
        c.bytes = static_cast<uint32_t>(done.bytes);
        complete(s, qp->send_cq, *qp, c);
    }
}

bool serve(DeviceState& s, Qp* qp) {
    if (qp->owes) send_answer(s, qp, qp->owed_syndrome, qp->owed_psn);
    if (qp->failing && !qp->owes) enter_error(s, qp);
    if (qp->state == MLX5_QPC_STATE_ERR) {
        flush_sends(s, qp);
        flush_receives(s, qp);
        return true;  // what is posted later must be flushed too
    }
    if (qp->announced_ns && s.now_ns - qp->announced_ns > milliseconds(20)) {
        s.report.say(
            text("%s: the doorbell was rung for producer index %u, but its record still says %u: the record was "
                 "not stored (send counter: second dword, big-endian), or stored after the doorbell",
                 qp->name, qp->announced, qp->producer));
        qp->announced_ns = 0;
    }
    if (qp->state == MLX5_QPC_STATE_RTS) {
        check_timers(s, qp);
        pump(s, qp);
    }
    const bool sending = qp->state == MLX5_QPC_STATE_RTS && (!qp->sent.empty() || qp->next != qp->producer);
    return sending || qp->owes || qp->failing || qp->announced_ns || qp->state == MLX5_QPC_STATE_ERR;
}

void produced(DeviceState& s, Qp* qp, uint16_t producer) {
    const uint16_t ahead = static_cast<uint16_t>(producer - qp->producer);
    if (ahead == 0) return;
    const uint16_t back = static_cast<uint16_t>(qp->producer - producer);
    if (ahead > qp->send_blocks && back <= qp->send_blocks) {
        if (!qp->recordless) {  // without a record two doorbells may pass each other: the older one does not count
            s.report.say(
                text("%s: doorbell record went back %u\u2192%u: a later publisher stored it before an earlier one",
                     qp->name, qp->producer, producer));
        }
        return;
    }
    const uint16_t held = static_cast<uint16_t>(producer - qp->retired);
    if (held > qp->send_blocks) {
        s.report.say(
            text("%s: SQ overrun PI-CI=%u > %u: producer index %u, completed up to %u; slots were overwritten "
                 "before their completion",
                 qp->name, held, qp->send_blocks, producer, qp->retired));
    }
    qp->producer = producer;
    if (qp->announced_ns && static_cast<int16_t>(qp->announced - producer) <= 0) qp->announced_ns = 0;
    if (s.window_qp == qp) s.window_qp = nullptr;
    ++s.done;
    s.look_at(qp);
}

void flush_sends(DeviceState& s, Qp* qp) {
    while (!qp->sent.empty() || qp->next != qp->producer) {
        Message m;
        if (!qp->sent.empty()) {
            m = qp->sent.front();
            qp->sent.pop_front();
        } else {
            m.index = qp->next;
            m.blocks = wqe_blocks(s, qp, qp->next, &m.opcode);
            qp->next = static_cast<uint16_t>(qp->next + m.blocks);
        }
        qp->retired = static_cast<uint16_t>(m.index + m.blocks);
        complete_error(s, qp, m, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    }
    qp->cursor = 0;
}

void enter_error(DeviceState& s, Qp* qp) {
    qp->failing = false;
    if (qp->state == MLX5_QPC_STATE_RST || qp->state == MLX5_QPC_STATE_ERR) return;
    qp->state = MLX5_QPC_STATE_ERR;
    qp->deadline_ns = qp->rnr_until_ns = qp->announced_ns = 0;
    flush_sends(s, qp);
    flush_receives(s, qp);
    s.look_at(qp);
}

void forget(DeviceState& s, Qp* qp) {
    if (s.window_qp == qp) s.window_qp = nullptr;
    s.busy.erase(std::remove(s.busy.begin(), s.busy.end(), qp), s.busy.end());
    qp->busy = false;
}

}  // namespace sim
