// SPDX-License-Identifier: Apache-2.0
// Atomics on eight bytes of the other side's memory. Called by kernels. Refusals and tickets: put.h; format:
// ConnectX Programmer's Reference Manual, "Atomic Segment".
//
// The other side's address must be a multiple of eight. The old value lands at result + result_offset (a region with
// local write) in the processor's byte order, and is there when the ticket is complete. They are atomic among each
// other through one NIC; whether also with the other side's processor, the NIC's capabilities say.
#pragma once

#include <gda/put.h>

namespace gda {

GDA_DEVICE gda_ticket atomic(gda_qp* qp, uint32_t opcode, const gda_mr& result, uint64_t result_offset,
                             const gda_mr& remote, uint64_t remote_offset, uint64_t swap_add, uint64_t compare,
                             uint32_t flags) {
    gda_status status = check_queue(qp);
    if (status != 0) return GDA_TICKET_FAILED | status;
    queue_view q = view(qp);
    if (!within(remote, remote_offset, sizeof(uint64_t)) || !within(result, result_offset, sizeof(uint64_t))) {
        return out_of_bounds(q);
    }
    atomic_request r;
    r.opcode = opcode;
    r.raddr = remote.addr + remote_offset;
    r.addr = result.addr + result_offset;
    r.rkey_be = remote.rkey_be;
    r.lkey_be = result.lkey_be;
    r.swap_add = swap_add;
    r.compare = compare;
    return submit(qp, q, r, manner_of(flags, true));
}

}  // namespace gda

// Adds to the eight remote bytes, modulo 2^64.
GDA_API gda_ticket gda_fetch_add(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                 uint64_t remote_offset, uint64_t add, uint32_t flags = 0) {
    return gda::atomic(qp, gda::prm::MLX5_OPCODE_ATOMIC_FA, result, result_offset, remote, remote_offset, add, 0,
                       flags);
}

// Stores `swap` in the eight remote bytes if they hold `compare`: it did when the old value equals `compare`.
GDA_API gda_ticket gda_compare_swap(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                    uint64_t remote_offset, uint64_t compare, uint64_t swap, uint32_t flags = 0) {
    return gda::atomic(qp, gda::prm::MLX5_OPCODE_ATOMIC_CS, result, result_offset, remote, remote_offset, swap, compare,
                       flags);
}
