// SPDX-License-Identifier: Apache-2.0
// The consumer of toy_nic.h for a GPU: thread 0 of block 0 looks for doorbells, checks and completes; all other blocks
// post. Everything ends by itself within ten seconds, also when something goes wrong: the NIC gives up at its limit,
// puts and waits have deadlines. tests/device/test_gpu.py.
#include <gda/gda.h>

// What the NIC saw, in this order: record went back, overrun, stale work requests, doorbells, served when it gave up
// (plus one; zero: it did not).
enum { WENT_BACK, OVERRUN, STALE, DOORBELLS, GAVE_UP };

static constexpr uint64_t NIC_LIMIT_NS = GDA_S(5);

__device__ void toy_nic(gda_qp* qp, uint64_t total, uint64_t* faults) {
    gda::queue_view q = gda::view(qp);
    uint64_t served = 0, announced = 0, give_up_at = gda::moment_after(NIC_LIMIT_NS);
    // The register is only read. Taking its value by an exchange would race with the producers' .mmio stores, which
    // are no atomics: a doorbell could be lost between the two halves of the exchange. Each doorbell's value differs
    // from the one before, since less than 2^16 blocks lie between them.
    volatile uint64_t* doorbell = static_cast<volatile uint64_t*>(q.doorbell);
    uint64_t last_rung = *doorbell;
    while (served < total) {
        uint64_t rung = *doorbell;
        if (rung != last_rung) {
            last_rung = rung;
            faults[DOORBELLS]++;
            __threadfence_system();
            uint32_t word = *static_cast<volatile uint32_t*>(q.record);
            uint16_t step = static_cast<uint16_t>(GDA_EXTRACT(qp_doorbell_record, send_counter, gda::be32(word)) -
                                                  static_cast<uint16_t>(announced));
            if (step >= 0x8000) {
                faults[WENT_BACK]++;
            } else {
                announced += step;
                if (announced - served > q.depth) faults[OVERRUN]++;
            }
            __threadfence_system();
        }
        uint64_t batch_end = announced - served < 16 ? announced : served + 16;
        if (served == batch_end) {
            if (gda_now_ns() < give_up_at) continue;
            faults[GAVE_UP] = served + 1;
            return;
        }
        for (; served < batch_end; ++served) {
            uint8_t* slot = gda::slot_address(q, served);
            uint32_t wqe[12];
            for (int i = 0; i < 12; ++i) wqe[i] = reinterpret_cast<volatile uint32_t*>(slot)[i];
            bool right = GDA_GET(wqe_ctrl_seg, wqe, wqe_index) == static_cast<uint16_t>(served) &&
                         GDA_GET(wqe_ctrl_seg, wqe, qp_or_sq) == q.qpn && GDA_GET(wqe_ctrl_seg, wqe, ds) == 3 &&
                         GDA_GET(wqe_data_seg, wqe + 8, byte_count) == 8;
            if (right) {
                *reinterpret_cast<uint64_t*>(GDA_GET(wqe_raddr_seg, wqe + 4, raddr)) += 1;
            } else {
                faults[STALE]++;
            }
            for (int i = 0; i < 12; ++i) reinterpret_cast<volatile uint32_t*>(slot)[i] = 0xeeeeeeee;
        }
        __threadfence_system();
        // One entry for all: the last of the batch stands for those before it.
        uint32_t counter = static_cast<uint16_t>(served - 1);
        uint32_t last = GDA_FIELD(cqe64, wqe_counter, counter);
        *reinterpret_cast<volatile uint32_t*>(q.cq_ring + GDA_DWORD_OFFSET(cqe64, opcode)) = gda::be32(last);
        if (gda_now_ns() >= give_up_at && served < total) {
            faults[GAVE_UP] = served + 1;
            return;
        }
    }
}

GDA_KERNEL(stress)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t puts, uint64_t* faults, gda_status* status) {
    uint64_t producers = static_cast<uint64_t>(gridDim.x - 1) * blockDim.x;
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) toy_nic(qp, producers * puts, faults);
        return;
    }
    uint64_t me = static_cast<uint64_t>(blockIdx.x - 1) * blockDim.x + threadIdx.x;
    gda_ticket ticket = 0;
    for (uint32_t i = 0; i < puts; ++i) {
        ticket = gda_put(qp, dst, (me * puts + i) * 8, src, 0, 8);
        if (gda_failed(ticket)) break;
    }
    gda_report(status, gda_wait(qp, ticket, GDA_S(2)));
}
