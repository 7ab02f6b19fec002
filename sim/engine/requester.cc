// SPDX-License-Identifier: Apache-2.0
// See requester.h. Source of the transport rules: InfiniBand Architecture Specification, volume 1, "Transport Layer".

#include "sim/engine/requester.h"

#include <algorithm>

#include "sim/engine/completion.h"
#include "sim/engine/dc.h"
#include "sim/engine/doorbell.h"
#include "sim/engine/ordering.h"
#include "sim/engine/receive.h"
#include "sim/engine/reply.h"
#include "sim/engine/retry.h"
#include "sim/engine/sources.h"
#include "sim/engine/transmit.h"
#include "sim/engine/umr.h"
#include "sim/engine/vendor.h"
#include "sim/engine/wqe.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t RECORD_GRACE_NS = milliseconds(20);  // some store the record only after they rang
const int32_t MOST_ON_THE_WAY = 1 << 21;            // packets; the largest message has 2^22 of 256 bytes
const int BUDGET = 256;                             // packets per queue pair and round: others want their turn

void complete_error(DeviceState& s, Qp* qp, const Message& m, uint8_t syndrome, uint8_t vendor) {
    Completion c;
    c.opcode = MLX5_CQE_REQ_ERR;
    c.wqe_opcode = m.opcode;
    c.index = m.index;
    c.syndrome = syndrome;
    c.vendor = vendor;
    complete(s, qp->send_cq, *qp, c);
}

// Reads and atomics before the cursor whose response is not complete.
uint32_t outstanding(const DeviceState& s, const Qp* qp) {
    if (!qp->fetches && s.copier.is_done(qp->scattered)) return 0;
    uint32_t n = 0;
    for (size_t i = 0; i < qp->cursor; ++i) {
        const Message& m = qp->sent[i];
        n += m.fetches && (m.arrived < m.packets || !s.copier.is_done(m.placed));
    }
    return n;
}

// Whether the message at the cursor may not go out yet.
bool must_wait(const DeviceState& s, const Qp* qp, const Message& m) {
    if (changes_key(m.opcode)) return qp->cursor != 0;
    if (!m.fetches && !m.fenced) return false;
    const uint32_t n = outstanding(s, qp);
    return m.fenced ? n != 0 : n >= qp->most_fetches;
}

void pump(DeviceState& s, Qp* qp) {
    int budget = BUDGET;
    while (qp->state == MLX5_QPC_STATE_RTS && !qp->failing && budget > 0) {
        if (qp->rnr_until_ns) {
            if (s.now_ns < qp->rnr_until_ns) return;
            qp->rnr_until_ns = 0;
        }
        const bool fresh = qp->cursor == qp->sent.size();
        if (fresh && qp->next == qp->producer) return;
        ParsedWqe wqe;
        if (fresh) {
            // Sequence numbers of what is on its way must not go half round.
            if (qp->reliable() && psn_difference(qp->next_psn, qp->acked_psn) > MOST_ON_THE_WAY) return;
            parse_wqe(s, qp, qp->next, &wqe);
            Message& m = qp->sent.add();
            m.index = qp->next;
            m.blocks = wqe.blocks;
            m.opcode = wqe.opcode;
            m.completion = wqe.completion;
            m.bytes = wqe.bytes;
            m.syndrome = wqe.syndrome;
            m.vendor = wqe.vendor;
            m.first_psn = qp->next_psn;
            m.fetches = wqe.fetches;
            m.fenced = wqe.fenced;
            m.stream = wqe.stream;
            if (qp->streams && qp->streams->errored.count(m.stream)) {
                m.syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
                m.vendor = VENDOR_FLUSHED;
                m.fetches = false;
            }
            if (!m.syndrome && m.opcode != MLX5_OPCODE_NOP && !changes_key(m.opcode)) m.packets = packets_of(qp, wqe);
            if (m.fetches && m.packets) ++qp->fetches;
            if (s.sources) s.sources->fetched(s, qp, m.index, wqe);
            qp->next_psn = psn_add(qp->next_psn, m.packets);
            qp->cursor_psn = m.first_psn;
            qp->next = static_cast<uint16_t>(qp->next + m.blocks);
            s.report.count(Counter::wqes);
            s.profile.count(m.opcode, m.bytes, s.now_ns);
            s.trace.note(TRACE_FETCH, qp->number, m.index, m.bytes, m.blocks, qp->remote_qpn, m.opcode, 0,
                         qp->send_ring.umem->gpu ? Trace::NOW : Trace::LATEST);  // a look there takes long
            ++s.done;
        } else if (!qp->sent[qp->cursor].syndrome && qp->sent[qp->cursor].packets) {  // again, or the rest of it
            Message& m = qp->sent[qp->cursor];
            if (must_wait(s, qp, m)) return;
            parse_wqe(s, qp, m.index, &wqe);
            if (!wqe.syndrome && wqe.bytes != m.bytes) {
                s.report.say(Kind::wqe_overwritten,
                             std::string(qp->name) + text(": WQE %u was overwritten while it was being sent", m.index),
                             {{"qp", qp->number}, {"index", m.index}, {"bytes", wqe.bytes}, {"before", m.bytes}});
                wqe.syndrome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
                wqe.vendor = VENDOR_STALE_WQE;
            }
            m.syndrome = wqe.syndrome;
            m.vendor = wqe.vendor;
            if (psn_difference(qp->cursor_psn, m.first_psn) < 0) qp->cursor_psn = m.first_psn;
        }
        Message& m = qp->sent[qp->cursor];
        if (!m.syndrome && must_wait(s, qp, m)) return;
        if (!m.syndrome && changes_key(m.opcode)) change_key(s, qp, &m);
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
        if (qp->dc_initiator() && must_turn(s, qp, wqe)) {
            if (qp->cursor != 0) return;  // until the target before has answered everything
            turn(s, qp, wqe, &m);
        }
        const Sent sent = transmit(s, qp, wqe, &budget);
        if (sent == Sent::stopped) retire(s, qp);
        if (sent != Sent::all) return;
        if (qp->cursor < qp->sent.size()) qp->cursor_psn = qp->sent[qp->cursor].first_psn;
        if (!qp->reliable()) retire(s, qp);  // nobody answers: done when it is on its way
    }
}

}  // namespace

namespace {

Message end_oldest(DeviceState& s, Qp* qp, uint8_t syndrome, uint8_t vendor) {
    const Message m = qp->sent.front();
    qp->sent.pop_front();
    qp->retired = static_cast<uint16_t>(m.index + m.blocks);
    if (qp->cursor) --qp->cursor;
    if (m.fetches && m.arrived < m.packets) --qp->fetches;
    complete_error(s, qp, m, syndrome, vendor);
    return m;
}

}  // namespace

// The oldest message failed: its error completion, and everything after it is flushed; of an initiator with streams,
// what is in its stream.
void fail_oldest(DeviceState& s, Qp* qp, uint8_t syndrome, uint8_t vendor) {
    const Message m = end_oldest(s, qp, syndrome, vendor);
    if (!end_stream(s, qp, m)) enter_error(s, qp);
}

void flush_oldest(DeviceState& s, Qp* qp) { end_oldest(s, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED); }

namespace {

// Whether the response to the oldest message is in memory. False after a failure, too, which it then carries.
bool placed(DeviceState& s, Qp* qp) {
    Message& m = qp->sent.front();
    const gpu::State state = s.copier.state_of(m.placed);
    if (state == gpu::State::done) return true;
    if (state == gpu::State::pending) return false;
    s.report.say(Kind::gpu_memory, std::string(qp->name) + text(": WQE %u: ", m.index) + s.copier.problem_of(m.placed),
                 {{"qp", qp->number}, {"index", m.index}});
    fail_oldest(s, qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_LOCAL_UNMAPPED);
    return false;
}

}  // namespace

// Completes, in order, what the peer has acknowledged and what needs no answer.
void retire(DeviceState& s, Qp* qp) {
    while (!qp->sent.empty()) {
        const Message& m = qp->sent.front();
        if (m.syndrome) return fail_oldest(s, qp, m.syndrome, m.vendor);
        if (qp->cursor == 0) return;
        if (m.packets && qp->reliable() && psn_difference(psn_add(m.first_psn, m.packets - 1), qp->acked_psn) > 0) {
            return;
        }
        if (!placed(s, qp)) return;
        const Message done = m;
        if (s.sources) s.sources->completes(s, qp, done);
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
    const Report::Counting counting(s.report, qp->counter_set, qp->port);
    if (!qp->replies.empty()) {
        serve_replies(s, qp);
    } else if (qp->failing) {  // not in the round that sent the refusal: it may be for this very queue pair
        enter_error(s, qp);
    }
    if (qp->state == MLX5_QPC_STATE_ERR) {
        flush_sends(s, qp);
        flush_receives(s, qp);
        if (qp->target) return false;  // nothing is ever posted to it
        return true;                   // what is posted later must be flushed too
    }
    if (qp->announced_ns && s.now_ns - qp->announced_ns >= RECORD_GRACE_NS) {
        if (!says_wrong_word(s, qp))
            s.report.say(
                Kind::doorbell_without_record,
                text("%s: the doorbell was rung for producer index %u, but its record still says %u: the record was "
                     "not stored (send counter: second dword, big-endian), or stored after the doorbell",
                     qp->name, qp->announced, qp->producer),
                {{"qp", qp->number}, {"index", qp->producer}, {"rung", qp->announced}, {"record", qp->producer}});
        qp->announced_ns = 0;
    }
    if (qp->state == MLX5_QPC_STATE_RTS && qp->scattered.context && !qp->sent.empty()) retire(s, qp);
    if (qp->state == MLX5_QPC_STATE_RTS) {
        check_timers(s, qp);
        pump(s, qp);
    }
    const bool sending = qp->state == MLX5_QPC_STATE_RTS && (!qp->sent.empty() || qp->next != qp->producer);
    return sending || !qp->replies.empty() || qp->failing || qp->announced_ns || qp->state == MLX5_QPC_STATE_ERR;
}

uint64_t due_ns(const Qp* qp) {
    uint64_t due = qp->rnr_until_ns ? qp->rnr_until_ns : qp->deadline_ns;
    if (qp->state != MLX5_QPC_STATE_RTS) return 0;
    if (qp->announced_ns && (!due || qp->announced_ns + RECORD_GRACE_NS < due))
        due = qp->announced_ns + RECORD_GRACE_NS;
    return due;
}

void produced(DeviceState& s, Qp* qp, uint16_t producer) {
    const uint16_t ahead = static_cast<uint16_t>(producer - qp->producer);
    if (ahead == 0) return;
    const uint16_t back = static_cast<uint16_t>(qp->producer - producer);
    if (ahead > qp->send_blocks && back <= qp->send_blocks) {
        if (!qp->recordless) {  // without a record two doorbells may pass each other: the older one does not count
            s.report.say(
                Kind::record_went_back,
                text("%s: doorbell record went back %u\u2192%u: a later publisher stored it before an earlier one",
                     qp->name, qp->producer, producer),
                {{"qp", qp->number}, {"index", producer}, {"before", qp->producer}, {"record", producer}});
        }
        return;
    }
    const uint16_t held = static_cast<uint16_t>(producer - qp->retired);
    if (held > qp->send_blocks) {
        s.report.say(Kind::sq_overrun,
                     text("%s: SQ overrun PI-CI=%u > %u: producer index %u, completed up to %u; slots were overwritten "
                          "before their completion",
                          qp->name, held, qp->send_blocks, producer, qp->retired),
                     {{"qp", qp->number},
                      {"index", qp->retired},
                      {"producer", producer},
                      {"consumer", qp->retired},
                      {"blocks", qp->send_blocks}});
    }
    qp->producer = producer;
    s.trace.note(TRACE_SEEN, qp->number, static_cast<uint16_t>(producer - 1), 0, ahead, qp->remote_qpn, 0, 0,
                 Trace::NOW);
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
    qp->fetches = 0;
}

void enter_error(DeviceState& s, Qp* qp) {
    qp->failing = false;
    if (qp->state == MLX5_QPC_STATE_RST || qp->state == MLX5_QPC_STATE_ERR) return;
    qp->state = MLX5_QPC_STATE_ERR;
    qp->deadline_ns = qp->rnr_until_ns = qp->announced_ns = 0;
    qp->replies.clear();
    qp->fetch_replies = qp->again_replies = 0;
    flush_sends(s, qp);
    flush_receives(s, qp);
    if (qp->srq && !qp->over_xrc() && !qp->dc_target())
        s.pending.push_back({false, qp->number, AsyncEvent::qp_last_wqe});
    s.look_at(qp);
}

void forget(DeviceState& s, Qp* qp) {
    place_all(s);
    if (s.sources) s.sources->forget(qp);
    if (s.window_qp == qp) s.window_qp = nullptr;
    if (qp->busy) s.busy.erase(std::remove(s.busy.begin(), s.busy.end(), qp), s.busy.end());
    if (qp->failed) s.failed.erase(std::remove(s.failed.begin(), s.failed.end(), qp), s.failed.end());
    qp->busy = qp->failed = false;
}

}  // namespace sim
