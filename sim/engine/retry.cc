// SPDX-License-Identifier: Apache-2.0
// The requester's other half: answers of the peer, and what happens when none comes. See requester.h and retry.h.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer", "Acknowledge", "Transport Timer".

#include "sim/engine/retry.h"

#include <gda/formats/packet.h>

#include <cinttypes>

#include "sim/engine/packet.h"
#include "sim/engine/requester.h"
#include "sim/engine/vendor.h"
#include "sim/engine/wqe.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t RNR_FOREVER = 7;                // rnr_retry of 7: no limit
const uint64_t RNR_WORDS_NS = seconds(10);     // ... but after so long the report says it
const uint64_t BEHIND_LIMIT_NS = seconds(10);  // how long a living peer that is not scheduled is waited for

// Waiting times of "receiver not ready" answers in units of 10 us. Source: IBA volume 1, table "Encoding for RNR NAK
// Timer Field".
const uint32_t RNR_TIMERS = 32;
const uint16_t RNR_TIMER[RNR_TIMERS] = {0,    1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                        48,   64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t rnr_wait_ns(uint32_t code) { return microseconds(10) * (code ? RNR_TIMER[code] : 65536); }

// The timer of the specification may run up to four times as long; here it runs exactly (model choice). 0: for ever.
uint64_t ack_wait_ns(const Qp* qp) { return qp->ack_timeout ? uint64_t{4096} << qp->ack_timeout : 0; }

std::string peer_state(DeviceState& s, const Qp* qp) {
    if (!s.port->own(qp->remote_gid)) {
        if (s.port->peer_lives(qp->remote_gid)) return "its NIC lives: is that queue pair there, and in RTR or RTS?";
        uint32_t slot, port;
        if (!slot_of(qp->remote_gid, &slot, &port)) return "its GID is no software NIC's of this host";
        return port == 1 ? "its process is gone" : text("its process is gone, or its NIC has no port %u", port);
    }
    const Qp* peer = s.qp(qp->remote_qpn);
    if (!peer) return "this NIC has no such queue pair";
    return text("that queue pair is in state %d (%d is RTR, %d is RTS)", peer->state, MLX5_QPC_STATE_RTR,
                MLX5_QPC_STATE_RTS);
}

void refused(DeviceState& s, Qp* qp, Kind kind, const char* words, cqe_syndrome cqe, uint8_t vendor) {
    s.report.say(kind, text("%s: WQE %u: %s", qp->name, qp->sent.front().index, words),
                 {{"qp", qp->number},
                  {"index", qp->sent.front().index},
                  {"syndrome", static_cast<uint64_t>(cqe)},
                  {"vendor", vendor},
                  {"peer", qp->remote_qpn}});
    fail_oldest(s, qp, static_cast<uint8_t>(cqe), vendor);
}

void not_ready(DeviceState& s, Qp* qp, uint32_t psn, uint32_t timer) {
    if (!qp->rnr_since_ns) qp->rnr_since_ns = s.now_ns;
    if (qp->rnr_retry == RNR_FOREVER && s.now_ns - qp->rnr_since_ns > RNR_WORDS_NS) {
        s.report.say(
            Kind::receive_not_posted,
            text("%s: WQE %u has waited for 10 s: the peer has posted no receive for it, and rnr_retry 7 means "
                 "to wait for ever",
                 qp->name, qp->sent.front().index),
            {{"qp", qp->number}, {"index", qp->sent.front().index}, {"peer", qp->remote_qpn}});
    }
    if (qp->rnr_retry != RNR_FOREVER && qp->rnr_left == 0) {
        return refused(s, qp, Kind::receive_not_posted, "RNR retry exceeded: the peer has posted no receive for it",
                       MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VENDOR_RNR_RETRY_EXCEEDED);
    }
    if (qp->rnr_retry != RNR_FOREVER) --qp->rnr_left;
    s.report.count(Counter::rnr_retries);
    go_back(qp, psn);
    qp->rnr_until_ns = s.now_ns + rnr_wait_ns(timer);
    qp->retries_left = qp->retry_count;
    qp->deadline_ns = qp->ack_timeout ? qp->rnr_until_ns + ack_wait_ns(qp) : 0;
}

}  // namespace

void go_back(Qp* qp, uint32_t psn) {
    size_t i = 0;
    while (
        i < qp->sent.size() &&
        !(qp->sent[i].packets && psn_difference(psn_add(qp->sent[i].first_psn, qp->sent[i].packets - 1), psn) >= 0)) {
        ++i;
    }
    if (i > qp->cursor || (i == qp->cursor && psn_difference(psn, qp->cursor_psn) > 0)) return;  // never sent so far
    qp->cursor = i;
    qp->cursor_psn = psn;
}

void ask_again(DeviceState& s, Qp* qp, uint32_t psn) {
    if (qp->asked_again == psn) return;
    qp->asked_again = psn;
    s.report.count(Counter::retries);
    s.report.count(Counter::missed_responses);
    go_back(qp, psn);
    await(s, qp);
}

void advance(DeviceState& s, Qp* qp, uint32_t acked) {
    qp->acked_psn = acked;
    qp->asked_again = ~0u;
    qp->retries_left = qp->retry_count;
    qp->rnr_left = qp->rnr_retry;
    qp->rnr_since_ns = 0;
    // After a resend the peer may acknowledge what is before the cursor's message only now.
    while (qp->cursor < qp->sent.size() && qp->sent[qp->cursor].packets && !qp->sent[qp->cursor].syndrome &&
           psn_difference(psn_add(qp->sent[qp->cursor].first_psn, qp->sent[qp->cursor].packets - 1), acked) <= 0) {
        ++qp->cursor;
        if (qp->cursor < qp->sent.size()) qp->cursor_psn = qp->sent[qp->cursor].first_psn;
    }
    qp->first_try_ns = s.now_ns;
    retire(s, qp);
    await(s, qp);
}

void await(DeviceState& s, Qp* qp) {
    qp->deadline_ns = qp->sent.empty() || !qp->ack_timeout ? 0 : s.now_ns + ack_wait_ns(qp);
}

namespace {

// Whether the answer waits for a GPU of this process, not for the network.
bool on_a_gpu(const DeviceState& s, const Qp* qp) {
    if (s.copier.state_of(qp->scattered) == gpu::State::pending) return true;
    const Qp* peer = s.port->own(qp->remote_gid) ? s.qp(qp->remote_qpn) : nullptr;
    return peer && s.copier.state_of(peer->placed) == gpu::State::pending;
}

}  // namespace

void no_answer(DeviceState& s, Qp* qp) {
    if (qp->sent.empty() || qp->rnr_until_ns) return;
    if (on_a_gpu(s, qp)) return await(s, qp);
    // Under real time a living peer may not have been scheduled: that is not a loss.
    const bool starved =
        !Clock::is_virtual() && s.now_ns - qp->first_try_ns < BEHIND_LIMIT_NS && s.port->behind(qp->remote_gid);
    if (starved) return await(s, qp);
    if (qp->retries_left == 0) {
        const Message& m = qp->sent.front();
        s.report.say(
            Kind::retries_exceeded,
            text("%s: transport retry exceeded on WQE %u: no answer from queue pair 0x%06x after %u sends in "
                 "%" PRIu64 " ms; %s%s",
                 qp->name, m.index, qp->remote_qpn, qp->retry_count + 1, (s.now_ns - qp->first_try_ns) / 1000000,
                 peer_state(s, qp).c_str(), is_atomic(m.opcode) ? "; the operation may have taken effect" : ""),
            {{"qp", qp->number},
             {"index", m.index},
             {"peer", qp->remote_qpn},
             {"sends", qp->retry_count + 1},
             {"milliseconds", (s.now_ns - qp->first_try_ns) / 1000000}});
        return fail_oldest(s, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VENDOR_RETRY_EXCEEDED);
    }
    --qp->retries_left;
    s.report.count(Counter::retries);
    s.report.count(Counter::ack_timeouts);
    s.trace.note(TRACE_TIMEOUT, qp->number, qp->sent.front().index, 0, psn_add(qp->acked_psn, 1), qp->remote_qpn, 0, 0,
                 Trace::NOW);
    qp->link = s.port->route(qp->remote_gid);  // the address may have an owner now
    go_back(qp, psn_add(qp->acked_psn, 1));
    await(s, qp);
}

void answered(DeviceState& s, Qp* qp, const Packet& packet) {
    if (qp->state != MLX5_QPC_STATE_RTS || qp->sent.empty()) return;
    const uint32_t psn = static_cast<uint32_t>(GDA_GET(bth, packet.header, psn));
    const uint8_t* aeth = operation_headers(packet);
    const uint32_t syndrome = static_cast<uint32_t>(GDA_GET(aeth, aeth, syndrome));
    s.trace.note(TRACE_ACK, qp->number, qp->sent.front().index, 0, psn, qp->remote_qpn, syndrome, 0,
                 s.port->in_place(qp->link) ? Trace::LATEST : Trace::NOW);
    // Of a positive answer: all up to psn. Of any other: all before it.
    const bool positive = syndrome <= AETH_ACK;  // what is below counts credits, which nobody here waits for
    uint32_t acked = positive ? psn : psn_add(psn, 0xffffff);
    const uint32_t newest = psn_add(qp->fresh_psn, 0xffffff);
    if (psn_difference(acked, newest) > 0) return;  // of an earlier life of this queue pair
    // Answers come in the order of the requests: one for what is behind a read says that the read's data was lost.
    const Message* fetch = oldest_fetch(qp);
    const uint32_t missing = fetch ? psn_add(fetch->first_psn, fetch->arrived) : 0;
    const bool lost = fetch && psn_difference(acked, missing) >= 0;
    if (lost) acked = psn_add(missing, 0xffffff);
    const bool progress = psn_difference(acked, qp->acked_psn) > 0;
    if (progress) {
        const uint64_t connection = qp->connection;
        advance(s, qp, acked);
        if (qp->state != MLX5_QPC_STATE_RTS || qp->sent.empty() || qp->connection != connection) return;
    } else if (positive && !lost) {
        return;
    }
    if (lost) return ask_again(s, qp, missing);
    if (positive) return;
    if (syndrome >= AETH_RNR_NAK && syndrome < AETH_RNR_NAK + RNR_TIMERS) {
        return not_ready(s, qp, psn, syndrome - AETH_RNR_NAK);
    }
    switch (syndrome) {
        case AETH_NAK_PSN_SEQUENCE:
            if (!progress && qp->retries_left == 0) {
                return refused(s, qp, Kind::retries_exceeded,
                               "transport retry exceeded: the peer asks for the same packet again and again",
                               MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VENDOR_RETRY_EXCEEDED);
            }
            if (!progress) --qp->retries_left;
            s.report.count(Counter::retries);
            s.report.count(Counter::sequence_naks);
            go_back(qp, psn);
            return await(s, qp);
        case AETH_NAK_INVALID_REQUEST:
            return refused(s, qp, Kind::refused_by_peer,
                           "remote invalid request: the peer cannot take this message (longer than its receive, "
                           "or of a kind it does not allow); its own report says which",
                           MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VENDOR_REMOTE_INVALID_REQUEST);
        case AETH_NAK_REMOTE_ACCESS:
            return refused(s, qp, Kind::refused_by_peer,
                           "remote access error: the peer refused the rkey, the range or the right; its own "
                           "report says which",
                           MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VENDOR_REMOTE_ACCESS);
        case AETH_NAK_REMOTE_OPERATIONAL:
            return refused(s, qp, Kind::refused_by_peer,
                           "remote operation error: the peer could not do it (its memory is gone, or its "
                           "receive is bad); its own report says which",
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VENDOR_REMOTE_OPERATION);
    }
}

}  // namespace sim
