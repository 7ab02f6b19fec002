// SPDX-License-Identifier: Apache-2.0
// The verbs of comm.h as kernels of one thread, launched by gda/comm for programs that move data from Python.
// Offsets, strides and lengths in bytes, `count` pieces of `bytes` each; deadlines in nanoseconds.
#pragma once

#include <gda/comm.h>

GDA_KERNEL(gda_kernel_put_to)(gda_team team, uint32_t peer, uint32_t which, gda_window window, uint64_t offset,
                              uint64_t stride, gda_mr src, uint64_t src_offset, uint64_t src_stride, uint64_t count,
                              uint64_t bytes, uint64_t deadline_ns, gda_status* status) {
    gda_ticket ticket =
        gda_put_strided_to(team, peer, window, offset, stride, src, src_offset, src_stride, count, bytes, which);
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}

GDA_KERNEL(gda_kernel_get_from)(gda_team team, uint32_t peer, uint32_t which, gda_mr dst, uint64_t dst_offset,
                                uint64_t dst_stride, gda_window window, uint64_t offset, uint64_t stride,
                                uint64_t count, uint64_t bytes, uint64_t deadline_ns, gda_status* status) {
    gda_ticket ticket =
        gda_get_strided_from(team, peer, dst, dst_offset, dst_stride, window, offset, stride, count, bytes, which);
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}

GDA_KERNEL(gda_kernel_signal_to)(gda_team team, uint32_t peer, uint32_t which, gda_window signals, uint64_t index,
                                 uint64_t value, uint32_t operation, uint64_t deadline_ns, gda_status* status) {
    gda_ticket ticket =
        gda_signal_to(team, peer, signals, index, value, static_cast<gda_signal_operation>(operation), which);
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}

GDA_KERNEL(gda_kernel_put_signal_to)(gda_team team, uint32_t peer, uint32_t which, gda_window window, uint64_t offset,
                                     gda_mr src, uint64_t src_offset, uint64_t bytes, gda_window signals,
                                     uint64_t index, uint64_t value, uint32_t operation, uint64_t deadline_ns,
                                     gda_status* status) {
    gda_ticket ticket = gda_put_signal_to(team, peer, window, offset, src, src_offset, bytes, signals, index, value,
                                          static_cast<gda_signal_operation>(operation), which);
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}

// Several pieces, and a signal behind them on the same queue.
GDA_KERNEL(gda_kernel_put_strided_signal_to)(gda_team team, uint32_t peer, uint32_t which, gda_window window,
                                             uint64_t offset, uint64_t stride, gda_mr src, uint64_t src_offset,
                                             uint64_t src_stride, uint64_t count, uint64_t bytes, gda_window signals,
                                             uint64_t index, uint64_t value, uint32_t operation, uint64_t deadline_ns,
                                             gda_status* status) {
    gda_ticket ticket =
        gda_put_strided_to(team, peer, window, offset, stride, src, src_offset, src_stride, count, bytes, which);
    if (!gda_failed(ticket)) {
        ticket = gda_signal_to(team, peer, signals, index, value, static_cast<gda_signal_operation>(operation), which);
    }
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}

GDA_KERNEL(gda_kernel_fetch_add_to)(gda_team team, uint32_t peer, uint32_t which, gda_mr result, gda_window signals,
                                    uint64_t index, uint64_t add, uint64_t deadline_ns, gda_status* status) {
    gda_ticket ticket = gda_fetch_add_to(team, peer, result, 0, signals, index, add, which);
    gda_report(status, gda_wait_for(team, peer, ticket, deadline_ns, which));
}
