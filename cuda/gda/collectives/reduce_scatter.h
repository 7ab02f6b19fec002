// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter on a ring: of an array that every rank has, rank r gets piece r of the sum (or product, minimum,
// maximum) of all. Called by kernels; made by gda/comm/collectives/reduce.py, which has the same steps in Python.
// Document: docs/programs.md, "Reduce-scatter and all-reduce".
//
// The array is cut in N pieces. In step k = 1 .. N-1 rank r sends to its right what it has of piece r - k and receives
// from its left piece r - k - 1, which it adds its own to. So each rank sends N-1 of N pieces: (N-1)/N of the bytes,
// and no algorithm sends less. Piece p is summed in one order, from rank p + 1 on around the ring to p itself:
//   ((x[p+1] + x[p+2]) + ...) + x[p]
// so the same input gives the same bits, run after run, with any protocol, slot size and number of channels.
//
// In place: behind the call piece r is the result, the rest of the array is unfinished sums. What arrives is kept from
// being overwritten by link.h. Windows: `data` holds the array on every rank at the same place; `staging` and `signals`
// are of the collective alone, and one link for each channel lies in them.
#pragma once

#include <gda/collectives/protocol.h>

namespace gda {

// What all steps of one block have in common: the array, and which part of each piece is this channel's.
struct ring {
    span whole;
    uint32_t rank, size, channel, channels;
    uint64_t most;  // elements of a chunk

    // All ranks have so many, also those whose pieces are one element shorter: so counts of steps agree.
    GDA_MEMBER uint64_t chunks() const { return divided_up(divided_up(divided_up(whole.count, size), channels), most); }
    // The chunk of the piece `back` before this rank's own, around the ring.
    GDA_MEMBER span part(uint32_t back, uint64_t chunk) const {
        uint32_t piece = (rank + size - back % size) % size;
        return chunk_of(part_of(part_of(whole, piece, size), channel, channels), chunk, most);
    }
};

template <class Protocol, class T>
GDA_DEVICE ring ring_of(const link& l, uint64_t first, uint64_t count, uint32_t channel, uint32_t channels) {
    uint64_t most = elements_of_slot<Protocol, T>(l.staging, channels);
    return {{first, count}, l.team.rank, l.team.size, channel, channels, most};
}

// Behind it this rank's own piece of the chunk is the result.
template <class Protocol, class T, class Op>
GDA_DEVICE void reduce_scatter_chunk(link& l, const gda_window& data, const ring& r, uint64_t chunk) {
    for (uint32_t k = 1; k < r.size; ++k) {
        Protocol::template send<T>(l, data, r.part(k, chunk));
        Protocol::template receive<T, Op>(l, data, r.part(k + 1, chunk));
    }
}

// The link of a channel: to the right, and from the left.
template <class Protocol>
GDA_DEVICE link open_ring(const gda_team& team, const gda_window& staging, const gda_window& signals,
                          uint64_t deadline_ns, uint32_t channel, uint32_t channels) {
    uint32_t rank = team.rank, size = team.size;
    return open_link<Protocol>({team, staging, signals, channel, channels, 1, moment_after(deadline_ns)}, 0,
                               (rank + 1) % size, (rank + size - 1) % size);
}

}  // namespace gda

// All threads of a block call, and all get the status; each of `channels` blocks carries its part of every piece, by
// the queue of its number. `first` and `count` are elements of the window. The deadline is of the whole call.
template <class Protocol, class T, class Op>
GDA_API gda_status gda_reduce_scatter_block(const gda_team& team, const gda_window& data, uint64_t first,
                                            uint64_t count, const gda_window& staging, const gda_window& signals,
                                            uint64_t deadline_ns, uint32_t channel = 0, uint32_t channels = 1) {
    gda::target::sync_block();
    gda::link l = gda::open_ring<Protocol>(team, staging, signals, deadline_ns, channel, channels);
    gda::ring r = gda::ring_of<Protocol, T>(l, first, count, channel, channels);
    for (uint64_t chunk = 0; chunk < r.chunks() && l.status == 0; ++chunk) {
        gda::reduce_scatter_chunk<Protocol, T, Op>(l, data, r, chunk);
    }
    Protocol::settle(l);
    return l.close();
}

// Behind it nobody writes to the windows any more, so they may be closed: for the end of a series of calls. All threads
// of the block; also for the ring of all_reduce.h.
template <class Protocol>
GDA_API gda_status gda_leave_ring_block(const gda_team& team, const gda_window& staging, const gda_window& signals,
                                        uint64_t deadline_ns, uint32_t channel = 0, uint32_t channels = 1) {
    gda::link l = gda::open_ring<Protocol>(team, staging, signals, deadline_ns, channel, channels);
    l.leave();
    return l.close();
}
