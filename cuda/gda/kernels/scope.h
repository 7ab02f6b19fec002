// SPDX-License-Identifier: Apache-2.0
// Thin kernels for operations of a warp, of a block, and of a queue's owner, launched from Python on both targets:
// Kernel('#include <gda/kernels/scope.h>'). The piece of warp (or block) i of the grid is at i * bytes behind both
// offsets. Offsets and lengths in bytes; deadlines in nanoseconds.
#pragma once

#include <gda/kernels/signal.h>

namespace gda {

GDA_DEVICE uint64_t warp_of_grid() {
    uint64_t warps = (blockDim.x + 31) / 32;
    return blockIdx.x * warps + threadIdx.x / 32;
}

}  // namespace gda

GDA_KERNEL(gda_kernel_put_warp)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                uint64_t bytes, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = gda::warp_of_grid() * bytes;
    gda_ticket ticket = gda_put_warp(qp, dst, dst_offset + piece, src, src_offset + piece, bytes);
    gda_report(status, gda_wait_warp(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_put_block)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                 uint64_t bytes, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = blockIdx.x * bytes;
    gda_ticket ticket = gda_put_block(qp, dst, dst_offset + piece, src, src_offset + piece, bytes);
    gda_report(status, gda_wait_block(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_put_signal_warp)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                       uint64_t bytes, gda_mr signals, uint64_t signal_offset, uint64_t value,
                                       uint32_t operation, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = gda::warp_of_grid() * bytes;
    gda_ticket ticket = gda_put_signal_warp(qp, dst, dst_offset + piece, src, src_offset + piece, bytes, signals,
                                            signal_offset, value, static_cast<gda_signal_operation>(operation));
    gda_report(status, gda_wait_warp(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_put_signal_block)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                        uint64_t bytes, gda_mr signals, uint64_t signal_offset, uint64_t value,
                                        uint32_t operation, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = blockIdx.x * bytes;
    gda_ticket ticket = gda_put_signal_block(qp, dst, dst_offset + piece, src, src_offset + piece, bytes, signals,
                                             signal_offset, value, static_cast<gda_signal_operation>(operation));
    gda_report(status, gda_wait_block(qp, ticket, deadline_ns));
}

// One warp of one block owns the queue: lane i puts `rounds` pieces, of round r at (r * lanes + i) * bytes.
GDA_KERNEL(gda_kernel_put_owned)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                 uint64_t bytes, uint32_t rounds, uint64_t deadline_ns, gda_status* status) {
    gda_warp_owner queue(qp);
    gda_ticket ticket = 0;
    for (uint32_t round = 0; round < rounds && !gda_failed(ticket); ++round) {
        uint64_t piece = (static_cast<uint64_t>(round) * blockDim.x + threadIdx.x) * bytes;
        ticket = queue.put(dst, dst_offset + piece, src, src_offset + piece, bytes);
    }
    gda_report(status, queue.wait(ticket, deadline_ns));
    queue.close();
}
