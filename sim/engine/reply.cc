// SPDX-License-Identifier: Apache-2.0
// See reply.h. Source: InfiniBand Architecture Specification, volume 1, "Transport Layer", "RDMA READ Response",
// "Atomic Acknowledge".

#include "sim/engine/reply.h"

#include <algorithm>

#include "sim/engine/ordering.h"
#include "sim/engine/packet.h"
#include "sim/engine/poster.h"
#include "sim/engine/shadow.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t BYTES_PER_TURN = uint64_t{4} << 20;  // of read data per queue pair and round

void add_aeth(uint32_t msn, uint8_t syndrome, Packet* packet) {
    uint8_t* at = packet->header + packet->header_bytes;
    GDA_SET(aeth, at, syndrome, syndrome);
    GDA_SET(aeth, at, msn, msn);
    packet->header_bytes += GDA_BYTES_OF(aeth);
}

bool deliver(DeviceState& s, Qp* qp, Packet& packet) {
    if (s.port->capture().on()) packet.note_words = who_answered(s);
    if (!qp->link->send(packet)) {
        s.report.count(Counter::link_full);
        return false;
    }
    if (packet.later) return false;
    s.report.count(Counter::packets_sent);
    s.report.count(Counter::bytes_sent, packet.payload_bytes);
    return true;
}

bool send_acknowledge(DeviceState& s, Qp* qp, const Reply& reply) {
    Packet packet;
    begin_packet(qp, RC_ACKNOWLEDGE, reply.psn, &packet);
    add_aeth(reply.msn, reply.syndrome, &packet);
    return deliver(s, qp, packet);
}

uint64_t result_of(const Qp* qp, const Reply& reply) {
    if (!reply.job.context) return reply.value;
    for (const AtomicResult& result : qp->atomic_results) {
        if (result.job == reply.job && result.psn == reply.psn) return result.value;
    }
    return reply.value;
}

bool send_atomic(DeviceState& s, Qp* qp, const Reply& reply) {
    Packet packet;
    packet.may_wait = s.port->in_place(qp->link);
    begin_packet(qp, RC_ATOMIC_ACKNOWLEDGE, reply.psn, &packet);
    packet.note_again = reply.again;
    add_aeth(reply.msn, AETH_ACK, &packet);
    GDA_SET(atomicacketh, packet.header + packet.header_bytes, original, result_of(qp, reply));
    packet.header_bytes += GDA_BYTES_OF(atomicacketh);
    return deliver(s, qp, packet);
}

// What was begun cannot be finished: the peer is refused and the queue pair ends.
void give_up(DeviceState& s, Qp* qp, uint32_t psn, aeth_syndrome syndrome, const Why& why) {
    Values values = why.values;
    values.insert(values.begin(), {{"qp", qp->number}, {"psn", psn}});
    s.report.say(why.kind, std::string(qp->name) + ": refused a request of the peer: " + why.words, values);
    s.report.count(Counter::naks_sent);
    Reply refusal;
    refusal.syndrome = static_cast<uint8_t>(syndrome);
    refusal.psn = psn;
    refusal.msn = psn_add(qp->replies.front().msn, 0xffffff);  // it was not done itself
    qp->replies.clear();
    qp->replies.push_back(refusal);
    qp->fetch_replies = qp->again_replies = 0;
    qp->failing = true;
    const bool access = syndrome == AETH_NAK_REMOTE_ACCESS;
    if (qp->target) return;  // a target outlives its connections
    s.pending.push_back({false, qp->number, access ? AsyncEvent::qp_access_error : AsyncEvent::qp_request_error});
}

// A fetch is answered, or was cut off.
void drop_front(Qp* qp) {
    const Reply& front = qp->replies.front();
    if (front.kind != Reply::Kind::acknowledge) --(front.again ? qp->again_replies : qp->fetch_replies);
    qp->replies.pop_front();
}

// The next part of the read at the front. False: not now.
bool send_read(DeviceState& s, Qp* qp, uint64_t* turn) {
    const Reply reply = qp->replies.front();
    const uint64_t bytes = portion(qp, qp->link, reply.bytes);
    Packet packet;
    Span span = {};
    Why why;
    // Again for every packet: the key may have been destroyed since the last one.
    if (bytes && !resolve(s, reply.key, reply.address, reply.bytes, Asker(reply.pd, qp->number), Access::remote_read,
                          &span, &why)) {
        give_up(s, qp, reply.psn, AETH_NAK_REMOTE_ACCESS, "RDMA read: " + why);
        return true;
    }
    make_all_visible(s);  // a read pushes the writes before it
    s.parts.clear();
    uint64_t bounced = 0;
    packet.may_wait = s.port->in_place(qp->link);
    packet.unreadable = bytes && !list_parts(s, span, 0, bytes, packet.may_wait, &bounced, &s.parts, qp->name);
    if (s.shadows && !packet.unreadable) s.shadows->look_through(s, qp, -1, &s.parts);
    const bool last = bytes == reply.bytes;
    const uint8_t opcode = !reply.begun ? (last ? RC_RDMA_READ_RESPONSE_ONLY : RC_RDMA_READ_RESPONSE_FIRST)
                                        : (last ? RC_RDMA_READ_RESPONSE_LAST : RC_RDMA_READ_RESPONSE_MIDDLE);
    begin_packet(qp, opcode, reply.psn, &packet);
    packet.note_again = reply.again;
    if (!reply.begun || last) add_aeth(reply.msn, AETH_ACK, &packet);
    set_payload(qp, s.parts.data(), s.parts.size(), bytes, &packet);
    if (!packet.unreadable && !deliver(s, qp, packet)) return false;
    *turn -= std::min(*turn, bytes);
    ++s.done;
    // Loopback hands it over at once, also to this very queue pair, which may have ended with it.
    if (qp->replies.empty() || qp->state == MLX5_QPC_STATE_ERR) return false;
    if (packet.unreadable) {
        give_up(s, qp, reply.psn, AETH_NAK_REMOTE_OPERATIONAL,
                Why(Kind::memory_gone, "RDMA read: its memory cannot be read"));
        return true;
    }
    Reply& front = qp->replies.front();
    front.begun = true;
    front.psn = psn_add(reply.psn, packets_for(qp, bytes));
    front.address += bytes;
    front.bytes -= bytes;
    if (last) drop_front(qp);
    return true;
}

}  // namespace

namespace {

bool together(const DeviceState& s, const gpu::Job& a, const gpu::Job& b) {
    return a == b || (s.copier.is_done(a) && s.copier.is_done(b));
}

}  // namespace

void send_answer(DeviceState& s, Qp* qp, uint8_t syndrome, uint32_t psn) {
    if (!qp->reliable()) return;
    // A later acknowledgement also speaks for the one before it, but need not wait for the GPU as long.
    const bool replaces = !qp->replies.empty() && qp->replies.back().kind == Reply::Kind::acknowledge &&
                          qp->replies.back().syndrome == AETH_ACK && together(s, qp->replies.back().job, qp->placed);
    Reply& reply = replaces ? qp->replies.back() : qp->replies.add();
    if (!replaces) reply.first_psn = psn;
    reply.job = qp->placed;
    reply.syndrome = syndrome;
    reply.psn = psn;
    reply.msn = qp->msn;
    s.look_at(qp);
}

void queue_reply(DeviceState& s, Qp* qp, const Reply& reply) {
    qp->replies.push_back(reply);
    qp->replies.back().pd = qp->pd;
    qp->replies.back().first_psn = reply.psn;
    if (!reply.job.context) qp->replies.back().job = qp->placed;
    qp->replies.back().msn = reply.again ? qp->msn : psn_add(qp->msn, 1);  // with this one
    ++(reply.again ? qp->again_replies : qp->fetch_replies);
    s.look_at(qp);
}

void serve_replies(DeviceState& s, Qp* qp) {
    uint64_t turn = BYTES_PER_TURN;
    while (!qp->replies.empty() && turn) {
        const Reply& front = qp->replies.front();  // until it is sent: loopback hands an atomic's over at once
        if (on_its_way(s, qp, front.psn)) return;  // an answer also says that all before it is there
        const gpu::State placed = s.copier.state_of(front.job);
        if (placed == gpu::State::pending) return;
        if (placed == gpu::State::failed) {
            give_up(s, qp, front.first_psn, AETH_NAK_REMOTE_OPERATIONAL,
                    Why(Kind::gpu_memory, s.copier.problem_of(front.job)));
            continue;
        }
        if (front.kind == Reply::Kind::read) {
            if (!send_read(s, qp, &turn)) return;
            continue;
        }
        const bool atomic = front.kind == Reply::Kind::atomic, positive = front.syndrome == AETH_ACK;
        if (!(atomic ? send_atomic(s, qp, front) : send_acknowledge(s, qp, front))) return;
        ++s.done;
        if (qp->replies.empty() || qp->state == MLX5_QPC_STATE_ERR) return;
        if (!atomic && positive) s.report.count(Counter::acks_sent);
        drop_front(qp);
    }
}

}  // namespace sim
