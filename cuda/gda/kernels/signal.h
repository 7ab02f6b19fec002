// SPDX-License-Identifier: Apache-2.0
// One thin kernel per verb of signals and per masked atomic, launched from Python on both targets:
// Kernel('#include <gda/kernels/signal.h>'). Thread i of the grid works at i * bytes (results of atomics: i * their
// size) behind the offsets; all threads signal at one place. `operation` and `comparison`: gda.formats.GDA_SIGNAL_ADD,
// GDA_REACHED and so on. Offsets and lengths in bytes; deadlines in nanoseconds.
#pragma once

#include <gda/kernels/operations.h>

GDA_KERNEL(gda_kernel_put_signal)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                  uint64_t bytes, gda_mr signals, uint64_t signal_offset, uint64_t value,
                                  uint32_t operation, uint64_t deadline_ns, gda_status* status) {
    uint64_t piece = gda::thread_of_grid() * bytes;
    gda_ticket ticket = gda_put_signal(qp, dst, dst_offset + piece, src, src_offset + piece, bytes, signals,
                                       signal_offset, value, static_cast<gda_signal_operation>(operation));
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_signal)(gda_qp* qp, gda_mr remote, uint64_t offset, uint64_t value, uint32_t operation,
                              uint64_t deadline_ns, gda_status* status) {
    gda_ticket ticket = gda_signal(qp, remote, offset, value, static_cast<gda_signal_operation>(operation));
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// Waits for a signal in memory of this side.
GDA_KERNEL(gda_kernel_wait_signal)(gda_mr signals, uint64_t offset, uint32_t comparison, uint64_t value,
                                   uint64_t deadline_ns, gda_status* status) {
    const uint64_t* signal = reinterpret_cast<const uint64_t*>(signals.addr + offset);
    gda_report(status, gda_wait_signal(signal, static_cast<gda_comparison>(comparison), value, deadline_ns));
}

GDA_KERNEL(gda_kernel_masked_fetch_add)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                        uint64_t remote_offset, uint64_t add, uint64_t boundary, uint64_t deadline_ns,
                                        gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(add);
    gda_ticket ticket = gda_masked_fetch_add<uint64_t>(qp, result, at, remote, remote_offset, add, boundary);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_masked_compare_swap)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                           uint64_t remote_offset, uint64_t compare, uint64_t compare_mask,
                                           uint64_t swap, uint64_t swap_mask, uint64_t deadline_ns,
                                           gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(swap);
    gda_ticket ticket = gda_masked_compare_swap<uint64_t>(qp, result, at, remote, remote_offset, compare, compare_mask,
                                                          swap, swap_mask);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// The same of four bytes.
GDA_KERNEL(gda_kernel_masked_fetch_add_32)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                           uint64_t remote_offset, uint32_t add, uint32_t boundary,
                                           uint64_t deadline_ns, gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(add);
    gda_ticket ticket = gda_masked_fetch_add<uint32_t>(qp, result, at, remote, remote_offset, add, boundary);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

GDA_KERNEL(gda_kernel_masked_compare_swap_32)(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                              uint64_t remote_offset, uint32_t compare, uint32_t compare_mask,
                                              uint32_t swap, uint32_t swap_mask, uint64_t deadline_ns,
                                              gda_status* status) {
    uint64_t at = result_offset + gda::thread_of_grid() * sizeof(swap);
    gda_ticket ticket = gda_masked_compare_swap<uint32_t>(qp, result, at, remote, remote_offset, compare, compare_mask,
                                                          swap, swap_mask);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}
