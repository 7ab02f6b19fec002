// SPDX-License-Identifier: Apache-2.0
// The three ways to learn of a completion by ticket: test, wait, flush. Called by kernels; document: docs/one_put.md,
// step 11.
#pragma once

#include <gda/submit.h>

namespace gda {

// Of a ticket above `end`, up to which all is done.
GDA_DEVICE gda_status outcome(const gda_qp* qp, const queue_view& q, gda_ticket ticket, uint64_t end) {
    if (end >= ticket) return GDA_OK;
    gda_status error = q.owned ? target::load_owned(&qp->error) : target::load_shared_acquire(&qp->error);
    if (error == 0) return make_status(prm::GDA_TIMEOUT, q.qpn, ticket - 1);
    // Between the two reads another thread may have taken in both the completion and a later error.
    return load_done(qp, q) >= ticket ? static_cast<gda_status>(GDA_OK) : error;
}

// The doorbell of a request that was left to a later one, which did not come: a request that moves nothing rings it.
GDA_DEVICE void ring_deferred(gda_qp* qp, const queue_view& q, gda_ticket ticket) {
    if (load_word(q, &qp->rung) >= ticket || load_word(q, &qp->deferred) < ticket) return;
    submit(qp, q, nop_request(), manner_of(GDA_UNSIGNALED, true));
}

GDA_DEVICE gda_status refusal(const gda_qp* qp, gda_ticket ticket) {
    gda_status status = ticket & ~GDA_TICKET_FAILED;
    // The ticket had no room for the whole status of an earlier completion; the queue still has it.
    if (gda_code(status) == prm::GDA_COMPLETION_ERROR) return target::load_shared(&qp->error);
    return status;
}

// Until all below `end` is done. With `all`, also what has no completion of its own.
GDA_DEVICE gda_status await_done(gda_qp* qp, const queue_view& q, gda_ticket end, uint64_t deadline_ns, bool all) {
    uint64_t give_up_at = 0;
    gda_ticket ticket = end;
    for (;;) {
        uint64_t found = 0;
        gda_status status = outcome(qp, q, end, poll(qp, q, &found).end);
        if (gda_code(status) != prm::GDA_TIMEOUT) return traced_end(q.qpn, ticket, status, found);
        if (found != 0) trace(prm::TRACE_POLL, q.qpn, found - 1);
        // The note may come late, from a thread that has just reserved: hence in every turn.
        if (all && load_word(q, &qp->silent) >= end) {
            end = submit(qp, q, nop_request(), manner_of(0, true));
            if (gda_failed(end)) return traced_end(q.qpn, ticket, refusal(qp, end));
            all = false;
        }
        if (give_up_at == 0) {
            give_up_at = moment_after(deadline_ns);
            ring_deferred(qp, q, end);
        } else if (target::clock_ns() >= give_up_at) {
            return traced_end(q.qpn, ticket, status);
        }
        target::idle();
    }
}

}  // namespace gda

// GDA_OK: complete. GDA_TIMEOUT (the bare code): not yet. Anything else: why it failed or was refused. Never waits.
GDA_API gda_status gda_test(gda_qp* qp, gda_ticket ticket) {
    if (gda_failed(ticket)) return gda::refusal(qp, ticket);
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    if (gda::load_done(qp, q) >= ticket) return GDA_OK;
    status = gda::outcome(qp, q, ticket, gda::poll(qp, q).end);
    return gda_code(status) == GDA_TIMEOUT ? static_cast<gda_status>(GDA_TIMEOUT) : status;
}

// Waits at most `deadline_ns` nanoseconds: GDA_OK, the queue's first error, or GDA_TIMEOUT with queue and request in
// the word. A ticket that was complete before the queue failed is still GDA_OK.
GDA_API gda_status gda_wait(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns) {
    if (gda_failed(ticket)) return gda::refusal(qp, ticket);
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    return gda::await_done(qp, q, ticket, deadline_ns, false);
}

// Waits for everything that was posted to the queue before the call, by any thread. If the last request has no
// completion of its own, a request that moves nothing is posted behind it.
GDA_API gda_status gda_flush(gda_qp* qp, uint64_t deadline_ns) {
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    gda_ticket all = gda::load_word(q, &qp->reserved);
    return gda::await_done(qp, q, all, deadline_ns, true);
}
