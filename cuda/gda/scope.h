// SPDX-License-Identifier: Apache-2.0
// Who carries out an operation: one thread, or a warp together. Every operation (put.h, atomic.h, signal.h, message.h)
// is written once, for any of these and for the owners of owner.h; collective.h makes the forms that kernels call.
//
// A poster has
//   status                       zero, or why nothing can be posted
//   q                            the queue's constants
//   submit(request, m, refused)  posts it unless `refused` says why not; the ticket, or the refusal in it
// and for transfers of several messages, which lanes may share:
//   share(), shares()            which of how many messages of a round is this lane's
//   any(mine)                    whether a lane still has one
//   submit_each(request, m, mine)  every lane its own; a refusal of one is everybody's that shares
#pragma once

#include <gda/wait.h>

namespace gda {

// Thread scope: every thread that calls posts its own request.
struct by_thread {
    gda_qp* qp;
    queue_view q;
    gda_status status;

    GDA_MEMBER explicit by_thread(gda_qp* queue) : qp(queue), q(), status(check_queue(queue)) {
        if (status == 0) q = view(qp);
    }
    template <class Request>
    GDA_MEMBER gda_ticket submit(const Request& request, manner m, gda_status refused) {
        if (refused != 0) return GDA_TICKET_FAILED | refused;
        return gda::submit(qp, q, request, m);
    }
    GDA_MEMBER uint64_t share() const { return 0; }
    GDA_MEMBER uint64_t shares() const { return 1; }
    GDA_MEMBER bool any(bool mine) const { return mine; }
    template <class Request>
    GDA_MEMBER gda_ticket submit_each(const Request& request, manner m, bool) {
        return gda::submit(qp, q, request, m);
    }
};

// Warp scope: all threads of the warp call with equal arguments, one operation is posted, all get its ticket. What any
// of them wrote before is there for the NIC. Messages of a long transfer are written by all lanes.
struct by_warp {
    gda_qp* qp;
    queue_view q;
    gda_status status;
    target::group g;

    GDA_MEMBER explicit by_warp(gda_qp* queue) : qp(queue), q(), status(check_queue(queue)), g(target::warp()) {
        if (status == 0) q = view(qp);
        target::sync(g);
    }
    template <class Request>
    GDA_MEMBER gda_ticket submit(const Request& request, manner m, gda_status refused) {
        gda_ticket ticket = GDA_TICKET_FAILED | refused;
        if (refused == 0 && g.rank == 0) ticket = gda::submit(qp, q, request, m);
        return target::broadcast(g, ticket);
    }
    GDA_MEMBER uint64_t share() const { return g.rank; }
    GDA_MEMBER uint64_t shares() const { return lanes_at_once<rdma_request>(q, g.size); }
    GDA_MEMBER bool any(bool mine) const { return target::subset(g, mine).size != 0; }
    template <class Request>
    GDA_MEMBER gda_ticket submit_each(const Request& request, manner m, bool mine) {
        target::group those = target::subset(g, mine);
        gda_ticket ticket = 0;
        if (mine) ticket = submit_together(qp, q, request, m, those, those.size);
        return target::broadcast(g, ticket);  // the first lane's share is the first: it has one
    }
};

}  // namespace gda
