// SPDX-License-Identifier: Apache-2.0
// One put in its steps, the clock read between them: launched by gda/tools/bench/steps.py. The steps are the library's
// own, in the order of an owned queue's put (docs/one_put.md), called one by one; so the library itself carries no
// clock. On a GPU stores do not wait: what a store costs until others see it is in the barrier behind it.
#pragma once

#include <gda/gda.h>

namespace gda {

enum put_steps {
    STEP_BUILD,    // a slot, and the work request into it
    STEP_BARRIER,  // the work request before the record, or before the doorbell where there is no record
    STEP_RING,     // record, its barrier, doorbell; the doorbell alone where there is no record
    STEP_NIC,      // until the look at the completion queue that finds it begins
    STEP_LOOK,     // that look
    STEP_CLOCK,    // reading the clock once more
    PUT_STEPS
};

}  // namespace gda

// By one thread on a queue that is owned. ns[round * PUT_STEPS + step]; one put after the other.
GDA_KERNEL(gda_kernel_put_steps)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t bytes, uint32_t rounds,
                                 uint64_t deadline_ns, gda_mr times, gda_status* status) {
    gda::queue_view q = gda::view(qp);
    uint64_t* ns = reinterpret_cast<uint64_t*>(times.addr);
    for (uint32_t round = 0; round < rounds; ++round, ns += gda::PUT_STEPS) {
        uint64_t begin = gda::target::clock_ns();
        gda::claim slot = gda::reserve(qp, q, 1);
        if (slot.status != 0) {
            gda_report(status, slot.status);
            return;
        }
        gda::rdma_request request = {
            gda::prm::MLX5_OPCODE_RDMA_WRITE, 0, dst.addr, src.addr, dst.rkey_be, src.lkey_be, bytes};
        gda::store_request(q, slot.base, request, gda::conduct(true));
        uint64_t built = gda::target::clock_ns();
        gda::target::own_wqe_before_doorbell_record(q.scope);
        uint64_t ordered = gda::target::clock_ns();
        gda::ring_doorbell(qp, q, slot.base + 1);
        uint64_t rung = gda::target::clock_ns();
        gda::target::store_owned(&qp->ready, slot.base + 1);
        uint64_t look = rung, give_up_at = gda::moment_after(deadline_ns);
        while (gda::poll(qp, q).end <= slot.base) {
            gda_status error = gda::target::load_owned(&qp->error);
            look = gda::target::clock_ns();
            if (error != 0 || look >= give_up_at) {
                gda_report(status, error != 0 ? error : gda::make_status(gda::prm::GDA_TIMEOUT, q.qpn, slot.base));
                return;
            }
            gda::target::idle();
            look = gda::target::clock_ns();
        }
        uint64_t seen = gda::target::clock_ns();
        uint64_t again = gda::target::clock_ns();
        ns[gda::STEP_BUILD] = built - begin;
        ns[gda::STEP_BARRIER] = ordered - built;
        ns[gda::STEP_RING] = rung - ordered;
        ns[gda::STEP_NIC] = look - rung;
        ns[gda::STEP_LOOK] = seen - look;
        ns[gda::STEP_CLOCK] = again - seen;
    }
}
