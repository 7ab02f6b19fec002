// SPDX-License-Identifier: Apache-2.0
// How the NIC is told that work requests are written: doorbell record and doorbell, in the way that the queue pair was
// made for. Called by ring.h and owner.h, by whoever has the token or owns the queue; document: docs/doorbells.md.
//
//   record          record, barrier, doorbell. What all cards know; the quick way through this file
//   no record       doorbell alone (GDA_QP_RECORDLESS): the register is the only source of the index
//   doorbell first  doorbell, record, barrier, doorbell (GDA_QP_DOORBELL_FIRST): the NIC begins one barrier earlier
//   BlueFlame       record, barrier, the work request itself to the register (GDA_QP_BLUEFLAME): the NIC need not fetch
//   assisted        a word in memory (GDA_QP_ASSISTED): a host thread writes record and doorbell for the kernel
#pragma once

#include <gda/formats/wqe.h>
#include <gda/poll.h>

namespace gda {

static constexpr uint32_t OTHER_DOORBELLS = GDA_QP_DOORBELL_FIRST | GDA_QP_BLUEFLAME | GDA_QP_ASSISTED;
// Registers, or words in their place, that would harm if an older holder's write came after a newer one's: the index
// would go back, or two work requests would mix on their way.
static constexpr uint32_t ORDERED_DOORBELLS = GDA_QP_RECORDLESS | GDA_QP_BLUEFLAME;

// No index of a request: tell_nic() looks in memory what was rung.
static constexpr uint64_t AS_IN_MEMORY = ~static_cast<uint64_t>(0);

// First dword at the lower address: the low half of the store.
GDA_DEVICE uint64_t doorbell_value(const queue_view& q, uint64_t end) {
    uint32_t counter = static_cast<uint16_t>(end);
    return join(be32(GDA_FIELD(send_doorbell, qpn, q.qpn)), be32(GDA_FIELD(send_doorbell, wqe_index, counter)));
}

GDA_DEVICE void tell_record(const queue_view& q, uint64_t end) {
    uint32_t counter = static_cast<uint16_t>(end);
    target::store_record(q.record, be32(GDA_FIELD(qp_doorbell_record, send_counter, counter)));
}

// The first doorbell says by itself what is there: a NIC that takes its word begins to fetch while the record is on its
// way. One that reads the record may find the old one, hence the second.
GDA_DEVICE void tell_doorbell_first(const queue_view& q, uint64_t end) {
    target::wqe_before_doorbell(q.scope);
    target::store_doorbell(q.doorbell, doorbell_value(q, end));
    tell_record(q, end);
    target::doorbell_record_before_doorbell(q.scope);
    target::store_doorbell(q.doorbell, doorbell_value(q, end));
}

// One request of one block, and all before it told already: it goes to the register itself, read back from its slot.
// The two halves of the register are used in turn. Anything else is told by a plain doorbell.
GDA_DEVICE void tell_blueflame(gda_qp* qp, const queue_view& q, uint64_t end, uint64_t rung) {
    uint64_t used = load_word(q, &qp->flashes);
    tell_record(q, end);
    target::doorbell_record_before_doorbell(q.scope);
    if (end - rung != 1) return target::store_doorbell(q.doorbell, doorbell_value(q, end));
    uint64_t half = used % 2 * prm::UAR_BLUEFLAME_HALF_BYTES;
    uint64_t slot = ((end - 1) & (q.depth - 1)) * prm::WQE_BASIC_BLOCK_BYTES;
    target::store_blueflame(static_cast<uint8_t*>(q.doorbell) + half, q.sq + slot);
    store_word(q, &qp->flashes, used + 1);
}

// What is not the common way, out of its way. `rung` as in tell_nic.
GDA_COLD void tell_otherwise(gda_qp* qp, uint64_t end, uint64_t rung) {
    queue_view q = view(qp);
    if ((q.flags & GDA_QP_ASSISTED) != 0) {
        target::store_request_to_ring(q.doorbell, doorbell_value(q, end));
    } else if ((q.flags & GDA_QP_BLUEFLAME) != 0) {
        tell_blueflame(qp, q, end, rung == AS_IN_MEMORY ? load_word(q, &qp->rung) : rung);
    } else {
        tell_doorbell_first(q, end);
    }
}

// Tells the NIC that the WQEs below `end` are written. The barrier wqe_before_doorbell_record (or that of own ones)
// stands behind the caller. `rung`: what it was told of already, where that is not in memory.
GDA_DEVICE void tell_nic(gda_qp* qp, const queue_view& q, uint64_t end, uint64_t rung = AS_IN_MEMORY) {
    trace(prm::TRACE_RING, q.qpn, end - 1);  // first: the NIC may see the record before the doorbell
    if (__builtin_expect((q.flags & (OTHER_DOORBELLS | GDA_QP_RECORDLESS)) == 0, 1)) {
        tell_record(q, end);
        target::doorbell_record_before_doorbell(q.scope);
    } else if ((q.flags & OTHER_DOORBELLS) == 0) {
        target::wqe_before_doorbell(q.scope);
    } else {
        return tell_otherwise(qp, end, rung);
    }
    target::store_doorbell(q.doorbell, doorbell_value(q, end));
}

}  // namespace gda
