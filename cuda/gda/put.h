// SPDX-License-Identifier: Apache-2.0
// What kernels call: put, and the three ways to learn of its completion. Document: docs/one_put.md.
//
//   gda_ticket t = gda_put(qp, dst, 0, src, 0, bytes);      // posts and returns; may wait for a free slot
//   gda_status s = gda_wait(qp, t, GDA_MS(100));            // 0, an error, or GDA_TIMEOUT: see gda_code(s)
//
// Thread scope: every thread that calls posts its own request. Threads of one warp that call together on one queue
// submit together and pay for one doorbell. A queue made with one owner (GDA_QP_OWNED) may be used by one thread only.
#pragma once

#include <gda/post.h>

namespace gda {

// Above this the length would not fit the 31 bits of a data segment.
static constexpr uint64_t LARGEST_MESSAGE_BYTES = static_cast<uint64_t>(1) << 30;

struct message {
    uint64_t raddr;
    uint64_t addr;
    uint32_t rkey_be;
    uint32_t lkey_be;
    uint32_t bytes;
    bool last;  // of its put
};

// A put's last message completes with a CQE. So does one in each quarter of the ring: a ring full of requests that
// nobody would ever hear of could not be freed.
GDA_DEVICE bool is_signaled(const queue_view& q, uint64_t index, bool last) {
    uint64_t quarter = q.depth < 4 ? 1 : q.depth / 4;
    return last || (index & (quarter - 1)) == quarter - 1;
}

GDA_DEVICE void store_message(const queue_view& q, uint64_t index, const message& m) {
    store_rdma_write(q, index, m.raddr, m.rkey_be, m.addr, m.lkey_be, m.bytes, is_signaled(q, index, m.last));
}

GDA_DEVICE gda_ticket submit_owned(gda_qp* qp, const queue_view& q, const message& m) {
    claim c = reserve(qp, q, 1);
    if (c.status != 0) return GDA_TICKET_FAILED | c.status;
    store_message(q, c.base, m);
    publish_owned(qp, q, c);
    return c.base + 1;
}

// One lane reserves and publishes for all lanes that are here with the same queue; each writes its own request. Lanes
// that found no room this time come again.
GDA_DEVICE gda_ticket submit_shared(gda_qp* qp, const queue_view& q, const message& m) {
    for (;;) {
        target::group g = target::converged_group(qp);
        claim c = refused(0);
        if (g.rank == 0) c = reserve(qp, q, g.size);
        gda_status status = target::broadcast(g, c.status);
        if (status != 0) return GDA_TICKET_FAILED | status;
        c.base = target::broadcast(g, c.base);
        c.count = target::broadcast(g, c.count);
        bool mine = g.rank < c.count;
        if (mine) store_message(q, c.base + g.rank, m);
        target::sync(g);  // all lanes' WQEs are written before the leader publishes them
        if (g.rank == 0) publish_shared(qp, q, c);
        target::sync(g);  // stay together: the next put finds the same group
        if (mine) return c.base + g.rank + 1;
    }
}

// Zero, or why this queue cannot be used.
GDA_DEVICE gda_status check_queue(const gda_qp* qp) {
    if (qp == nullptr) return make_status(prm::GDA_BAD_HANDLE, 0, 0);
    if (target::load_constant(&qp->version) != GDA_HANDLE_VERSION) return make_status(prm::GDA_BAD_HANDLE, 0, 0);
    if ((target::load_constant(&qp->flags) & GDA_QP_CONNECTED) == 0) {
        return make_status(prm::GDA_NOT_CONNECTED, target::load_constant(&qp->qpn), 0);
    }
    return 0;
}

GDA_DEVICE bool within(const gda_mr& region, uint64_t offset, uint64_t bytes) {
    return offset <= region.bytes && bytes <= region.bytes - offset;
}

GDA_DEVICE bool is_done(const gda_qp* qp, const queue_view& q, gda_ticket ticket) {
    return (q.owned ? target::load_owned(&qp->done) : target::load_shared_acquire(&qp->done)) >= ticket;
}

GDA_DEVICE gda_status outcome(const gda_qp* qp, const queue_view& q, gda_ticket ticket) {
    if (is_done(qp, q, ticket)) return GDA_OK;
    gda_status error = q.owned ? target::load_owned(&qp->error) : target::load_shared_acquire(&qp->error);
    if (error == 0) return make_status(prm::GDA_TIMEOUT, q.qpn, ticket - 1);
    // Between the two reads another thread may have taken in both the completion and a later error.
    return is_done(qp, q, ticket) ? static_cast<gda_status>(GDA_OK) : error;
}

GDA_DEVICE gda_status refusal(const gda_qp* qp, gda_ticket ticket) {
    gda_status status = ticket & ~GDA_TICKET_FAILED;
    // The ticket had no room for the whole status of an earlier completion; the queue still has it.
    if (gda_code(status) == prm::GDA_COMPLETION_ERROR) return target::load_shared(&qp->error);
    return status;
}

}  // namespace gda

// Writes `bytes` bytes from src + src_offset to dst + dst_offset. The source may be changed again when the ticket is
// complete. Longer than the queue's max_message_bytes: several messages, one ticket. Refused at once, with
// gda_failed(ticket), when a region is too small, the handle is wrong, the queue has failed or is not connected; after
// the queue's deadline when no slot becomes free.
GDA_API gda_ticket gda_put(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                           uint64_t bytes) {
    gda_status status = gda::check_queue(qp);
    if (status != 0) return GDA_TICKET_FAILED | status;
    gda::queue_view q = gda::view(qp);
    if (!gda::within(dst, dst_offset, bytes) || !gda::within(src, src_offset, bytes)) {
        return GDA_TICKET_FAILED | gda::make_status(GDA_OUT_OF_BOUNDS, q.qpn, 0);
    }
    uint64_t most = q.max_message_bytes;
    if (most == 0 || most > gda::LARGEST_MESSAGE_BYTES) most = gda::LARGEST_MESSAGE_BYTES;
    gda_ticket ticket;
    uint64_t sent = 0;
    do {
        uint64_t now = bytes - sent < most ? bytes - sent : most;
        gda::message m;
        m.raddr = dst.addr + dst_offset + sent;
        m.rkey_be = dst.rkey_be;
        m.addr = src.addr + src_offset + sent;
        m.lkey_be = src.lkey_be;
        m.bytes = static_cast<uint32_t>(now);
        sent += now;
        m.last = sent == bytes;
        ticket = q.owned ? gda::submit_owned(qp, q, m) : gda::submit_shared(qp, q, m);
        if (gda_failed(ticket)) return ticket;
    } while (sent < bytes);
    return ticket;
}

// GDA_OK: complete. GDA_TIMEOUT (the bare code): not yet. Anything else: why it failed or was refused. Never waits.
GDA_API gda_status gda_test(gda_qp* qp, gda_ticket ticket) {
    if (gda_failed(ticket)) return gda::refusal(qp, ticket);
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    status = gda::outcome(qp, q, ticket);
    if (gda_code(status) != GDA_TIMEOUT) return status;
    gda::poll(qp, q);
    status = gda::outcome(qp, q, ticket);
    return gda_code(status) == GDA_TIMEOUT ? static_cast<gda_status>(GDA_TIMEOUT) : status;
}

// Waits at most `deadline_ns` nanoseconds: GDA_OK, the queue's first error, or GDA_TIMEOUT with queue and request in
// the word. A ticket that was complete before the queue failed is still GDA_OK.
GDA_API gda_status gda_wait(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns) {
    if (gda_failed(ticket)) return gda::refusal(qp, ticket);
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    uint64_t give_up_at = 0;
    for (;;) {
        gda::poll(qp, q);
        status = gda::outcome(qp, q, ticket);
        if (gda_code(status) != GDA_TIMEOUT) return status;
        if (give_up_at == 0) {
            give_up_at = gda::moment_after(deadline_ns);
        } else if (gda::target::clock_ns() >= give_up_at) {
            return status;
        }
        gda::target::idle();
    }
}

// Waits for everything that was posted to the queue before the call, by any thread.
GDA_API gda_status gda_flush(gda_qp* qp, uint64_t deadline_ns) {
    gda_status status = gda::check_queue(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    return gda_wait(qp, gda::load_word(q, &qp->reserved), deadline_ns);
}
