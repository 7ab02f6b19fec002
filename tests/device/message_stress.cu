// SPDX-License-Identifier: Apache-2.0
// Receivers and a toy NIC in one launch: block 0 fills receives as they are posted, all threads of the others post and
// take them. tests/device/test_stress.py.
#include <gda/gda.h>

struct toy_faults {
    uint64_t went_back;  // the record
    uint64_t overrun;    // more receives than the queue holds
    uint64_t stale;      // an entry that is not written yet, or not one of ours
};

// Fills `total` receives of 16 bytes: the receive's index, and the same again with all bits turned.
inline void toy_nic(gda_qp* qp, uint64_t total, uint32_t lkey_be, toy_faults* faults) {
    gda::queue_view q = gda::view(qp);
    gda::receive_view v = gda::receives(qp);
    uint64_t filled = 0, posted = 0;
    while (filled < total) {
        uint32_t word = __atomic_load_n(static_cast<uint32_t*>(v.record), __ATOMIC_ACQUIRE);
        uint32_t counter = GDA_EXTRACT(qp_doorbell_record, receive_counter, gda::be32(word));
        uint16_t step = uint16_t(counter - uint16_t(posted));
        if (step >= 0x8000) faults->went_back++;
        if (step < 0x8000) posted += step;
        if (posted - filled > v.depth) faults->overrun++;
        if (filled == posted) gda::target::idle();
        for (; filled < posted; ++filled) {
            uint8_t* entry = v.ring + (filled & (v.depth - 1)) * 16;
            bool right = GDA_GET(wqe_data_seg, entry, byte_count) == 16 && memcmp(entry + 4, &lkey_be, 4) == 0;
            if (!right) {
                faults->stale++;
            } else {
                uint64_t* to = reinterpret_cast<uint64_t*>(GDA_GET(wqe_data_seg, entry, addr));
                to[0] = filled;
                to[1] = ~filled;
            }
            uint64_t at = filled + v.cq_base;
            uint8_t* cqe = v.cq_ring + (at & (v.depth - 1)) * 64;
            memset(cqe, 0xEE, 60);
            GDA_SET(cqe64, cqe, byte_cnt, 16);
            GDA_SET(cqe64, cqe, imm_inval_pkey, uint32_t(filled));
            uint32_t last = GDA_FIELD(cqe64, wqe_counter, uint32_t(uint16_t(filled))) |
                            GDA_FIELD(cqe64, owner, uint32_t(at >> v.log_size) & 1) |
                            GDA_FIELD(cqe64, opcode, uint32_t(gda::prm::MLX5_CQE_RESP_SEND_IMM));
            __atomic_store_n(reinterpret_cast<uint32_t*>(cqe + 60), gda::be32(last), __ATOMIC_RELEASE);
        }
    }
}

// Each thread posts and takes `messages` receives, one after the other; seen[index] counts whole arrivals.
GDA_KERNEL(stress)(gda_qp* qp, gda_mr buffers, uint32_t messages, uint32_t* seen, toy_faults* faults, uint64_t* wrong,
                   gda_status* status) {
    uint64_t receivers = uint64_t(gridDim.x - 1) * blockDim.x;
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) toy_nic(qp, receivers * messages, buffers.lkey_be, faults);
        return;
    }
    uint64_t me = uint64_t(blockIdx.x - 1) * blockDim.x + threadIdx.x;
    for (uint32_t i = 0; i < messages; ++i) {
        // The queue is deeper than there are threads, each has one receive open: there is always room.
        gda_ticket posted = gda_post_receive(qp, buffers, (me * messages + i) * 16, 16);
        if (gda_failed(posted)) return gda_report(status, gda_wait(qp, posted, 0));
        gda_received r;
        gda_status s = gda_wait_receive(qp, &r, GDA_S(60));
        if (s != 0) return gda_report(status, s);
        const uint64_t* got = reinterpret_cast<const uint64_t*>(r.addr);
        bool whole = got[0] == r.index && got[1] == ~r.index && r.bytes == 16 && r.immediate == uint32_t(r.index);
        if (whole) {
            atomicAdd(&seen[r.index], 1u);
        } else {
            atomicAdd(wrong, uint64_t(1));
        }
    }
}
