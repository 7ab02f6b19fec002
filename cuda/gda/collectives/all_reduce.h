// SPDX-License-Identifier: Apache-2.0
// All-reduce: every rank gets the sum (product, minimum, maximum) of an array that all have. Called by kernels; made by
// gda/comm/collectives/reduce.py, which has the same steps in Python. Document: docs/programs.md.
//
// Two algorithms, each with any protocol of protocol.h:
//   ring      reduce-scatter, then each finished piece goes around: 2 (N-1) steps, 2 (N-1)/N of the bytes from each
//             rank, the least that there is. For large arrays.
//   doubling  in round k a rank and the one whose number differs in bit k send each other all they have: log2 N
//             rounds, each with all bytes. For small arrays. If N is not a power of two, those beyond the last one, P,
//             first give theirs to the rank P before them, and at the end get the result from it.
// All ranks get the same bits, run after run: the ring finishes each piece at one rank, in the order that
// reduce_scatter.h tells. Doubling computes everywhere, but both sides of an exchange the same thing, with the lower
// rank's operand first: with 4 ranks (x0 + x1) + (x2 + x3). The two algorithms differ in their bits.
//
// In place. What arrives is kept from being overwritten by link.h; a result that gda_simple puts where it belongs
// overwrites nothing that is still wanted, for it could not be finished without this rank's part, also not by a
// neighbour that has begun the next call.
#pragma once

#include <gda/collectives/reduce_scatter.h>

namespace gda {

struct doubling {
    uint32_t rank, size, rounds, power;  // the largest power of two that is no more than size: 1 << rounds

    GDA_MEMBER explicit doubling(const gda_team& team) : rank(team.rank), size(team.size), rounds(0), power(1) {
        for (; power <= size / 2; power *= 2) ++rounds;
    }
    GDA_MEMBER bool surplus() const { return rank >= power; }
    GDA_MEMBER bool folds() const { return rank + power < size; }
    // Links of a channel: one for each round, and the last one between a surplus rank and who folds it in. Those that
    // a rank has no use for lead to itself.
    GDA_MEMBER uint32_t links() const { return rounds + 1; }
    GDA_MEMBER uint32_t other(uint32_t link) const {
        if (link < rounds && !surplus()) return rank ^ uint32_t(1) << link;
        if (link == rounds && surplus()) return rank - power;
        return link == rounds && folds() ? rank + power : rank;
    }
    template <class Protocol>
    GDA_MEMBER link open(const link_place& place, uint32_t number) const {
        return open_link<Protocol>(place, number, other(number), other(number));
    }
};

// Sends all of the chunk, and adds what the other side sends.
template <class Protocol, class T, class Op>
GDA_DEVICE void exchange_chunk(link& l, const gda_window& data, const span& at) {
    Protocol::template send<T>(l, data, at);
    Protocol::settle(l);  // it is overwritten next
    if (l.from < l.team.rank) {
        Protocol::template receive<T, Op>(l, data, at);
    } else {
        Protocol::template receive<T, swapped<Op>>(l, data, at);
    }
}

}  // namespace gda

// All threads of a block call, and all get the status; each of `channels` blocks carries its part of every piece, by
// the queue of its number. `first` and `count` are elements of the window; the deadline is of the whole call. The
// windows `staging` and `signals` have a link for each channel.
template <class Protocol, class T, class Op>
GDA_API gda_status gda_all_reduce_ring_block(const gda_team& team, const gda_window& data, uint64_t first,
                                             uint64_t count, const gda_window& staging, const gda_window& signals,
                                             uint64_t deadline_ns, uint32_t channel = 0, uint32_t channels = 1) {
    gda::target::sync_block();
    gda::link l = gda::open_ring<Protocol>(team, staging, signals, deadline_ns, channel, channels);
    gda::ring r = gda::ring_of<Protocol, T>(l, first, count, channel, channels);
    for (uint64_t chunk = 0; chunk < r.chunks() && l.status == 0; ++chunk) {
        gda::reduce_scatter_chunk<Protocol, T, Op>(l, data, r, chunk);
        for (uint32_t k = 0; k + 1 < r.size; ++k) {
            Protocol::template send_result<T>(l, data, r.part(k, chunk));
            Protocol::template receive_result<T>(l, data, r.part(k + 1, chunk));
        }
    }
    Protocol::settle(l);
    return l.close();
}

// The same by recursive doubling. The windows have gda::doubling(team).links() links for each channel.
template <class Protocol, class T, class Op>
GDA_API gda_status gda_all_reduce_doubling_block(const gda_team& team, const gda_window& data, uint64_t first,
                                                 uint64_t count, const gda_window& staging, const gda_window& signals,
                                                 uint64_t deadline_ns, uint32_t channel = 0, uint32_t channels = 1) {
    gda::target::sync_block();
    gda::doubling d(team);
    const gda::link_place place = {
        team, staging, signals, channel, channels, d.links(), gda::moment_after(deadline_ns)};
    const uint64_t most = gda::elements_of_slot<Protocol, T>(staging, channels * d.links());
    const uint64_t chunks = gda::divided_up(gda::divided_up(count, channels), most);
    const gda::span mine = gda::part_of({first, count}, channel, channels);
    gda_status status = 0;
    for (uint64_t chunk = 0; chunk < chunks && status == 0; ++chunk) {
        const gda::span at = gda::chunk_of(mine, chunk, most);
        if (d.surplus()) {
            gda::link l = d.open<Protocol>(place, d.rounds);
            Protocol::template send<T>(l, data, at);
            Protocol::template receive_result<T>(l, data, at);
            status = l.close();
            continue;
        }
        if (d.folds()) {
            gda::link l = d.open<Protocol>(place, d.rounds);
            Protocol::template receive<T, gda::swapped<Op>>(l, data, at);
            status = l.close();
        }
        for (uint32_t k = 0; k < d.rounds && status == 0; ++k) {
            gda::link l = d.open<Protocol>(place, k);
            gda::exchange_chunk<Protocol, T, Op>(l, data, at);
            status = l.close();
        }
        if (d.folds() && status == 0) {
            gda::link l = d.open<Protocol>(place, d.rounds);
            Protocol::template send_result<T>(l, data, at);
            Protocol::settle(l);
            status = l.close();
        }
    }
    return status;
}

// As gda_leave_ring_block, for doubling.
template <class Protocol>
GDA_API gda_status gda_leave_doubling_block(const gda_team& team, const gda_window& staging, const gda_window& signals,
                                            uint64_t deadline_ns, uint32_t channel = 0, uint32_t channels = 1) {
    gda::doubling d(team);
    const gda::link_place place = {
        team, staging, signals, channel, channels, d.links(), gda::moment_after(deadline_ns)};
    gda_status status = 0;
    for (uint32_t number = 0; number < d.links() && status == 0; ++number) {
        gda::link l = d.open<Protocol>(place, number);
        l.leave();
        status = l.close();
    }
    return status;
}
