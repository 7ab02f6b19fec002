// SPDX-License-Identifier: Apache-2.0
// All-gather: every rank has a piece, at its own place of its window; behind the call every window has all of them, in
// the order of ranks. Called by kernels; made by gda/comm/collectives/all_gather.py, which has the same steps as data.
// Document: docs/programs.md, "Collectives".
//
//   gda_status s = gda_all_gather(team, data, 0, bytes, bytes, signals, GDA_S(1));   // N pieces side by side
//
// Piece r lies at offset + r * stride and is `bytes` long: a channel that carries a share of each piece says its part.
// Two ways; a rank sends (N - 1) * bytes in either, which is the least possible:
//   ring    in step s a rank sends to its right what it got in the step before, at first its own piece: N - 1 steps
//           one after the other, each rank with one sender and one receiver, whatever the network looks like.
//   direct  a rank puts its piece to all others at once, beginning at its right: one step, and N - 1 small requests.
// gda_all_gather goes direct up to ALL_GATHER_DIRECT bytes of a piece, where a step's way is longer than its bytes.
//
// All ranks call with equal arguments, again and again if they like: a rank's memory is written only when it has come
// to the same call (call.h). No piece may change before the call has returned.
#pragma once

#include <gda/collectives/call.h>

namespace gda {

static constexpr uint64_t ALL_GATHER_DIRECT = 32 << 10;

}  // namespace gda

// `bytes` bytes of each piece, by the ring. One thread of each rank calls.
GDA_API gda_status gda_all_gather_ring(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                       uint64_t stride, const gda_window& signals, uint64_t deadline_ns,
                                       uint32_t channel = 0) {
    gda::collective_call call(team, signals, channel, deadline_ns);
    uint32_t left = (team.rank + team.size - 1) % team.size, right = (team.rank + 1) % team.size;
    if (team.size > 1) {
        call.admit(left);
        call.await_admission(right);
    }
    for (uint32_t step = 0; step + 1 < team.size && call.status == 0; ++step) {
        uint64_t at = offset + (team.rank + team.size - step) % team.size * stride;
        call.put(right, data, at, data.mine, at, bytes, step + 1);
        call.await_arrival(left, step + 1);
    }
    if (team.size > 1) {
        call.await_sent(right);
        call.await_sent(left);
    }
    return call.finish(team.size - 1);
}

// The same in one step.
GDA_API gda_status gda_all_gather_direct(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                         uint64_t stride, const gda_window& signals, uint64_t deadline_ns,
                                         uint32_t channel = 0) {
    gda::collective_call call(team, signals, channel, deadline_ns);
    uint64_t at = offset + team.rank * stride;
    for (uint32_t i = 1; i < team.size; ++i) call.admit((team.rank + team.size - i) % team.size);
    for (uint32_t i = 1; i < team.size; ++i) {
        uint32_t peer = (team.rank + i) % team.size;
        call.await_admission(peer);
        call.put(peer, data, at, data.mine, at, bytes, 1);
    }
    for (uint32_t i = 1; i < team.size; ++i) call.await_arrival((team.rank + team.size - i) % team.size, 1);
    for (uint32_t i = 1; i < team.size; ++i) call.await_sent((team.rank + i) % team.size);
    return call.finish(1);
}

// The same by whichever is likely to take less time.
GDA_API gda_status gda_all_gather(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                  uint64_t stride, const gda_window& signals, uint64_t deadline_ns,
                                  uint32_t channel = 0) {
    return bytes <= gda::ALL_GATHER_DIRECT
               ? gda_all_gather_direct(team, data, offset, bytes, stride, signals, deadline_ns, channel)
               : gda_all_gather_ring(team, data, offset, bytes, stride, signals, deadline_ns, channel);
}

// The same for all threads of one block, which call with equal arguments.
GDA_COLLECTIVE_OF_BLOCK(all_gather_ring)
GDA_COLLECTIVE_OF_BLOCK(all_gather_direct)
GDA_COLLECTIVE_OF_BLOCK(all_gather)
