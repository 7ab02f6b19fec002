// SPDX-License-Identifier: Apache-2.0
// Slots of a send queue: reserve, publish, ring the doorbell. Called by submit.h; document: docs/one_put.md, steps 3
// and 5.
//
// Who owns what between the counters (64-bit indices of basic blocks; slot = index & (depth - 1)):
//   [done, ready)      the NIC: published, perhaps rung, perhaps completed
//   [ready, reserved)  threads that write WQEs
//   `reserved` moves by compare-and-swap and only into free slots, so whoever has a slot never waits for the NIC: a
//   thread that finds the ring full holds nothing, and at its deadline it leaves without a trace.
//   `ready` is the right to publish: the thread whose slots begin there may write record and doorbell, and then moves
//   it.
#pragma once

#include <gda/poll.h>

namespace gda {

// At the latest after this many blocks the doorbell is rung, also when more are coming.
static constexpr uint64_t MAX_BLOCKS_PER_DOORBELL = 32;
// How long a publisher waits for an earlier one. That one has its slots and needs nothing but to run, so when this has
// passed it is gone (its kernel was killed) and the queue cannot go on.
static constexpr uint64_t PREDECESSOR_LIMIT_NS = GDA_S(10);

struct claim {
    uint64_t base;      // index of the first block
    uint64_t count;     // blocks, at most as many as asked for
    uint64_t ready;     // `ready` as read before the WQEs were written
    gda_status status;  // not zero: nothing was reserved
};

GDA_DEVICE claim refused(gda_status status) {
    claim c = {0, 0, 0, status};
    return c;
}

// Hands out 1 to `wanted` blocks, waiting at most the queue's deadline for the first one.
GDA_DEVICE claim reserve(gda_qp* qp, const queue_view& q, uint64_t wanted) {
    uint64_t give_up_at = 0;
    for (;;) {
        // Four reads under way at once; the acquire comes last since later reads would wait for it.
        claim c;
        c.base = load_word(q, &qp->reserved);
        c.ready = load_word(q, &qp->ready);
        c.status = load_word(q, &qp->error);
        // Acquire: the NIC has read the slots below `done`, so they may be written.
        uint64_t done = q.owned ? target::load_owned(&qp->done) : target::load_shared_acquire(&qp->done);
        if (c.status != 0) return refused(c.status);
        // `done` above `base`: others reserved and completed between the two reads; look again.
        if (done <= c.base && c.base - done < q.depth) {
            uint64_t room = q.depth - (c.base - done);
            c.count = wanted < room ? wanted : room;
            if (q.owned) {
                target::store_owned(&qp->reserved, c.base + c.count);
                return c;
            }
            if (target::compare_swap_relaxed(&qp->reserved, c.base, c.base + c.count)) return c;
        } else {
            poll(qp, q);
            target::idle();
        }
        if (give_up_at == 0) {
            give_up_at = moment_after(q.deadline_ns);
        } else if (target::clock_ns() >= give_up_at) {
            return refused(make_status(prm::GDA_QUEUE_FULL, q.qpn, c.base));
        }
    }
}

// Tells the NIC that the WQEs below `end` are written. The caller holds the right to publish, and the barrier
// wqe_before_doorbell_record stands behind it.
GDA_DEVICE void ring_doorbell(const queue_view& q, uint64_t end) {
    uint32_t counter = static_cast<uint16_t>(end);
    if ((q.flags & GDA_QP_RECORDLESS) == 0) {
        target::store_record(q.record, be32(GDA_FIELD(qp_doorbell_record, send_counter, counter)));
        target::doorbell_record_before_doorbell(q.scope);
    } else {
        target::wqe_before_doorbell(q.scope);
    }
    // First dword at the lower address: the low half of the store.
    target::store_doorbell(q.doorbell, join(be32(GDA_FIELD(send_doorbell, qpn, q.qpn)),
                                            be32(GDA_FIELD(send_doorbell, wqe_index, counter))));
}

GDA_DEVICE void publish_owned(gda_qp* qp, const queue_view& q, const claim& c) {
    uint64_t end = c.base + c.count;
    target::wqe_before_doorbell_record(q.scope);
    ring_doorbell(q, end);
    target::store_owned(&qp->ready, end);
}

// Until `ready` reaches `base`: then the slots from `base` on are the caller's to publish. False: an earlier thread is
// gone, and the queue has failed.
GDA_DEVICE bool await_turn(gda_qp* qp, const queue_view& q, const uint64_t* ready, uint64_t base) {
    uint64_t give_up_at = 0;
    while (target::load_shared(ready) != base) {
        target::idle();
        if (give_up_at == 0) {
            give_up_at = moment_after(PREDECESSOR_LIMIT_NS);
        } else if (target::clock_ns() >= give_up_at) {
            latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, base));
            return false;
        }
    }
    return true;
}

// In order: waits until all earlier slots are published, rings unless somebody later will, passes the right on.
//
// No doorbell is lost: whoever does not ring has seen a later reservation, its owner publishes after this thread (it
// has its slots, so it waits for nobody but earlier publishers), and the last of this chain sees no later one.
// No unwritten slot is rung: `ready` reaches c.base only when every earlier slot is written, by a chain of
// barrier-store-load-barrier from each writer to the next.
GDA_DEVICE void publish_shared(gda_qp* qp, const queue_view& q, const claim& c) {
    uint64_t end = c.base + c.count;
    uint64_t reserved = target::load_shared(&qp->reserved);
    // Both for the own WQEs (release) and, when `ready` was read as c.base before, for earlier ones (acquire).
    target::wqe_before_doorbell_record(q.scope);
    if (c.ready != c.base) {
        if (!await_turn(qp, q, &qp->ready, c.base)) return;
        target::earlier_slots_before_mine(q.scope);
        reserved = target::load_shared(&qp->reserved);  // meanwhile more may have come: let the last one ring
    }
    uint64_t half = q.depth / 2;
    uint64_t batch = half < MAX_BLOCKS_PER_DOORBELL ? half : MAX_BLOCKS_PER_DOORBELL;
    bool crossed = batch < 2 || c.base / batch != end / batch;
    if (reserved == end || crossed) {
        ring_doorbell(q, end);
        if ((q.flags & GDA_QP_RECORDLESS) != 0) target::doorbell_before_ready(q.scope);
    }
    target::store_shared(&qp->ready, end);
}

}  // namespace gda
