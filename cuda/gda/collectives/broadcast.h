// SPDX-License-Identifier: Apache-2.0
// Broadcast: bytes of one rank's window, the root's, to the same place of all windows. Called by kernels; made by
// gda/comm/collectives/broadcast.py, which has the same steps as data. Document: docs/programs.md, "Collectives".
//
//   gda_status s = gda_broadcast(team, data, 0, bytes, root, signals, GDA_S(1));
//
// Two ways; places are counted from the root on, in the order of ranks:
//   tree   a binomial tree: place p gets all bytes from p without its lowest bit, then sends them on to p + 1, p + 2,
//          p + 4 ... below that bit, the farthest first. ceil(log2 N) hops, so the shortest time for few bytes; but the
//          root sends all of them up to ceil(log2 N) times.
//   chain  place p gets chunk by chunk from p - 1 and sends each on at once. Every rank sends each byte once, so long
//          transfers take the time of one, and N - 2 chunks more until the last has all.
// gda_broadcast takes the chain where it saves more than it costs: bytes * (ceil(log2 N) - 1) above chunk * N.
//
// All ranks call with equal arguments, again and again if they like: a rank's memory is written only when it has come
// to the same call (call.h). The root may change its bytes when its call has returned.
#pragma once

#include <gda/collectives/call.h>

namespace gda {

static constexpr uint64_t BROADCAST_CHUNK = 128 << 10;

GDA_DEVICE bool broadcast_by_chain(uint32_t size, uint64_t bytes, uint64_t chunk) {
    uint32_t rounds = 0;
    while (static_cast<uint64_t>(1) << rounds < size) ++rounds;
    return rounds > 1 && bytes / size > chunk / (rounds - 1);  // without a product, which may be too long
}

}  // namespace gda

// The tree. One thread of the rank calls; 0, or the first failure.
GDA_API gda_status gda_broadcast_tree(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                      uint32_t root, const gda_window& signals, uint64_t deadline_ns,
                                      uint32_t channel = 0) {
    if (root >= team.size) return gda::make_status(gda::prm::GDA_BAD_HANDLE, 0, 0);
    gda::collective_call call(team, signals, channel, deadline_ns);
    uint32_t place = (team.rank + team.size - root) % team.size;
    uint32_t bit = 1;  // the lowest of `place`; the root's lies above all places
    while (bit < team.size && (place & bit) == 0) bit <<= 1;
    uint32_t parent = (team.rank + team.size - bit % team.size) % team.size;
    if (place != 0) {
        call.admit(parent);
        call.await_arrival(parent, 1);
    }
    for (uint32_t step = bit >> 1; step != 0; step >>= 1) {
        if (place + step >= team.size) continue;
        uint32_t child = (team.rank + step) % team.size;
        call.await_admission(child);
        call.put(child, data, offset, data.mine, offset, bytes, 1);
    }
    for (uint32_t step = bit >> 1; step != 0; step >>= 1) {
        if (place + step < team.size) call.await_sent((team.rank + step) % team.size);
    }
    if (place != 0) call.await_sent(parent);
    return call.finish(1);
}

// The chain, in pieces of `chunk` bytes. One thread of the rank calls; 0, or the first failure.
GDA_API gda_status gda_broadcast_chain(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                       uint32_t root, const gda_window& signals, uint64_t deadline_ns,
                                       uint32_t channel = 0, uint64_t chunk = gda::BROADCAST_CHUNK) {
    if (root >= team.size || chunk == 0) return gda::make_status(gda::prm::GDA_BAD_HANDLE, 0, 0);
    gda::collective_call call(team, signals, channel, deadline_ns);
    uint32_t place = (team.rank + team.size - root) % team.size;
    uint32_t left = (team.rank + team.size - 1) % team.size, right = (team.rank + 1) % team.size;
    bool receives = place != 0, sends = place + 1 < team.size;
    uint64_t chunks = bytes / chunk + (bytes % chunk != 0 || bytes == 0);
    if (receives) call.admit(left);
    if (sends) call.await_admission(right);
    for (uint64_t i = 0; i < chunks && call.status == 0; ++i) {
        uint64_t at = offset + i * chunk;
        uint64_t length = bytes - i * chunk < chunk ? bytes - i * chunk : chunk;
        if (receives) call.await_arrival(left, i + 1);
        if (sends) call.put(right, data, at, data.mine, at, length, i + 1);
    }
    if (sends) call.await_sent(right);
    if (receives) call.await_sent(left);
    return call.finish(chunks);
}

// The shorter of the two. One thread of the rank calls; 0, or the first failure.
GDA_API gda_status gda_broadcast(const gda_team& team, const gda_window& data, uint64_t offset, uint64_t bytes,
                                 uint32_t root, const gda_window& signals, uint64_t deadline_ns, uint32_t channel = 0,
                                 uint64_t chunk = gda::BROADCAST_CHUNK) {
    return gda::broadcast_by_chain(team.size, bytes, chunk)
               ? gda_broadcast_chain(team, data, offset, bytes, root, signals, deadline_ns, channel, chunk)
               : gda_broadcast_tree(team, data, offset, bytes, root, signals, deadline_ns, channel);
}

GDA_COLLECTIVE_OF_BLOCK(broadcast_tree)
GDA_COLLECTIVE_OF_BLOCK(broadcast_chain)
GDA_COLLECTIVE_OF_BLOCK(broadcast)
