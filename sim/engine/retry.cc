// SPDX-License-Identifier: Apache-2.0
// The requester's other half: answers of the peer, and what happens when none comes. See requester.h and retry.h.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer", "Acknowledge", "Transport Timer".

#include "sim/engine/retry.h"

#include <gda/formats/packet.h>

#include <cinttypes>

#include "sim/engine/requester.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t RNR_FOREVER = 7;                   // rnr_retry of 7: no limit
const uint64_t RNR_LIMIT_NS = seconds(10);        // ... but this one (model choice)
const uint64_t NO_TIMEOUT_LIMIT_NS = seconds(1);  // ack_timeout 0 means for ever; this is the limit (model choice)
const uint64_t BEHIND_LIMIT_NS = seconds(10);     // how long a living peer that is not scheduled is waited for

// Waiting times of "receiver not ready" answers in units of 10 us. Source: IBA volume 1, table "Encoding for RNR NAK
// Timer Field".
const uint16_t RNR_TIMER[32] = {0,    1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                48,   64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t rnr_wait_ns(uint32_t code) { return microseconds(10) * (code ? RNR_TIMER[code & 31] : 65536); }

uint64_t ack_wait_ns(const Qp* qp) {
    return qp->ack_timeout ? (uint64_t{4096} << qp->ack_timeout) : NO_TIMEOUT_LIMIT_NS;
}

std::string peer_state(DeviceState& s, const Qp* qp) {
    if (qp->link != s.loopback.get()) {
        uint32_t slot;
        if (!slot_of(qp->remote_gid, &slot)) return "its GID is no software NIC's";
        if (!s.shm) return "there is no link to other processes";
        return s.shm->directory().alive(slot) ? "its process lives: is that queue pair there, and in RTR or RTS?"
                                              : "its process is gone";
    }
    const Qp* peer = s.qp(qp->remote_qpn);
    if (!peer) return "this NIC has no such queue pair";
    return text("that queue pair is in state %d (%d is RTR, %d is RTS)", peer->state, MLX5_QPC_STATE_RTR,
                MLX5_QPC_STATE_RTS);
}

void refused(DeviceState& s, Qp* qp, const char* words, cqe_syndrome cqe, uint8_t vendor) {
    s.report.say(text("%s: WQE %u: %s", qp->name, qp->sent.front().index, words));
    fail_oldest(s, qp, static_cast<uint8_t>(cqe), vendor);
}

void not_ready(DeviceState& s, Qp* qp, uint32_t psn, uint32_t timer) {
    if (!qp->rnr_since_ns) qp->rnr_since_ns = s.now_ns;
    const bool over = qp->rnr_retry == RNR_FOREVER ? s.now_ns - qp->rnr_since_ns > RNR_LIMIT_NS : qp->rnr_left == 0;
    if (over) {
        return refused(s, qp, "RNR retry exceeded: the peer has posted no receive for it",
                       MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, VENDOR_RNR_RETRY_EXCEEDED);
    }
    if (qp->rnr_retry != RNR_FOREVER) --qp->rnr_left;
    s.report.count(Counter::rnr_retries);
    go_back(qp, psn);
    qp->rnr_until_ns = s.now_ns + rnr_wait_ns(timer);
    qp->retries_left = qp->retry_count;
    qp->deadline_ns = qp->rnr_until_ns + ack_wait_ns(qp);
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

void await(DeviceState& s, Qp* qp) { qp->deadline_ns = qp->sent.empty() ? 0 : s.now_ns + ack_wait_ns(qp); }

void check_timers(DeviceState& s, Qp* qp) {
    if (!qp->deadline_ns || s.now_ns < qp->deadline_ns || qp->sent.empty()) return;
    if (qp->rnr_until_ns) return;
    const bool starved =
        qp->link == s.shm.get() && s.now_ns - qp->first_try_ns < BEHIND_LIMIT_NS && s.shm->behind(qp->remote_gid);
    if (starved) return await(s, qp);
    if (qp->retries_left == 0 || qp->ack_timeout == 0) {
        const Message& m = qp->sent.front();
        s.report.say(
            text("%s: transport retry exceeded on WQE %u: no answer from queue pair 0x%06x after %u sends in "
                 "%" PRIu64 " ms; %s",
                 qp->name, m.index, qp->remote_qpn, qp->retry_count - qp->retries_left + 1,
                 (s.now_ns - qp->first_try_ns) / 1000000, peer_state(s, qp).c_str()));
        return fail_oldest(s, qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, VENDOR_RETRY_EXCEEDED);
    }
    --qp->retries_left;
    s.report.count(Counter::retries);
    go_back(qp, psn_add(qp->acked_psn, 1));
    await(s, qp);
}

void answered(DeviceState& s, Qp* qp, const Packet& packet) {
    if (qp->state != MLX5_QPC_STATE_RTS || qp->sent.empty()) return;
    const uint32_t psn = static_cast<uint32_t>(GDA_GET(bth, packet.header, psn));
    const uint8_t* aeth = packet.header + GDA_BYTES_OF(bth);
    const uint32_t syndrome = static_cast<uint32_t>(GDA_GET(aeth, aeth, syndrome));
    // Of a positive answer: all up to psn. Of any other: all before it.
    uint32_t acked = syndrome == AETH_ACK ? psn : psn_add(psn, 0xffffff);
    const uint32_t newest = psn_add(qp->next_psn, 0xffffff);
    if (psn_difference(acked, newest) > 0) return;  // of an earlier life of this queue pair
    // Answers come in the order of the requests: one for what is behind a read says that the read's data was lost.
    const Message* fetch = oldest_fetch(qp);
    const uint32_t missing = fetch ? psn_add(fetch->first_psn, fetch->arrived) : 0;
    const bool lost = fetch && psn_difference(acked, missing) >= 0;
    if (lost) acked = psn_add(missing, 0xffffff);
    if (psn_difference(acked, qp->acked_psn) > 0) {
        advance(s, qp, acked);
        if (qp->state != MLX5_QPC_STATE_RTS || qp->sent.empty()) return;
    } else if (syndrome == AETH_ACK && !lost) {
        return;
    }
    if (lost) return ask_again(s, qp, missing);
    if (syndrome == AETH_ACK) return;
    if ((syndrome & 0xe0) == AETH_RNR_NAK) return not_ready(s, qp, psn, syndrome & 0x1f);
    switch (syndrome) {
        case AETH_NAK_PSN_SEQUENCE:
            s.report.count(Counter::retries);
            go_back(qp, psn);
            return await(s, qp);
        case AETH_NAK_INVALID_REQUEST:
            return refused(s, qp,
                           "remote invalid request: the peer cannot take this message (longer than its receive, "
                           "or of a kind it does not allow); its own report says which",
                           MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, VENDOR_REMOTE_INVALID_REQUEST);
        case AETH_NAK_REMOTE_ACCESS:
            return refused(s, qp,
                           "remote access error: the peer refused the rkey, the range or the right; its own "
                           "report says which",
                           MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, VENDOR_REMOTE_ACCESS);
        case AETH_NAK_REMOTE_OPERATIONAL:
            return refused(s, qp,
                           "remote operation error: the peer could not do it (its memory is gone, or its "
                           "receive is bad); its own report says which",
                           MLX5_CQE_SYNDROME_REMOTE_OP_ERR, VENDOR_REMOTE_OPERATION);
    }
}

}  // namespace sim
