// SPDX-License-Identifier: Apache-2.0
// Fill in the two gaps, then run grade.py. The README says what belongs there.

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <gda/handle.h>
#include <gda/target.h>

namespace target = gda::target;

// What the threads share beside the queue: counters of requests that only grow, zero at first. All threads write them,
// the NIC does not see them.
struct counters {
    uint64_t* reserved;  // taken by threads, to be written
    uint64_t* ready;     // written, and told to the NIC in this order
    uint64_t* done;      // completed by the NIC
};

// Given, as in lab 3: the 48 bytes of request number `index` (from 0, for ever): write `bytes` from src + offset to dst
// + offset.
GDA_DEVICE void write_request(const gda_qp* qp, uint64_t index, gda_mr dst, gda_mr src, uint64_t offset,
                              uint32_t bytes) {
    uint64_t depth = static_cast<uint64_t>(1) << qp->log_sq_size;
    uint8_t* slot = reinterpret_cast<uint8_t*>(qp->sq) + index % depth * 64;
    uint8_t request[48] = {};
    GDA_SET(wqe_ctrl_seg, request, opcode, gda::prm::MLX5_OPCODE_RDMA_WRITE);
    GDA_SET(wqe_ctrl_seg, request, wqe_index, index);
    GDA_SET(wqe_ctrl_seg, request, qp_or_sq, qp->qpn);
    GDA_SET(wqe_ctrl_seg, request, ds, 3);
    GDA_SET(wqe_ctrl_seg, request, ce, gda::prm::CE_ALWAYS);
    GDA_SET(wqe_raddr_seg, request + 16, raddr, dst.addr + offset);
    GDA_SET(wqe_raddr_seg, request + 16, rkey, gda::be32(dst.rkey_be));
    GDA_SET(wqe_data_seg, request + 32, byte_count, bytes);
    GDA_SET(wqe_data_seg, request + 32, lkey, gda::be32(src.lkey_be));
    GDA_SET(wqe_data_seg, request + 32, addr, src.addr + offset);
    memcpy(slot, request, sizeof request);
}

// Given, as in lab 3: the NIC is told that all requests below `end` are written.
GDA_DEVICE void tell(const gda_qp* qp, uint64_t end) {
    target::wqe_before_doorbell_record(target::scope_system);
    uint32_t counter = GDA_FIELD(qp_doorbell_record, send_counter, static_cast<uint32_t>(end));
    target::store_record(reinterpret_cast<void*>(qp->record), gda::be32(counter));
    target::doorbell_record_before_doorbell(target::scope_system);
    uint8_t value[8] = {};
    GDA_SET(send_doorbell, value, wqe_index, end);
    GDA_SET(send_doorbell, value, qpn, qp->qpn);
    uint64_t word;
    memcpy(&word, value, sizeof word);
    target::store_doorbell(reinterpret_cast<void*>(qp->doorbell), word);
}

// Given, as in lab 2: takes in what the NIC has completed, so `done` grows. Never waits; any thread may call it.
// An error ends a request, too: its slot is free, though nothing more will be sent. Who must know looks at the opcode.
GDA_DEVICE void poll(const gda_qp* qp, counters c) {
    uint64_t done = target::load_shared_acquire(c.done);  // before the entry, which is then at or above it
    const uint8_t* last = reinterpret_cast<const uint8_t*>(qp->cq.ring) + GDA_DWORD_OFFSET(cqe64, opcode);
    uint32_t dword = gda::be32(target::load_completion(last, target::scope_system));
    if (GDA_EXTRACT(cqe64, opcode, dword) == gda::prm::MLX5_CQE_INVALID) return;
    uint16_t more = static_cast<uint16_t>(GDA_EXTRACT(cqe64, wqe_counter, dword) + 1 - done);
    target::raise_release(c.done, done + more);
}

// Takes the next request's number into `index`, when its slot is free: true. False at `give_up` (a clock_ns()).
GDA_DEVICE bool reserve(const gda_qp* qp, counters c, uint64_t give_up, uint64_t* index) {
    return false;  // gap 1
}

// Request `index` is written: the NIC is told of it, after all before it. False at `give_up`.
GDA_DEVICE bool publish(const gda_qp* qp, counters c, uint64_t give_up, uint64_t index) {
    return false;  // gap 2
}

// Given: each thread makes `each` pieces of 64 bytes and sends them. `sent` has a word for each thread.
GDA_KERNEL(share)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t* words, uint32_t each, uint64_t deadline_ns,
                  uint64_t* sent) {
    counters c = {words, words + 8, words + 16};  // in lines of their own
    uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t i = 0; i < each; ++i) {
        uint64_t offset = (thread * each + i) * 64, index = 0;
        for (uint32_t w = 0; w < 16; ++w) {
            reinterpret_cast<uint32_t*>(src.addr + offset)[w] = static_cast<uint32_t>(offset + 1 + w);
        }
        uint64_t give_up = target::clock_ns() + deadline_ns;
        if (!reserve(qp, c, give_up, &index)) return;
        write_request(qp, index, dst, src, offset, 64);
        if (!publish(qp, c, give_up, index)) return;
        sent[thread] += 1;
    }
}
