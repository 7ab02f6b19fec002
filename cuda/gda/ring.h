// SPDX-License-Identifier: Apache-2.0
// Slots of a send queue: reserve them, ring the doorbell or leave it to a later request. Called by token.h and
// submit.h; document: docs/one_put.md, steps 3 and 5.
//
// Who owns what between the counters (64-bit indices of basic blocks; slot = index & (depth - 1)):
//   [done, ready)      the NIC: published, perhaps rung, perhaps completed
//   [ready, reserved)  threads: writing WQEs, done with it, or waiting until their slots are free
//   `reserved` moves by one addition, which needs nothing that was read before, so that all reads of a put are under
//   way with it. Whoever gets slots that the NIC has not freed yet waits with its ticket in hand, in order; at its
//   deadline it gives them back, last one first, and leaves without a trace.
#pragma once

#include <gda/tell.h>

namespace gda {

// How long a thread waits for others beyond its deadline: for an earlier one to write its slots, for a later one to
// give its own back. They need nothing but to run, so when this has passed one is gone (its kernel was killed) and the
// queue cannot go on.
static constexpr uint64_t OTHERS_LIMIT_NS = GDA_S(10);

struct claim {
    uint64_t base;            // index of the first block
    uint64_t count;           // blocks
    uint32_t request_blocks;  // of each request among them
    uint64_t ready;           // `ready` as read before the WQEs were written
    gda_status status;        // not zero: nothing was reserved
};

GDA_DEVICE claim refused(gda_status status) {
    claim c = {0, 0, 1, 0, status};
    return c;
}

// At most so many blocks are kept from the NIC by deferred doorbells, or unknown to be complete because nobody asked
// (is_signaled). So whoever waits for at most half of the ring waits for requests that the NIC will complete.
GDA_DEVICE uint64_t quarter(const queue_view& q) { return q.depth < 4 ? 1 : q.depth / 4; }

// Possible while nobody has reserved behind them, or who did has given those back.
GDA_DEVICE bool give_back(gda_qp* qp, const queue_view& q, const claim& c) {
    if (!q.owned) return target::compare_swap_relaxed(&qp->reserved, c.base + c.count, c.base);
    target::store_owned(&qp->reserved, c.base);
    return true;
}

// Until the NIC has read what was in the slots. It has been told of all that lies there, or will be by its writers, who
// wait for nobody behind them.
GDA_COLD claim await_room(gda_qp* qp, claim c) {
    queue_view q = view(qp);
    uint64_t give_up_at = moment_after(q.deadline_ns), fail_at = moment_after(OTHERS_LIMIT_NS);
    if (give_up_at > fail_at) fail_at = give_up_at;
    for (;;) {
        c.status = load_word(q, &qp->error);
        // Acquire: the NIC has read the slots below `done`, so they may be written.
        uint64_t done = load_done(qp, q);
        if (c.status != 0) break;
        if (c.base + c.count - done <= q.depth) {
            c.ready = load_word(q, &qp->ready);
            return c;
        }
        uint64_t now = target::clock_ns();
        if (now >= give_up_at) {
            if (give_back(qp, q, c)) return refused(make_status(prm::GDA_QUEUE_FULL, q.qpn, c.base));
            if (now >= fail_at) latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, c.base));
        }
        poll(qp, q);
        target::idle();
    }
    give_back(qp, q, c);  // or not: nobody will publish behind a failure
    return refused(c.status);
}

// `count` blocks, at most half of the ring, waiting at most the queue's deadline for them. Who writes all of them at
// once may pass `unnoted`: how many of them a trace is to learn of from the request that is written first.
GDA_DEVICE claim reserve(gda_qp* qp, const queue_view& q, uint64_t count, uint32_t request_blocks = 1,
                         uint32_t* unnoted = nullptr) {
    claim c;
    c.count = count;
    c.request_blocks = request_blocks;
    if (q.owned) {
        c.base = target::load_owned(&qp->reserved);
        target::store_owned(&qp->reserved, c.base + count);
    } else {
        c.base = target::add(&qp->reserved, count);
    }
    bool later = target::TRACE_JOINS && unnoted != nullptr;
    if (!later) trace(prm::TRACE_RESERVE, q.qpn, c.base, 0, static_cast<uint32_t>(count));
    if (later) *unnoted = static_cast<uint32_t>(count);
    // All under way at once with the addition; what may acquire comes last since later reads would wait for it.
    c.ready = load_word(q, &qp->ready);
    if (!target::CHECKED) {
        c.status = 0;
        return c;
    }
    c.status = load_word(q, &qp->error);
    uint64_t done = q.owned ? target::load_owned(&qp->done) : target::load_done(&qp->done, q.scope);
    // The difference has far less than 32 bits: the ring, and tickets of threads that wait.
    bool room = static_cast<uint32_t>(c.base + count - done) <= static_cast<uint32_t>(q.depth);
    if (__builtin_expect(c.status == 0 && room, 1)) return c;
    if (later) trace(prm::TRACE_RESERVE, q.qpn, c.base, 0, static_cast<uint32_t>(count));
    if (later) *unnoted = 0;
    return await_room(qp, c);
}

GDA_DEVICE void ring_doorbell(gda_qp* qp, const queue_view& q, uint64_t end) {
    tell_nic(qp, q, end);
    store_word(q, &qp->rung, end);
}

// Tells the NIC of what is ready, or leaves that to a later request: `more` are to come, at most a quarter of the ring.
// The caller has the token.
GDA_DEVICE void ring_or_defer(gda_qp* qp, const queue_view& q, uint64_t end, bool more) {
    if (more && end - load_word(q, &qp->rung) < quarter(q)) {
        return store_word(q, &qp->deferred, end);
    }
    ring_doorbell(qp, q, end);
}

GDA_DEVICE void publish_owned(gda_qp* qp, const queue_view& q, const claim& c, bool more) {
    uint64_t end = c.base + c.count;
    target::own_wqe_before_doorbell_record(q.scope);
    ring_or_defer(qp, q, end, more);
    target::store_owned(&qp->ready, end);
}

}  // namespace gda
