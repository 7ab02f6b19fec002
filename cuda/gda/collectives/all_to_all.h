// SPDX-License-Identifier: Apache-2.0
// All-to-all: every rank has a piece for each rank; behind the call every rank has, in the order of ranks, the pieces
// that were for it. Called by kernels; made by gda/comm/collectives/all_to_all.py, which has the same steps as data.
// Pieces of different lengths: all_to_all_v.h. Document: docs/programs.md, "Collectives".
//
//   gda_status s = gda_all_to_all(team, target, 0, source, 0, bytes, bytes, signals, GDA_S(1));
//
// The piece for rank p lies at source_offset + p * stride; that of rank p arrives at offset + p * stride. A rank puts
// in rotated order, first to itself, then to the one at its right, and so on: at no time do all put to the same one.
// It sends (N - 1) * bytes to others, and its own piece by the queue that leads back to it.
//
// All ranks call with equal arguments, again and again if they like: a rank's target is written only when it has come
// to the same call (call.h). The source may change when the call has returned. It is not the target.
#pragma once

#include <gda/collectives/call.h>

// `bytes` bytes of each piece. One thread of each rank calls.
GDA_API gda_status gda_all_to_all(const gda_team& team, const gda_window& target, uint64_t offset, const gda_mr& source,
                                  uint64_t source_offset, uint64_t bytes, uint64_t stride, const gda_window& signals,
                                  uint64_t deadline_ns, uint32_t channel = 0) {
    gda::collective_call call(team, signals, channel, deadline_ns);
    for (uint32_t i = 0; i < team.size; ++i) call.admit((team.rank + team.size - i) % team.size);
    for (uint32_t i = 0; i < team.size; ++i) {
        uint32_t peer = (team.rank + i) % team.size;
        call.await_admission(peer);
        call.put(peer, target, offset + team.rank * stride, source, source_offset + peer * stride, bytes, 1);
    }
    for (uint32_t i = 0; i < team.size; ++i) call.await_arrival((team.rank + team.size - i) % team.size, 1);
    for (uint32_t i = 0; i < team.size; ++i) call.await_sent((team.rank + i) % team.size);
    return call.finish(1);
}

// The same for all threads of one block, which call with equal arguments.
GDA_COLLECTIVE_OF_BLOCK(all_to_all)
