// SPDX-License-Identifier: Apache-2.0
// See responder.h. Source of the transport rules: InfiniBand Architecture Specification, volume 1, "Responder"; which
// answer follows which fault was compared with the Linux kernel's soft-RoCE.

#include "sim/engine/responder.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/completion.h"
#include "sim/engine/memory.h"
#include "sim/engine/requester.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

struct Request {
    bool write, first, last, immediate;
};

bool classify(uint32_t opcode, Request* r) {
    switch (opcode) {
        case RC_SEND_FIRST:
            return *r = {false, true, false, false}, true;
        case RC_SEND_MIDDLE:
            return *r = {false, false, false, false}, true;
        case RC_SEND_LAST:
            return *r = {false, false, true, false}, true;
        case RC_SEND_LAST_WITH_IMMEDIATE:
            return *r = {false, false, true, true}, true;
        case RC_SEND_ONLY:
            return *r = {false, true, true, false}, true;
        case RC_SEND_ONLY_WITH_IMMEDIATE:
            return *r = {false, true, true, true}, true;
        case RC_RDMA_WRITE_FIRST:
            return *r = {true, true, false, false}, true;
        case RC_RDMA_WRITE_MIDDLE:
            return *r = {true, false, false, false}, true;
        case RC_RDMA_WRITE_LAST:
            return *r = {true, false, true, false}, true;
        case RC_RDMA_WRITE_LAST_WITH_IMMEDIATE:
            return *r = {true, false, true, true}, true;
        case RC_RDMA_WRITE_ONLY:
            return *r = {true, true, true, false}, true;
        case RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
            return *r = {true, true, true, true}, true;
    }
    return false;
}

void complete_receive(DeviceState& s, Qp* qp, uint8_t opcode, uint64_t bytes, uint32_t immediate, bool solicited,
                      uint8_t syndrome = 0, uint8_t vendor = 0) {
    Completion c;
    c.opcode = opcode;
    c.index = qp->receive.index;
    c.bytes = static_cast<uint32_t>(bytes);
    c.immediate = immediate;
    c.solicited = solicited;
    c.syndrome = syndrome;
    c.vendor = vendor;
    qp->receive.open = false;
    complete(s, qp->receive_cq, *qp, c);
}

// The request is refused for good: the peer is told, an open receive ends in error, and the queue pair goes to ERR
// once the answer is on its way.
void refuse(DeviceState& s, Qp* qp, uint32_t psn, aeth_syndrome answer, cqe_syndrome syndrome, uint8_t vendor,
            const std::string& why) {
    s.report.say(std::string(qp->name) + ": refused a request of the peer: " + why);
    s.report.count(Counter::naks_sent);
    send_answer(s, qp, static_cast<uint8_t>(answer), psn);
    if (qp->receive.open) {
        complete_receive(s, qp, MLX5_CQE_RESP_ERR, 0, 0, false, static_cast<uint8_t>(syndrome), vendor);
    }
    s.pending.push_back(
        {false, qp->number,
         answer == AETH_NAK_REMOTE_ACCESS ? AsyncEvent::qp_access_error : AsyncEvent::qp_request_error});
    qp->failing = true;
    s.look_at(qp);
}

uint16_t posted_receives(DeviceState& s, Qp* qp) {
    uint32_t record[2] = {0, 0};
    if (!qp->has_receives || !qp->record.umem) return qp->receive_next;
    if (!read_word(s, qp->record, GDA_DWORD_OFFSET(qp_doorbell_record, receive_counter), &record[0], qp->name)) {
        return qp->receive_next;
    }
    return static_cast<uint16_t>(GDA_GET(qp_doorbell_record, record, receive_counter));
}

// Opens the next receive WQE. False: none is posted.
bool open_receive(DeviceState& s, Qp* qp) {
    const uint16_t posted = posted_receives(s, qp);
    if (posted == qp->receive_next) return false;
    if (static_cast<uint16_t>(posted - qp->receive_next) > qp->receive_entries) {
        s.report.say(text("%s: RQ overrun: the receive record says %u, taken so far %u, the ring has %u entries",
                          qp->name, posted, qp->receive_next, qp->receive_entries));
        return false;
    }
    uint8_t list[32 * WQE_SEGMENT_BYTES];
    const uint32_t stride = std::min<uint32_t>(qp->receive_stride, sizeof list);
    const uint32_t slot = qp->receive_next & (qp->receive_entries - 1);
    if (!read_ring(s, qp->receive_ring, uint64_t{slot} * qp->receive_stride, list, stride, qp->name)) {
        return false;
    }
    Receive& r = qp->receive;
    r.open = true;
    r.index = qp->receive_next++;
    r.pieces = 0;
    r.filled = 0;
    for (uint32_t at = 0; at < stride; at += WQE_SEGMENT_BYTES) {
        const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_data_seg, list + at, lkey));
        const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_data_seg, list + at, byte_count));
        if (key == LKEY_END_OF_LIST) break;
        if (bytes) r.piece[r.pieces++] = {key, GDA_GET(wqe_data_seg, list + at, addr), bytes};
    }
    return true;
}

// Places payload at `span`+`offset`. False: it ended here (memory is gone on either side).
bool place(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn, const Span& span, uint64_t offset,
           const iovec& part, uint8_t vendor) {
    const Copied result = copy(s, span, offset, payload_span(s, part), qp->name);
    if (result == Copied::no_source) {
        packet.unreadable = true;  // the sender's fault; as if nothing had come
        return false;
    }
    if (result == Copied::no_destination) {
        refuse(s, qp, psn, AETH_NAK_REMOTE_OPERATIONAL, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, vendor,
               "its memory cannot be written");
        return false;
    }
    s.report.count(Counter::bytes_written, part.iov_len);
    return true;
}

bool take_write(DeviceState& s, Qp* qp, const Packet& packet, const Request& r, uint32_t psn) {
    if (r.first) {
        const uint8_t* reth = packet.header + GDA_BYTES_OF(bth);
        qp->write_address = GDA_GET(reth, reth, va);
        qp->write_key = static_cast<uint32_t>(GDA_GET(reth, reth, rkey));
        qp->write_bytes = qp->write_rest = GDA_GET(reth, reth, dma_length);
    }
    Span span;
    std::string why;
    if (qp->write_bytes && (r.first || packet.payload_bytes)) {
        const bool allowed = qp->remote_write_allowed;
        if (!allowed) why = "this queue pair does not allow remote writes (rwe)";
        if (!allowed || !resolve(s, qp->write_key, qp->write_address, r.first ? qp->write_bytes : qp->write_rest,
                                 qp->pd, Access::remote_write, &span, &why)) {
            refuse(s, qp, psn, AETH_NAK_REMOTE_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
                   "RDMA write: " + why);
            return false;
        }
    }
    if (packet.payload_bytes > qp->write_rest || (r.last && packet.payload_bytes != qp->write_rest)) {
        refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
               "its packets do not add up to the length it announced");
        return false;
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < packet.payload_count; ++i) {
        if (!place(s, qp, packet, psn, span, offset, packet.payload[i], VENDOR_RECEIVE_UNMAPPED)) return false;
        offset += packet.payload[i].iov_len;
    }
    qp->write_address += packet.payload_bytes;
    qp->write_rest -= packet.payload_bytes;
    return true;
}

bool take_send(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn) {
    Receive& r = qp->receive;
    for (size_t i = 0; i < packet.payload_count; ++i) {
        iovec rest = packet.payload[i];
        while (rest.iov_len) {
            uint64_t begin = 0;
            uint32_t n = 0;
            while (n < r.pieces && r.filled >= begin + r.piece[n].bytes) begin += r.piece[n++].bytes;
            if (n == r.pieces) {
                refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_RECEIVE_LENGTH,
                       text("the message is longer than receive WQE %u, which has %" PRIu64 " bytes", r.index, begin));
                return false;
            }
            const Receive::Piece& piece = r.piece[n];
            Span span;
            std::string why;
            if (!resolve(s, piece.key, piece.address, piece.bytes, qp->pd, Access::local_write, &span, &why)) {
                refuse(s, qp, psn, AETH_NAK_REMOTE_OPERATIONAL, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_RECEIVE_KEY,
                       text("receive WQE %u: local protection error: ", r.index) + why);
                return false;
            }
            const iovec part = {rest.iov_base, std::min<size_t>(rest.iov_len, begin + piece.bytes - r.filled)};
            if (!place(s, qp, packet, psn, span, r.filled - begin, part, VENDOR_RECEIVE_UNMAPPED)) return false;
            r.filled += part.iov_len;
            rest = {static_cast<uint8_t*>(rest.iov_base) + part.iov_len, rest.iov_len - part.iov_len};
        }
    }
    return true;
}

bool is_own(const DeviceState& s, const Packet& packet) {
    for (const Gid& gid : s.gids) {
        if (std::memcmp(gid, packet.destination, sizeof gid) == 0) return true;
    }
    return false;
}

void take_request(DeviceState& s, Qp* qp, const Packet& packet, const Request& r, uint32_t psn) {
    // A message goes on with its own kind, and begins only when the one before it has ended.
    const bool in_order = r.first ? !qp->in_write && !qp->in_send : r.write ? qp->in_write : qp->in_send;
    if (!in_order) {
        return refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
                      "a packet that does not continue its message");
    }
    const bool needs_receive = r.write ? r.last && r.immediate : r.first;
    const uint16_t receive_before = qp->receive_next;
    if (needs_receive && !open_receive(s, qp)) {
        s.report.count(Counter::rnr_naks_sent);
        return send_answer(s, qp, static_cast<uint8_t>(AETH_RNR_NAK + qp->min_rnr_nak), psn);
    }
    if (!(r.write ? take_write(s, qp, packet, r, psn) : take_send(s, qp, packet, psn))) {
        if (packet.unreadable && needs_receive) {
            qp->receive.open = false;
            qp->receive_next = receive_before;
        }
        return;
    }
    qp->expected_psn = psn_add(psn, 1);
    qp->gap_told = false;
    (r.write ? qp->in_write : qp->in_send) = !r.last;
    ++s.done;
    if (!r.last) return;
    qp->msn = psn_add(qp->msn, 1);
    // The data is placed: first the receiver's completion, then the answer.
    uint32_t immediate = 0;
    if (r.immediate) {
        const uint8_t* at = packet.header + GDA_BYTES_OF(bth) + (r.write && r.first ? GDA_BYTES_OF(reth) : 0);
        immediate = static_cast<uint32_t>(GDA_GET(immdt, at, imm));
    }
    const bool solicited = GDA_GET(bth, packet.header, se) != 0;
    if (r.write && r.immediate) {
        complete_receive(s, qp, MLX5_CQE_RESP_WR_IMM, qp->write_bytes, immediate, solicited);
    } else if (!r.write) {
        complete_receive(s, qp, r.immediate ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, qp->receive.filled,
                         immediate, solicited);
    }
    if (GDA_GET(bth, packet.header, ack_req)) {
        s.report.count(Counter::acks_sent);
        send_answer(s, qp, AETH_ACK, psn);
    }
}

}  // namespace

void arrived(DeviceState& s, const Packet& packet) {
    s.report.count(Counter::packets_received);
    const uint32_t number = static_cast<uint32_t>(GDA_GET(bth, packet.header, dest_qp));
    const uint32_t opcode = static_cast<uint32_t>(GDA_GET(bth, packet.header, opcode));
    const uint32_t psn = static_cast<uint32_t>(GDA_GET(bth, packet.header, psn));
    Qp* qp = s.qp(number);
    bool ready = qp && (qp->state == MLX5_QPC_STATE_RTR || qp->state == MLX5_QPC_STATE_RTS) && is_own(s, packet);
    if (ready && std::memcmp(packet.source, qp->remote_gid, 16) != 0) {
        s.report.say(
            text("%s: dropped a packet that comes from another GID than the one it is connected to: does the peer "
                 "send from the GID index that was exchanged?",
                 qp->name));
        ready = false;
    }
    if (ready && opcode == RC_ACKNOWLEDGE) return answered(s, qp, packet);
    Request r;
    if (!ready || qp->failing || !classify(opcode, &r)) return s.report.count(Counter::packets_dropped);
    const int32_t ahead = psn_difference(psn, qp->expected_psn);
    if (ahead > 0) {
        s.report.count(Counter::out_of_order);
        if (qp->gap_told) return;
        qp->gap_told = true;
        s.report.count(Counter::naks_sent);
        return send_answer(s, qp, AETH_NAK_PSN_SEQUENCE, qp->expected_psn);
    }
    if (ahead < 0) {  // done before: only the answer was missing
        s.report.count(Counter::duplicates);
        return send_answer(s, qp, AETH_ACK, psn_add(qp->expected_psn, 0xffffff));
    }
    take_request(s, qp, packet, r, psn);
}

void send_answer(DeviceState& s, Qp* qp, uint8_t syndrome, uint32_t psn) {
    Packet packet;
    std::memcpy(packet.source, qp->local_gid, 16);
    std::memcpy(packet.destination, qp->remote_gid, 16);
    uint8_t* h = packet.header;
    std::memset(h, 0, sizeof packet.header);
    GDA_SET(bth, h, opcode, RC_ACKNOWLEDGE);
    GDA_SET(bth, h, pkey, 0xffff);
    GDA_SET(bth, h, dest_qp, qp->remote_qpn);
    GDA_SET(bth, h, psn, psn);
    GDA_SET(aeth, h + GDA_BYTES_OF(bth), syndrome, syndrome);
    GDA_SET(aeth, h + GDA_BYTES_OF(bth), msn, qp->msn);
    packet.header_bytes = GDA_BYTES_OF(bth) + GDA_BYTES_OF(aeth);
    qp->owes = !qp->link->send(packet);
    if (qp->owes) {  // a later answer replaces it: each also speaks for all before it
        qp->owed_syndrome = syndrome;
        qp->owed_psn = psn;
        s.look_at(qp);
        return;
    }
    s.report.count(Counter::packets_sent);
}

void flush_receives(DeviceState& s, Qp* qp) {
    if (!qp->has_receives) return;
    if (qp->receive.open) {
        complete_receive(s, qp, MLX5_CQE_RESP_ERR, 0, 0, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    }
    const uint16_t posted = posted_receives(s, qp);
    const uint16_t waiting = static_cast<uint16_t>(posted - qp->receive_next);
    if (waiting > qp->receive_entries) return;  // not a count of receives: the record was reset or never written
    while (qp->receive_next != posted) {
        qp->receive.index = qp->receive_next++;
        complete_receive(s, qp, MLX5_CQE_RESP_ERR, 0, 0, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    }
}

}  // namespace sim
