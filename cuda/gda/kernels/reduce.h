// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-reduce as kernels, launched by gda/comm/collectives/reduce.py: each block is a channel. An
// instance is made for a protocol, a type and an operation: Kernel(text, names=("gda_kernel_all_reduce_ring<gda_simple,
// float, gda_sum>",)).
#pragma once

#include <gda/collectives/all_reduce.h>

// The longest block: a thread of more may not have the registers that these want. gda/comm/collectives/reduce.py knows.
#define GDA_REDUCE_THREADS 512

// A call, and its end: behind it nobody writes to the windows any more.
template <auto REDUCE, auto LEAVE>
GDA_DEVICE void gda_reduce_and_leave(const gda_team& team, const gda_window& data, uint64_t first, uint64_t count,
                                     const gda_window& staging, const gda_window& signals, uint64_t deadline_ns,
                                     gda_status* status) {
    gda_status done = REDUCE(team, data, first, count, staging, signals, deadline_ns, blockIdx.x, gridDim.x);
    if (done == 0) done = LEAVE(team, staging, signals, deadline_ns, blockIdx.x, gridDim.x);
    gda_report(status, done);
}

template <class Protocol, class T, class Op>
__global__ void __launch_bounds__(GDA_REDUCE_THREADS)
    gda_kernel_reduce_scatter(gda_team team, gda_window data, uint64_t first, uint64_t count, gda_window staging,
                              gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda_reduce_and_leave<gda_reduce_scatter_block<Protocol, T, Op>, gda_leave_ring_block<Protocol>>(
        team, data, first, count, staging, signals, deadline_ns, status);
}

template <class Protocol, class T, class Op>
__global__ void __launch_bounds__(GDA_REDUCE_THREADS)
    gda_kernel_all_reduce_ring(gda_team team, gda_window data, uint64_t first, uint64_t count, gda_window staging,
                               gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda_reduce_and_leave<gda_all_reduce_ring_block<Protocol, T, Op>, gda_leave_ring_block<Protocol>>(
        team, data, first, count, staging, signals, deadline_ns, status);
}

template <class Protocol, class T, class Op>
__global__ void __launch_bounds__(GDA_REDUCE_THREADS)
    gda_kernel_all_reduce_doubling(gda_team team, gda_window data, uint64_t first, uint64_t count, gda_window staging,
                                   gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda_reduce_and_leave<gda_all_reduce_doubling_block<Protocol, T, Op>, gda_leave_doubling_block<Protocol>>(
        team, data, first, count, staging, signals, deadline_ns, status);
}

// For `python -m gda bench collectives`: `rounds` calls, one after the other, and how long each took on this rank.
template <class Protocol, class T, class Op>
__global__ void __launch_bounds__(GDA_REDUCE_THREADS)
    gda_kernel_all_reduce_times(gda_team team, gda_window data, uint64_t count, gda_window staging, gda_window signals,
                                uint32_t doubling, uint64_t rounds, uint64_t* ns, uint64_t deadline_ns,
                                gda_status* status) {
    gda_status done = 0;
    for (uint64_t round = 0; round < rounds && done == 0; ++round) {
        uint64_t begin = gda::target::clock_ns();
        done = doubling != 0
                   ? gda_all_reduce_doubling_block<Protocol, T, Op>(team, data, 0, count, staging, signals, deadline_ns)
                   : gda_all_reduce_ring_block<Protocol, T, Op>(team, data, 0, count, staging, signals, deadline_ns);
        if (gda::target::thread_of_block() == 0) ns[round] = gda::target::clock_ns() - begin;
    }
    if (done == 0) {
        done = doubling != 0 ? gda_leave_doubling_block<Protocol>(team, staging, signals, deadline_ns)
                             : gda_leave_ring_block<Protocol>(team, staging, signals, deadline_ns);
    }
    gda_report(status, done);
}
