// SPDX-License-Identifier: Apache-2.0
// Fill in the two gaps, then run grade.py. The README says what belongs there.

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <gda/handle.h>
#include <gda/target.h>

namespace target = gda::target;

// The 48 bytes of request number `index` (from 0, for ever): write `bytes` from src + offset to dst + offset.
GDA_DEVICE void write_request(const gda_qp* qp, uint64_t index, gda_mr dst, gda_mr src, uint64_t offset,
                              uint32_t bytes) {
    // gap 1: build the request with GDA_SET and copy it into its slot
}

// The NIC is told that all requests below `end` are written.
GDA_DEVICE void tell(const gda_qp* qp, uint64_t end) {
    // gap 2: barrier, record, barrier, doorbell
}

// Given, as lab 2 has it: until the NIC has done request `index`, at most three seconds. False: not, or not well.
GDA_DEVICE bool wait_done(const gda_qp* qp, uint64_t index) {
    const uint8_t* last = reinterpret_cast<const uint8_t*>(qp->cq.ring) + GDA_DWORD_OFFSET(cqe64, opcode);
    uint64_t give_up = target::clock_ns() + 3000000000u;
    for (;;) {
        uint32_t dword = gda::be32(target::load_completion(last, target::scope_system));
        uint32_t opcode = GDA_EXTRACT(cqe64, opcode, dword);
        bool there = opcode != gda::prm::MLX5_CQE_INVALID;
        if (there && GDA_EXTRACT(cqe64, wqe_counter, dword) == (index & 0xffff))
            return opcode == gda::prm::MLX5_CQE_REQ;
        if (target::clock_ns() > give_up) return false;
        target::idle();
    }
}

// Given: computes `count` pieces of 64 bytes and writes each to the other side; request numbers begin with `first`.
GDA_KERNEL(post)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t first, uint32_t count, uint32_t seed, uint32_t* done) {
    uint32_t* words = reinterpret_cast<uint32_t*>(src.addr);
    for (uint32_t i = 0; i < count * 16; ++i) words[i] = seed + i;
    for (uint32_t i = 0; i < count; ++i) write_request(qp, first + i, dst, src, i * 64, 64);
    tell(qp, first + count);
    *done = wait_done(qp, first + count - 1);
}
