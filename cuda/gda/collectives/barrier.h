// SPDX-License-Identifier: Apache-2.0
// A barrier of all ranks of a team, from signals alone: the first of the collectives, and the shortest to read.
// Called by kernels; made by gda/comm/collectives/barrier.py, which has the same steps in Python. Document:
// docs/programs.md.
//
//   gda_flush_all(team, GDA_S(1));                       // where others are to see what this rank has put
//   gda_status s = gda_barrier(team, barrier, GDA_S(1));  // 0 when all ranks have come
//
// Dissemination (Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization", 1988): in round k a rank tells
// the one 2^k to its right that it has come, and waits for the word of the one 2^k to its left. That word stands for
// all of whom the left one has heard: after round k for 2^(k+1) ranks. So ceil(log2 N) rounds do, for any N.
//
// Words of the window: [round] the last barrier of which the left one has told, set by that rank alone; behind them
// this rank's own count of barriers, and the word that its host sets where a rank is lost (patience.h); no other
// touches these. Counts go round; a rank is never more than one ahead.
#pragma once

#include <gda/collectives/patience.h>
#include <gda/comm.h>

// One thread of the rank calls. After a failure the barrier is of no use any more: make another.
GDA_API gda_status gda_barrier(const gda_team& team, const gda_window& barrier, uint64_t deadline_ns,
                               uint32_t which = 0) {
    uint32_t rounds = 0;
    while (uint64_t(1) << rounds < team.size) ++rounds;
    uint64_t* count = const_cast<uint64_t*>(gda_signal_of(barrier, rounds));
    const uint64_t* stop = gda_signal_of(barrier, rounds + 1);
    if (stop == nullptr) return gda::make_status(gda::prm::GDA_OUT_OF_BOUNDS, 0, 0);
    uint64_t now = gda::target::load_owned(count) + 1;
    for (uint32_t round = 0; round < rounds; ++round) {
        uint32_t right = (team.rank + (uint32_t(1) << round)) % team.size;
        gda_ticket told = gda_signal_to(team, right, barrier, round, now, GDA_SIGNAL_SET, which);
        gda_status status = gda_wait_for(team, right, told, deadline_ns, which);
        if (status == 0) {
            status =
                gda::await_unless_stopped(gda_signal_of(barrier, round), now, gda::moment_after(deadline_ns), stop);
        }
        if (status != 0) return status;
    }
    gda::target::store_owned(count, now);
    return GDA_OK;
}

// All threads of one block call, and all get the status. What any of them did before is done when others leave.
GDA_API gda_status gda_barrier_block(const gda_team& team, const gda_window& barrier, uint64_t deadline_ns,
                                     uint32_t which = 0) {
    gda::target::sync_block();
    gda_status status = 0;
    if (gda::target::thread_of_block() == 0) status = gda_barrier(team, barrier, deadline_ns, which);
    status = gda::target::broadcast_block(status);
    gda::target::sync_block();
    return status;
}
