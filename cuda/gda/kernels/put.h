// SPDX-License-Identifier: Apache-2.0
// One thin kernel per verb, launched from Python on both targets: Kernel('#include <gda/kernels/put.h>').
// Offsets and lengths in bytes; deadlines in nanoseconds.
#pragma once

#include <gda/gda.h>

// Every thread puts its own piece of `bytes` bytes (thread i of the grid at i * bytes behind both offsets) and waits.
GDA_KERNEL(gda_kernel_put)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset, uint64_t bytes,
                           uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * bytes;
    gda_ticket ticket = gda_put(qp, dst, dst_offset + piece, src, src_offset + piece, bytes);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// Posts only: ticket[i] for thread i of the grid.
GDA_KERNEL(gda_kernel_post)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                            uint64_t bytes, gda_ticket* ticket) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    ticket[thread] = gda_put(qp, dst, dst_offset + thread * bytes, src, src_offset + thread * bytes, bytes);
}

// Waits for one ticket.
GDA_KERNEL(gda_kernel_wait)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* status) {
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// Waits for everything posted before.
GDA_KERNEL(gda_kernel_flush)(gda_qp* qp, uint64_t deadline_ns, gda_status* status) {
    gda_report(status, gda_flush(qp, deadline_ns));
}
