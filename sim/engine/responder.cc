// SPDX-License-Identifier: Apache-2.0
// See responder.h. Source of the transport rules: InfiniBand Architecture Specification, volume 1, "Responder"; which
// answer follows which fault was compared with the Linux kernel's soft-RoCE.

#include "sim/engine/responder.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/addresses.h"
#include "sim/engine/dc.h"
#include "sim/engine/ordering.h"
#include "sim/engine/packet.h"
#include "sim/engine/receive.h"
#include "sim/engine/reply.h"
#include "sim/engine/requester.h"
#include "sim/engine/umr.h"
#include "sim/engine/vendor.h"
#include "sim/engine/xrc.h"
#include "sim/link/wire.h"

namespace sim {

using namespace gda::prm;

namespace {

struct Request {
    enum class Kind : uint8_t { send, write, read, atomic } kind = Kind::send;
    bool first = true, last = true, immediate = false, invalidates = false;
};

// Operations are numbered alike in all transports; UC has no reads and atomics.
bool classify(bool reliable, uint32_t operation, Request* r) {
    using Kind = Request::Kind;
    switch (operation) {
        case RC_SEND_FIRST:
            return *r = {Kind::send, true, false, false}, true;
        case RC_SEND_MIDDLE:
            return *r = {Kind::send, false, false, false}, true;
        case RC_SEND_LAST:
            return *r = {Kind::send, false, true, false}, true;
        case RC_SEND_LAST_WITH_IMMEDIATE:
            return *r = {Kind::send, false, true, true}, true;
        case RC_SEND_ONLY:
            return *r = {Kind::send, true, true, false}, true;
        case RC_SEND_ONLY_WITH_IMMEDIATE:
            return *r = {Kind::send, true, true, true}, true;
        case RC_SEND_LAST_WITH_INVALIDATE:
            return *r = {Kind::send, false, true, false, true}, reliable;
        case RC_SEND_ONLY_WITH_INVALIDATE:
            return *r = {Kind::send, true, true, false, true}, reliable;
        case RC_RDMA_WRITE_FIRST:
            return *r = {Kind::write, true, false, false}, true;
        case RC_RDMA_WRITE_MIDDLE:
            return *r = {Kind::write, false, false, false}, true;
        case RC_RDMA_WRITE_LAST:
            return *r = {Kind::write, false, true, false}, true;
        case RC_RDMA_WRITE_LAST_WITH_IMMEDIATE:
            return *r = {Kind::write, false, true, true}, true;
        case RC_RDMA_WRITE_ONLY:
            return *r = {Kind::write, true, true, false}, true;
        case RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
            return *r = {Kind::write, true, true, true}, true;
        case RC_RDMA_READ_REQUEST:
            return *r = {Kind::read, true, true, false}, reliable;
        case RC_COMPARE_SWAP:
        case RC_FETCH_ADD:
            return *r = {Kind::atomic, true, true, false}, reliable;
    }
    return false;
}

// Places payload at `span`+`offset`. False: it ended here (memory is gone on either side).
bool place(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn, const Span& span, uint64_t offset,
           const iovec& part, uint8_t vendor) {
    Copied result = write_in_order(s, qp, span, offset, payload_span(s, part));
    if (result == Copied::later && !not_yet(s, qp, packet)) {
        result = write_in_order(s, qp, span, offset, payload_span(s, part));
    }
    if (result == Copied::later) {
        packet.later = true;
        return false;
    }
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
        const uint8_t* reth = operation_headers(packet);
        qp->write_address = GDA_GET(reth, reth, va);
        qp->write_key = static_cast<uint32_t>(GDA_GET(reth, reth, rkey));
        qp->write_bytes = qp->write_rest = GDA_GET(reth, reth, dma_length);
    }
    Span span = {};
    Why why;
    if (qp->write_bytes && (r.first || packet.payload_bytes)) {
        if (!qp->remote_write_allowed) return not_allowed(s, qp, psn, "RDMA write: ", "remote writes (rwe)");
        if (!resolve(s, qp->write_key, qp->write_address, r.first ? qp->write_bytes : qp->write_rest, qp,
                     Access::remote_write, &span, &why)) {
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
    for (size_t i = 0; i < packet.payload_count; ++i) {
        Why why;
        switch (fill_receive(s, qp, packet.payload[i], &why)) {
            case Filled::yes:
                continue;
            case Filled::too_long:
                refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, VENDOR_RECEIVE_LENGTH,
                       why);
                return false;
            case Filled::bad_key:
                refuse(s, qp, psn, AETH_NAK_REMOTE_OPERATIONAL, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_RECEIVE_KEY,
                       why);
                return false;
            case Filled::unmapped:
                refuse(s, qp, psn, AETH_NAK_REMOTE_OPERATIONAL, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
                       VENDOR_RECEIVE_UNMAPPED, why);
                return false;
            case Filled::no_source:
                packet.unreadable = true;  // the sender's fault; as if nothing had come
                return false;
        }
    }
    return true;
}

uint32_t invalidated_key(const Packet& packet) {
    return static_cast<uint32_t>(GDA_GET(ieth, operation_headers(packet), rkey));
}

// The key that the peer's send ends. False: it may not, and was refused.
bool end_key(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn) {
    Why why;
    if (invalidate_for_peer(s, invalidated_key(packet), qp, &why)) return true;
    refuse(s, qp, psn, AETH_NAK_REMOTE_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
           "send with invalidate: " + why);
    return false;
}

// Whether the payload is as long as the packet's place in its message allows: all but the last fill the path MTU.
bool right_length(const Qp* qp, const Packet& packet, const Request& r) {
    if (!same_cut(qp, packet)) return false;
    if (!r.last) return packet.payload_bytes && packet.payload_bytes % qp->mtu == 0;
    return r.first || packet.payload_bytes;
}

void take_request(DeviceState& s, Qp* qp, const Packet& packet, const Request& r, uint32_t psn) {
    const bool write = r.kind == Request::Kind::write;
    if (!right_length(qp, packet, r)) {
        return refuse(
            s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
            text("a packet of %zu bytes: all but the last fill the path MTU of %u, and none is longer; is the "
                 "path MTU of the peer another one?",
                 packet.payload_bytes, qp->mtu));
    }
    // The receive of a write comes with its last packet, a send's with its first.
    const bool needs_receive = write ? r.last && r.immediate : r.first;
    if (needs_receive && !open_receive(s, qp)) {
        if (!qp->reliable()) {
            s.report.count(Counter::packets_dropped);
            qp->in_write = qp->in_send = false;
            return;
        }
        s.report.count(Counter::rnr_naks_sent);
        qp->gap_told = true;  // what follows is not asked for before this one comes again
        return send_answer(s, qp, static_cast<uint8_t>(AETH_RNR_NAK + qp->min_rnr_nak), psn);
    }
    // A receiver is told with its own eyes, here and now.
    if (!write && !s.copier.is_done(qp->placed) && not_yet(s, qp, packet)) return;
    if (!(write ? take_write(s, qp, packet, r, psn) : take_send(s, qp, packet, psn))) return;
    if (needs_receive && !s.copier.is_done(qp->placed)) s.copier.settle();
    if (r.invalidates && !end_key(s, qp, packet, psn)) return;
    const uint32_t packets = packets_for(qp, packet.payload_bytes);
    qp->expected_psn = psn_add(psn, packets);
    qp->gap_told = false;
    (write ? qp->in_write : qp->in_send) = !r.last;
    ++s.done;
    trace_arrival(s, qp, packet, psn);
    const bool asked = GDA_GET(bth, packet.header, ack_req) != 0;
    if (!r.last) {
        if (asked) send_answer(s, qp, AETH_ACK, psn_add(psn, packets - 1));
        return;
    }
    if (!write || r.immediate) order_completion(s, qp);
    qp->msn = psn_add(qp->msn, 1);
    s.report.count(write ? Counter::write_requests : Counter::sends_received);
    // The data is placed: first the receiver's completion, then the answer.
    if (!write || r.immediate) {
        Completion c;
        c.solicited = GDA_GET(bth, packet.header, se) != 0;
        if (r.immediate) {
            const uint8_t* at = operation_headers(packet) + (write && r.first ? GDA_BYTES_OF(reth) : 0);
            c.immediate = static_cast<uint32_t>(GDA_GET(immdt, at, imm));
        }
        if (r.invalidates) c.immediate = invalidated_key(packet);
        c.opcode = write           ? MLX5_CQE_RESP_WR_IMM
                   : r.immediate   ? MLX5_CQE_RESP_SEND_IMM
                   : r.invalidates ? MLX5_CQE_RESP_SEND_INV
                                   : MLX5_CQE_RESP_SEND;
        c.bytes = static_cast<uint32_t>(write ? qp->write_bytes : qp->receive.filled);
        complete_receive(s, qp, c);
    }
    if (asked) send_answer(s, qp, AETH_ACK, psn_add(psn, packets - 1));
}

// A request that was done before: only the answer was missing.
void repeat(DeviceState& s, Qp* qp, const Packet& packet, const Request& r, uint32_t psn) {
    s.report.count(Counter::duplicates);
    if (r.kind == Request::Kind::read || r.kind == Request::Kind::atomic) return repeat_fetch(s, qp, packet, psn);
    const uint32_t last = psn_add(psn, packets_for(qp, packet.payload_bytes) - 1);
    if (psn_difference(last, qp->expected_psn) >= 0) {  // of a run, some packets are new: those alone are asked for
        return send_answer(s, qp, AETH_NAK_PSN_SEQUENCE, qp->expected_psn);
    }
    send_answer(s, qp, AETH_ACK, psn_add(qp->expected_psn, 0xffffff));
}

// Whether a packet goes on with the message before it, or begins one when none is open.
bool continues(const Qp* qp, const Request& r) {
    if (r.first) return !qp->in_write && !qp->in_send;
    return r.kind == Request::Kind::write ? qp->in_write : qp->in_send;
}

// UC: what is lost is lost. A message of which a packet is missing is dropped; the next one begins anew.
void take_unreliable(DeviceState& s, Qp* qp, const Packet& packet, const Request& r, uint32_t psn) {
    if (r.first) {
        qp->in_write = qp->in_send = false;
    } else if (psn != qp->expected_psn || !continues(qp, r)) {
        qp->in_write = qp->in_send = false;
        return s.report.count(Counter::packets_dropped);
    }
    take_request(s, qp, packet, r, psn);
}

}  // namespace

bool not_yet(DeviceState& s, const Qp* qp, const Packet& packet) {
    if (!packet.may_wait) s.copier.settle();
    if (!packet.may_wait && s.copier.is_done(qp->placed)) return false;
    packet.later = true;  // who failed does not go on: the answer says so
    return true;
}

void refuse(DeviceState& s, Qp* qp, uint32_t psn, aeth_syndrome answer, cqe_syndrome syndrome, uint8_t vendor,
            const Why& why) {
    const bool reliable = qp->reliable();
    if (answer == AETH_NAK_REMOTE_ACCESS) s.report.count(Counter::accesses_refused);
    const bool receive_fault =
        vendor == VENDOR_RECEIVE_LENGTH || vendor == VENDOR_RECEIVE_KEY || vendor == VENDOR_RECEIVE_UNMAPPED;
    Values values = why.values;
    values.insert(values.begin(), {{"qp", qp->number}, {"psn", psn}});
    s.report.say(why.kind, std::string(qp->name) + ": refused a request of the peer: " + why.words, values);
    s.trace.note(TRACE_REFUSE, qp->remote_qpn, TRACE_NO_INDEX, 0, psn, qp->number, answer, 0, Trace::NOW);
    if (reliable) {
        s.report.count(Counter::naks_sent);
        send_answer(s, qp, static_cast<uint8_t>(answer), psn);
    } else {
        s.report.count(Counter::packets_dropped);
        qp->in_write = qp->in_send = false;
        if (!receive_fault || !qp->receive.open) return;
    }
    if (qp->receive.open) fail_receive(s, qp, syndrome, vendor);
    if (!qp->target)  // a target outlives its connections
        s.pending.push_back(
            {false, qp->number,
             answer == AETH_NAK_REMOTE_ACCESS ? AsyncEvent::qp_access_error : AsyncEvent::qp_request_error});
    qp->failing = true;
    s.look_at(qp);
}

bool not_allowed(DeviceState& s, Qp* qp, uint32_t psn, const char* what, const char* right) {
    refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
           Why(Kind::operation_not_allowed, std::string(what) + "this queue pair does not allow " + right));
    return false;
}

void arrived(DeviceState& s, const Packet& packet) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(bth, packet.header, dest_qp));
    const uint32_t psn = static_cast<uint32_t>(GDA_GET(bth, packet.header, psn));
    const Meaning meaning = meaning_of(static_cast<uint8_t>(GDA_GET(bth, packet.header, opcode)));
    const uint32_t operation = meaning.code;
    Qp* qp = s.qp(number);
    const Report::Counting counting(s.report, qp ? qp->counter_set : nullptr, arrival_port(s, packet));
    s.report.count(Counter::packets_received);
    s.report.count(Counter::bytes_received, packet.payload_bytes);
    if (GDA_GET(bth, packet.header, tver) != 0) return s.report.count(Counter::packets_dropped);
    bool ready = qp && (qp->state == MLX5_QPC_STATE_RTR || qp->state == MLX5_QPC_STATE_RTS) && addressed(s, qp, packet);
    if (ready && qp->datagrams()) {
        if (meaning.transport != BTH_UD || qp->failing) return s.report.count(Counter::packets_dropped);
        return datagram_arrived(s, qp, packet);
    }
    const uint32_t pkey = static_cast<uint32_t>(GDA_GET(bth, packet.header, pkey));
    if (ready && pkey != DEFAULT_PKEY && pkey != DEFAULT_PKEY_LIMITED) {
        s.report.say(Kind::partition,
                     text("%s: dropped a packet with P_Key 0x%04x: this port has 0x%04x", qp->name, pkey,
                          static_cast<uint32_t>(DEFAULT_PKEY)),
                     {{"qp", qp->number}, {"psn", psn}, {"pkey", pkey}});
        ready = false;
    }
    if (ready && meaning.transport != wire_transport(qp)) ready = false;
    if (ready && qp->dc_target()) ready = (qp = connection_of(s, qp, packet)) != nullptr;
    if (ready && qp->dc_initiator() && !of_connection(qp, packet)) ready = false;
    if (ready && std::memcmp(packet.source, qp->remote_gid, 16) != 0) {
        s.report.say(
            Kind::other_gid,
            text("%s: dropped a packet that comes from another GID than the one it is connected to: does the peer "
                 "send from the GID index that was exchanged?",
                 qp->name),
            {{"qp", qp->number}});
        ready = false;
    }
    if (!ready) return s.report.count(Counter::packets_dropped);
    if (!qp->established && qp->state == MLX5_QPC_STATE_RTR) {
        qp->established = true;
        s.pending.push_back({false, qp->number, AsyncEvent::qp_established});
    }
    if (operation == RC_ACKNOWLEDGE && qp->reliable()) return answered(s, qp, packet);
    if (qp->reliable() && is_response(operation)) return responded(s, qp, packet);
    Request r;
    if (!qp->takes_requests() || qp->failing || !classify(qp->reliable(), operation, &r)) {
        return s.report.count(Counter::packets_dropped);
    }
    if (!qp->reliable()) return take_unreliable(s, qp, packet, r, psn);
    const int32_t ahead = psn_difference(psn, qp->expected_psn);
    if (ahead > 0) {
        s.report.count(Counter::out_of_order);
        if (qp->gap_told) return;
        qp->gap_told = true;
        s.report.count(Counter::naks_sent);
        return send_answer(s, qp, AETH_NAK_PSN_SEQUENCE, qp->expected_psn);
    }
    if (ahead < 0) return repeat(s, qp, packet, r, psn);
    if (!continues(qp, r)) {
        return refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
                      "a packet that does not continue its message");
    }
    if (qp->over_xrc() && !take_xrc(s, qp, packet, psn)) return;
    const bool fetch = r.kind == Request::Kind::read || r.kind == Request::Kind::atomic;
    fetch ? take_fetch(s, qp, packet, psn) : take_request(s, qp, packet, r, psn);
}

}  // namespace sim
