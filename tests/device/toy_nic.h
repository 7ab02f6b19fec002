// SPDX-License-Identifier: Apache-2.0
// A consumer of a send queue as strict as silicon, run as one thread of a kernel beside the threads that post: it looks
// at a work request only after a doorbell, takes its index from the record (or from the register without one), checks
// the request, overwrites the slot, and completes. tests/device/test_stress.py.
#pragma once

#include <gda/gda.h>

struct toy_faults {
    uint64_t went_back;   // record or register
    uint64_t overrun;     // more than the ring holds
    uint64_t stale;       // index, queue pair, opcode or length do not match: not written yet, or overwritten
    uint64_t doorbells;   // taken; several may have merged
    uint64_t cq_overrun;  // the consumer record left no room
};

inline uint32_t toy_random(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

// Serves `total` requests whose targets are 8-byte cells: each is counted up.
inline void toy_nic(gda_qp* qp, uint64_t total, toy_faults* faults, uint32_t seed) {
    gda::queue_view q = gda::view(qp);
    bool recordless = (q.flags & GDA_QP_RECORDLESS) != 0;
    bool collapsed = (q.cq_flags & GDA_CQ_COLLAPSED) != 0;
    uint64_t entries = uint64_t(1) << q.cq_log_size;
    uint64_t served = 0, announced = 0, completions = 0;
    uint32_t random = seed;
    uint64_t* doorbell = static_cast<uint64_t*>(q.doorbell);
    uint64_t* other = (q.flags & GDA_QP_BLUEFLAME) != 0 ? doorbell + gda::prm::UAR_BLUEFLAME_HALF_BYTES / 8 : doorbell;
    bool takes_its_word = recordless || (q.flags & GDA_QP_DOORBELL_FIRST) != 0;
    while (served < total) {
        uint64_t rung = atomicExch(doorbell, uint64_t(0));
        if (rung == 0) rung = atomicExch(other, uint64_t(0));
        if (rung != 0) {
            faults->doorbells++;
            uint32_t counter = GDA_GET(send_doorbell, &rung, wqe_index);
            if (takes_its_word && !recordless && uint16_t(counter - uint16_t(announced)) < 0x8000) {
                announced += uint16_t(counter - uint16_t(announced));
            }
            if (!recordless) {
                uint32_t word = __atomic_load_n(static_cast<uint32_t*>(q.record), __ATOMIC_ACQUIRE);
                counter = GDA_EXTRACT(qp_doorbell_record, send_counter, gda::be32(word));
            }
            uint16_t step = uint16_t(counter - uint16_t(announced));
            if (step >= 0x8000) {
                if (recordless || !takes_its_word) faults->went_back++;
            } else {
                announced += step;
                if (announced - served > q.depth) faults->overrun++;
            }
        }
        if (served == announced) {
            gda::target::idle();
            continue;
        }
        for (uint32_t batch = 1 + toy_random(random) % 8; batch != 0 && served < announced; --batch, ++served) {
            uint8_t* wqe = gda::slot_address(q, served);
            bool right = GDA_GET(wqe_ctrl_seg, wqe, wqe_index) == uint16_t(served) &&
                         GDA_GET(wqe_ctrl_seg, wqe, qp_or_sq) == q.qpn && GDA_GET(wqe_ctrl_seg, wqe, ds) == 3 &&
                         GDA_GET(wqe_ctrl_seg, wqe, opcode) == gda::prm::MLX5_OPCODE_RDMA_WRITE &&
                         GDA_GET(wqe_data_seg, wqe + 32, byte_count) == 8;
            if (!right) {
                faults->stale++;
                continue;
            }
            uint64_t* cell = reinterpret_cast<uint64_t*>(GDA_GET(wqe_raddr_seg, wqe + 16, raddr));
            *cell += 1;
            memset(wqe, 0xEE, 64);
            uint64_t at = collapsed ? 0 : completions % entries;
            if (!collapsed && (q.cq_flags & GDA_CQ_IGNORE_OVERRUN) == 0) {
                uint32_t word = __atomic_load_n(static_cast<uint32_t*>(q.cq_record), __ATOMIC_ACQUIRE);
                uint32_t consumed = GDA_EXTRACT(cq_doorbell_record, consumer_index, gda::be32(word));
                if (completions - consumed >= entries) faults->cq_overrun++;
            }
            uint32_t owner = collapsed ? 0 : uint32_t(completions / entries % 2);
            uint32_t last = GDA_FIELD(cqe64, wqe_counter, uint32_t(uint16_t(served))) | GDA_FIELD(cqe64, owner, owner);
            uint32_t* where = reinterpret_cast<uint32_t*>(q.cq_ring + 64 * at + GDA_DWORD_OFFSET(cqe64, owner));
            __atomic_store_n(where, gda::be32(last), __ATOMIC_RELEASE);
            ++completions;
        }
    }
}
