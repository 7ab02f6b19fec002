// SPDX-License-Identifier: Apache-2.0
// Producers and a toy NIC in one launch: block 0 is the NIC, all threads of the others post.
// tests/device/test_stress.py.
#include "toy_nic.h"

GDA_KERNEL(stress)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t puts, toy_faults* faults, uint32_t seed,
                   uint64_t* refused, gda_status* status) {
    uint64_t producers = uint64_t(gridDim.x - 1) * blockDim.x;
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) toy_nic(qp, producers * puts, faults, seed);
        return;
    }
    uint64_t me = uint64_t(blockIdx.x - 1) * blockDim.x + threadIdx.x;
    gda_ticket ticket = 0;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < puts; ++i) {
        ticket = gda_put(qp, dst, (me * puts + i) * 8, src, 0, 8);
        if (gda_failed(ticket) || ticket <= newest) {
            atomicAdd(refused, uint64_t(1));
            gda_report(status, gda_test(qp, ticket));
            return;
        }
        newest = ticket;
    }
    gda_report(status, gda_wait(qp, ticket, GDA_S(60)));
}

static gda::rdma_request write_of(const gda_mr& dst, const gda_mr& src) {
    return {gda::prm::MLX5_OPCODE_RDMA_WRITE, 0, dst.addr, src.addr, dst.rkey_be, src.lkey_be, 8};
}

// Case C4a: thread 0 has slot 0 and takes its time, thread 32 (another warp) has slot 1 and is ready first.
// out[0]: the record while slot 0 was not written.
GDA_KERNEL(second_is_faster)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t* out) {
    __shared__ volatile int reserved;
    gda::queue_view q = gda::view(qp);
    if (threadIdx.x == 0) reserved = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        gda::claim c = gda::reserve(qp, q, 1);
        uint64_t seen = gda::park_early(q, c);
        reserved = 1;
        for (uint64_t start = gda_now_ns(); gda_now_ns() - start < GDA_MS(20);) gda::target::idle();
        out[0] = *static_cast<volatile uint32_t*>(q.record);
        out[1] = uint32_t(*reinterpret_cast<volatile uint64_t*>(&qp->reserved));
        gda::store_request(q, c.base, write_of(dst, src), true);
        gda::publish_shared(qp, q, c, seen, false);
    } else if (threadIdx.x == 32) {
        while (!reserved) {
        }
        gda_put(qp, dst, 8, src, 8, 8);
    }
}

// A library that rings before it writes: the judge must see it.
GDA_KERNEL(rings_early)(gda_qp* qp, gda_mr dst, gda_mr src, toy_faults* faults) {
    if (blockIdx.x == 0) return toy_nic(qp, 1, faults, 1);
    gda::queue_view q = gda::view(qp);
    gda::claim c = gda::reserve(qp, q, 1);
    gda::ring_doorbell(qp, q, c.base + 1);
    while (*static_cast<volatile uint64_t*>(q.doorbell) != 0) {
    }
    for (uint64_t start = gda_now_ns(); gda_now_ns() - start < GDA_MS(5);) gda::target::idle();
    gda::store_request(q, c.base, write_of(dst, src), true);
}
