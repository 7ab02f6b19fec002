// SPDX-License-Identifier: Apache-2.0
// A queue of one's own, with its state in registers: what posting costs least. Called by kernels; document:
// docs/ordering.md, "Owned queues".
//
//   gda_owner queue(qp);                            // one thread; or gda_warp_owner: a warp, all 32 lanes
//   gda_ticket t = queue.put(dst, 0, src, 0, bytes);
//   gda_status s = queue.wait(t, GDA_MS(100));
//   queue.close();                                  // else the queue's counters stay as they were when it was opened
//
// The queue pair must be made for one owner (QueuePair(shared=False): GDA_QP_OWNED). Until close() nobody else may use
// it, also not by gda_put and gda_wait; a kernel may leave it closed to the next one. A warp's lanes call each
// operation together, each with arguments of its own: 32 requests, one doorbell; a lane whose own are refused posts
// nothing.
//
// Nothing is read to post but the own registers: no read-modify-write, no load, one release fence before the record and
// one before the doorbell. Completions are looked at when room gets short, and by wait, test and flush; so a failure of
// the queue is known to later calls from then on.
#pragma once

#include <gda/collective.h>

namespace gda {

// Whose: the lanes that post together. One lane's words are constants, so that nothing of them is left in the code.
struct one_lane {
    enum { ALONE = 1 };
    GDA_MEMBER bool leads() const { return true; }
    GDA_MEMBER target::group part(bool mine) const { return {1, 0, 0, mine ? 1u : 0u}; }
    GDA_MEMBER uint64_t broadcast(uint64_t v) const { return v; }
    GDA_MEMBER void sync() const {}
};

struct whole_warp {
    enum { ALONE = 0 };
    target::group g;
    GDA_MEMBER whole_warp() : g(target::warp()) {}
    GDA_MEMBER bool leads() const { return g.rank == 0; }
    GDA_MEMBER target::group part(bool mine) const { return target::subset(g, mine); }
    GDA_MEMBER uint64_t broadcast(uint64_t v) const { return target::broadcast(g, v); }
    GDA_MEMBER void sync() const { target::sync(g); }
};

// A poster as in scope.h, and the waits. All members but `lanes` are the same in all lanes.
template <class Lanes>
struct owner {
    gda_qp* qp;
    queue_view q;
    gda_status status;  // zero, or why nothing can be posted: the handle, or the queue's first error
    Lanes lanes;
    uint64_t next;    // index of the next request: `reserved` and `ready` at once
    uint64_t done;    // as last looked at
    uint64_t rung;    // the NIC was told of all below
    uint64_t silent;  // as in gda_qp

    GDA_MEMBER explicit owner(gda_qp* queue) { open(queue); }

    GDA_MEMBER void open(gda_qp* queue) {
        qp = queue;
        q = queue_view();
        next = done = rung = silent = 0;
        status = check_queue(queue);
        if (status != 0) return;
        q = view(queue);
        if (!q.owned) {
            status = make_status(prm::GDA_BAD_HANDLE, q.qpn, 0);
            return;
        }
        next = target::load_owned(&qp->reserved);
        done = target::load_owned(&qp->done);
        rung = target::load_owned(&qp->rung);
        silent = target::load_owned(&qp->silent);
        status = target::load_owned(&qp->error);
        lanes.sync();  // all have read before the first one writes
    }

    // Rings what was left, and gives the counters back.
    GDA_MEMBER void close() {
        if (q.depth == 0) return;  // never opened
        lanes.sync();
        if (rung != next) ring();
        if (lanes.leads()) {
            target::store_owned(&qp->reserved, next);
            target::store_owned(&qp->ready, next);
            target::store_owned(&qp->rung, rung);
            target::store_owned(&qp->silent, silent);
        }
        lanes.sync();
    }

    template <class Request>
    GDA_MEMBER gda_ticket submit(const Request& request, manner m, gda_status refused) {
        constexpr uint64_t BLOCKS = extent<Request>::BLOCKS;
        gda_ticket ticket = GDA_TICKET_FAILED | refused;
        bool mine = refused == 0;
        for (;;) {  // a turn more when all lanes at once would take more than half of the ring
            target::group those = lanes.part(mine);
            if (those.size == 0) return ticket;
            uint64_t count = lanes_at_once<Request>(q, those.size);
            gda_status full = room(count * BLOCKS);
            if (full != 0) return mine ? GDA_TICKET_FAILED | full : ticket;
            uint32_t unnoted = target::TRACE_JOINS && Lanes::ALONE != 0 ? static_cast<uint32_t>(count * BLOCKS) : 0;
            if (lanes.leads() && unnoted == 0) {
                trace(prm::TRACE_RESERVE, q.qpn, next, 0, static_cast<uint32_t>(count * BLOCKS));
            }
            bool now = mine && those.rank < count;
            if (now) ticket = store_at(q, next + those.rank * BLOCKS, request, m, unnoted);
            next += count * BLOCKS;
            if (extent<Request>::LAST + 1 != BLOCKS || lanes.part(now && !m.signaled).size != 0) silent = next;
            bool wanted = lanes.part(now && !m.more).size != 0;
            lanes.sync();  // all lanes' WQEs are written before the first one tells of them
            if (wanted || next - rung >= quarter(q)) ring();
            if (those.size == count) return ticket;
            mine = mine && !now;
        }
    }
    GDA_MEMBER uint64_t share() const { return 0; }
    GDA_MEMBER uint64_t shares() const { return 1; }
    GDA_MEMBER bool any(bool mine) const { return lanes.part(mine).size != 0; }
    template <class Request>
    GDA_MEMBER gda_ticket submit_each(const Request& request, manner m, bool mine) {
        gda_ticket ticket = submit(request, m, mine ? 0 : out_of_bounds(q));
        return mine ? ticket : 0;
    }

#define GDA_OWNED_OPERATION(NAME)                    \
    template <class... P>                            \
    GDA_MEMBER gda_ticket NAME(const P&... values) { \
        return gda::NAME(*this, values...);          \
    }
    // As gda_put and so on, without the queue pair.
    GDA_OPERATIONS(GDA_OWNED_OPERATION)
#undef GDA_OWNED_OPERATION

    // As gda_test, gda_wait and gda_flush. A warp's lanes call together, each with its own ticket.
    GDA_MEMBER gda_status test(gda_ticket ticket) {
        if (lanes.part(!gda_failed(ticket) && ticket > done).size != 0) look();
        gda_status s = outcome(ticket);
        return gda_code(s) == prm::GDA_TIMEOUT ? static_cast<gda_status>(prm::GDA_TIMEOUT) : s;
    }

    GDA_MEMBER gda_status wait(gda_ticket ticket, uint64_t deadline_ns) {
        uint64_t give_up_at = 0;
        for (;;) {
            bool open = !gda_failed(ticket) && ticket > done && status == 0;
            if (lanes.part(open).size == 0) return ended(ticket);
            look();
            if (lanes.part(open && ticket > done && status == 0).size == 0) return ended(ticket);
            if (give_up_at == 0) {
                give_up_at = moment_after(lanes.broadcast(deadline_ns));
                if (rung != next) ring();
            } else if (lanes.broadcast(target::clock_ns()) >= lanes.broadcast(give_up_at)) {
                return ended(ticket);
            }
            target::idle();
        }
    }

    GDA_MEMBER gda_status flush(uint64_t deadline_ns) {
        gda_ticket all = next;
        if (status == 0 && next > done && silent == next) {
            // The first lane's will do: it lies behind all.
            all = lanes.broadcast(submit(nop_request(), manner_of(0, true), lanes.leads() ? 0 : prm::GDA_BAD_HANDLE));
        }
        return wait(all, deadline_ns);
    }

   private:
    GDA_MEMBER gda_status ended(gda_ticket ticket) const {
        return gda_failed(ticket) ? outcome(ticket) : traced_end(q.qpn, ticket, outcome(ticket));
    }
    GDA_MEMBER gda_status outcome(gda_ticket ticket) const {
        if (gda_failed(ticket)) {
            gda_status s = ticket & ~GDA_TICKET_FAILED;
            return gda_code(s) == prm::GDA_COMPLETION_ERROR ? status : s;  // the ticket had no room for all of it
        }
        if (ticket <= done) return GDA_OK;
        return status != 0 ? status : make_status(prm::GDA_TIMEOUT, q.qpn, ticket - 1);
    }

    // Takes in what the NIC has completed. One lane reads; the queue's own words are its notebook.
    GDA_MEMBER void look() {
        if (q.depth == 0) return;
        uint64_t error = 0, end = done;
        if (lanes.leads()) {
            end = poll(qp, q).end;
            error = target::load_owned(&qp->error);
        }
        done = lanes.broadcast(end);
        status = lanes.broadcast(error);
        lanes.sync();  // what the first lane saw, all see: data that arrived, slots that are free
    }

    // Zero once `blocks` more fit, or why not.
    GDA_MEMBER gda_status room(uint64_t blocks) {
        if (!target::CHECKED) return 0;
        if (status != 0) return status;
        if (next + blocks - done <= q.depth) return 0;
        uint64_t give_up_at = moment_after(q.deadline_ns);
        for (;;) {
            look();
            if (status != 0) return status;
            if (next + blocks - done <= q.depth) return 0;
            if (lanes.broadcast(target::clock_ns()) >= lanes.broadcast(give_up_at)) {
                return make_status(prm::GDA_QUEUE_FULL, q.qpn, next);
            }
            if (rung != next) ring();
            target::idle();
        }
    }

    GDA_MEMBER void ring() {
        if (lanes.leads()) {
            target::own_wqe_before_doorbell_record(q.scope);
            tell_nic(qp, q, next, rung);
        }
        rung = next;
    }
};

}  // namespace gda

// A queue in one thread's hands. Made from a gda_qp* by open() or the constructor, given back by close(); between them
// put, get, put_value, signal ... without the first parameter, and test, wait, flush, answer as the functions of that
// name. `status` is zero, or why nothing can be posted.
typedef gda::owner<gda::one_lane> gda_owner;
// The same in the hands of a warp, whose 32 lanes call each together: each posts its own request, one doorbell rings.
typedef gda::owner<gda::whole_warp> gda_warp_owner;
