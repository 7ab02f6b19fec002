// SPDX-License-Identifier: Apache-2.0
// The one way from a request to the NIC: checks, a slot, the request in it (post.h), publication (token.h). Called by
// scope.h, for every operation alike.
//
// The threads of a warp that all call together on one queue submit together and pay for one doorbell; where not all are
// there each submits for itself, and doorbells merge as those of any threads do (token.h). A queue made with one
// owner (GDA_QP_OWNED) may be used by one thread only, or by a warp in warp scope.
#pragma once

#include <gda/post.h>
#include <gda/token.h>

namespace gda {

// Above this the length would not fit the 31 bits of a data segment.
static constexpr uint64_t LARGEST_MESSAGE_BYTES = static_cast<uint64_t>(1) << 30;

GDA_DEVICE uint64_t largest_message(const queue_view& q) {
    uint64_t most = q.max_message_bytes;
    return most == 0 || most > LARGEST_MESSAGE_BYTES ? LARGEST_MESSAGE_BYTES : most;
}

// An operation's last message completes with a CQE unless it wants none. So does one in each quarter of the ring: a
// ring full of requests that nobody would ever hear of could not be freed.
GDA_DEVICE bool is_signaled(const queue_view& q, uint64_t index, uint32_t blocks, bool wanted) {
    uint32_t part = static_cast<uint32_t>(quarter(q));
    return wanted || (static_cast<uint32_t>(index) & (part - 1)) + blocks >= part;
}

// How a request is posted.
struct manner {
    bool signaled;  // its completion is wanted
    bool more;      // another request follows at once: the doorbell may be left to it
    bool fenced;    // it waits for the reads and atomics before it
};

GDA_DEVICE manner manner_of(uint32_t flags, bool last) {
    manner m = {last && (flags & GDA_UNSIGNALED) == 0, !last || (flags & GDA_MORE) != 0, (flags & GDA_FENCE) != 0};
    return m;
}

// A completion names the first block of its WQE, so a ticket is the index behind that one. `done` may thus lie short of
// what is complete by the last WQE's other blocks, until a later request completes.
template <class Request>
GDA_DEVICE gda_ticket store_at(const queue_view& q, uint64_t index, const Request& request, manner m,
                               uint32_t unnoted = 0) {
    bool signaled = is_signaled(q, index, extent<Request>::BLOCKS, m.signaled);
    store_request(q, index, request, conduct(signaled, m.fenced, unnoted));
    return index + extent<Request>::LAST + 1;
}

// For gda_flush: whether `done` will come to `end`, where the last of the requests posted together ends. Before they
// are published.
template <class Request>
GDA_DEVICE void note_silent(gda_qp* qp, const queue_view& q, uint64_t end, manner m) {
    if (m.signaled && extent<Request>::LAST + 1 == extent<Request>::BLOCKS) return;
    if (q.owned) {
        target::store_owned(&qp->silent, end);
    } else {
        target::raise(&qp->silent, end);
    }
}

template <class Request>
GDA_DEVICE gda_ticket submit_owned(gda_qp* qp, const queue_view& q, const Request& request, manner m) {
    uint32_t unnoted = 0;
    claim c = reserve(qp, q, extent<Request>::BLOCKS, extent<Request>::BLOCKS, &unnoted);
    if (c.status != 0) return GDA_TICKET_FAILED | c.status;
    gda_ticket ticket = store_at(q, c.base, request, m, unnoted);
    note_silent<Request>(qp, q, c.base + c.count, m);
    publish_owned(qp, q, c, m.more);
    return ticket;
}

// The group's first lane reserves and publishes for its first `lanes` lanes; each writes its own request. Zero for the
// others. On an owned queue the group is its owner.
template <class Request>
GDA_DEVICE gda_ticket submit_together(gda_qp* qp, const queue_view& q, const Request& request, manner m,
                                      const target::group& g, uint64_t lanes) {
    constexpr uint64_t BLOCKS = extent<Request>::BLOCKS;
    claim c = refused(0);
    c.count = lanes * BLOCKS;
    uint64_t seen = 0;
    uint32_t unnoted = 0;
    if (g.rank == 0) {
        c = reserve(qp, q, c.count, BLOCKS, lanes == 1 ? &unnoted : nullptr);
        if (!q.owned && c.status == 0) seen = park_early(q, c);
    }
    // One word for all lanes: the first index, or the refusal as in a ticket.
    gda_ticket base = target::broadcast(g, c.status == 0 ? c.base : GDA_TICKET_FAILED | c.status);
    if (__builtin_expect(gda_failed(base), 0)) return base;
    c.base = base;
    gda_ticket ticket = 0;
    if (g.rank < lanes) ticket = store_at(q, c.base + g.rank * BLOCKS, request, m, unnoted);
    if (g.rank + 1 == lanes) note_silent<Request>(qp, q, c.base + c.count, m);
    target::sync(g);  // all lanes' WQEs are written before the leader publishes them
    if (g.rank == 0) {
        if (q.owned) {
            publish_owned(qp, q, c, m.more);
        } else {
            publish_shared(qp, q, c, seen, m.more);
        }
    }
    target::sync(g);  // stay together: the next request finds the same group
    return ticket;
}

// At most half of the ring at once: a warp would fill a small one.
template <class Request>
GDA_DEVICE uint64_t lanes_at_once(const queue_view& q, uint64_t lanes) {
    uint64_t most = q.depth / 2 / extent<Request>::BLOCKS;
    if (most == 0) most = 1;
    return lanes < most ? lanes : most;
}

// Lanes that are here together with the same queue submit together. Only those of one mind: a lane that wants its
// doorbell must not stand behind a leader that defers it. And of one size: lanes may be here for different operations.
template <class Request>
GDA_DEVICE gda_ticket submit_shared(gda_qp* qp, const queue_view& q, const Request& request, manner m) {
    const uint8_t* key = reinterpret_cast<const uint8_t*>(qp) + 2 * extent<Request>::BLOCKS + m.more;
    for (;;) {
        target::group g = target::converged_group(key);
        gda_ticket ticket = submit_together(qp, q, request, m, g, lanes_at_once<Request>(q, g.size));
        if (ticket != 0) return ticket;
    }
}

// Posts one request. The ticket, or the refusal in it.
template <class Request>
GDA_DEVICE gda_ticket submit(gda_qp* qp, const queue_view& q, const Request& request, manner m) {
    return q.owned ? submit_owned(qp, q, request, m) : submit_shared(qp, q, request, m);
}

// Zero, or why this queue cannot be used.
GDA_DEVICE gda_status check_queue(const gda_qp* qp) {
    if (!target::CHECKED) return 0;
    if (qp == nullptr) return make_status(prm::GDA_BAD_HANDLE, 0, 0);
    if (target::load_constant(&qp->version) != GDA_HANDLE_VERSION) return make_status(prm::GDA_BAD_HANDLE, 0, 0);
    if ((target::load_constant(&qp->flags) & GDA_QP_CONNECTED) == 0) {
        return make_status(prm::GDA_NOT_CONNECTED, target::load_constant(&qp->qpn), 0);
    }
    return 0;
}

GDA_DEVICE bool within(const gda_mr& region, uint64_t offset, uint64_t bytes) {
    return !target::CHECKED || (offset <= region.bytes && bytes <= region.bytes - offset);
}

GDA_DEVICE gda_status out_of_bounds(const queue_view& q) { return make_status(prm::GDA_OUT_OF_BOUNDS, q.qpn, 0); }

}  // namespace gda
