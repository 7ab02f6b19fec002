// SPDX-License-Identifier: Apache-2.0
// One thin kernel per operation beside put, launched from Python on both targets:
// Kernel('#include <gda/kernels/operations.h>'). Thread i of the grid works at i * bytes (values, atomics: i * 8)
// behind the offsets, and waits. Offsets and lengths in bytes; deadlines in nanoseconds.
#pragma once

#include <gda/gda.h>

namespace gda {

GDA_DEVICE uint64_t thread_of_grid() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace gda

GDA_KERNEL(gda_kernel_get)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset, uint64_t bytes,
                           uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = gda::thread_of_grid() * bytes;
    gda_report(status, gda_wait(qp, gda_get(qp, dst, dst_offset + piece, src, src_offset + piece, bytes), deadline_ns));
}

GDA_KERNEL(gda_kernel_put_imm)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                               uint64_t bytes, uint32_t immediate, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = gda::thread_of_grid() * bytes;
    gda_ticket ticket = gda_put_imm(qp, dst, dst_offset + piece, src, src_offset + piece, bytes, immediate);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_put_value)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, uint64_t value, uint64_t deadline_ns,
                                 gda_status* status) {
    gda_ticket ticket = gda_put_value(qp, dst, dst_offset + gda::thread_of_grid() * sizeof(value), value);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// All threads add to the same eight bytes; each has its own place for the old value.
GDA_KERNEL(gda_kernel_fetch_add)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                 uint64_t remote_offset, uint64_t add, uint64_t deadline_ns, gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(uint64_t);
    gda_report(status, gda_wait(qp, gda_fetch_add(qp, result, at, remote, remote_offset, add), deadline_ns));
}

GDA_KERNEL(gda_kernel_compare_swap)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                    uint64_t remote_offset, uint64_t compare, uint64_t swap, uint64_t deadline_ns,
                                    gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(uint64_t);
    gda_ticket ticket = gda_compare_swap(qp, result, at, remote, remote_offset, compare, swap);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_nop)(gda_qp* qp, uint64_t deadline_ns, gda_status* status) {
    gda_report(status, gda_wait(qp, gda_nop(qp), deadline_ns));
}
