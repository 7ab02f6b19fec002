// SPDX-License-Identifier: Apache-2.0
// All-to-all of rows where only the sender knows how many go to whom (a mixture of experts: tokens to experts, results
// back to tokens). Called by kernels; made by gda/comm/collectives/all_to_all_v.py, which has the same steps as data.
// Document: docs/programs.md, "Collectives".
//
//   gda_status s = gda_all_to_all_v(team, target, source, counts, starts, row_bytes, signals, GDA_S(1));
//   const gda_rows* from = gda_rows_from(team, signals, peer);        // what came from a rank, and where it lies
//   s = gda_all_to_all_v_back(team, back, target.mine, row_bytes, signals, GDA_S(1));
//
// Rank p gets counts[p] rows (none is allowed) from row starts[p] of the source on. In its target the rows of rank 0
// come first, then those of rank 1, and so on, without gaps. Three steps, of puts and signals:
//   1. a rank tells each how many rows come, and where they lie in its source;
//   2. who has heard of all counts the places, and tells each where its rows belong. This also admits it (call.h);
//   3. the rows themselves, in rotated order.
// The way back needs one step: who has rows puts them to where they lay in the source, but in the window `back`. Rows
// may have another length then (results instead of tokens); the rows are those of the last call.
//
// Where a target has too little room, or a rank named rows that its source does not have, no row to, or of, that rank
// moves, and all ranks get GDA_OUT_OF_BOUNDS; all steps are done nonetheless, and the next call is good.
// All ranks call with the same row_bytes and channels, again and again if they like. Each channel carries its share of
// the bytes of every pair.
//
// Words of a channel, behind those of call.h, for N ranks:
//   [2 peer], [2 peer + 1]  what the peer told: rows for this rank, and the first in its source; set by that peer alone
//   [2N + peer]             where this rank's rows begin in the peer's target; set by that peer alone
//   [3N + 3 peer] ...       a gda_rows of this rank's own, until the next call
// A peer tells again only when it has got what this rank sent last, and by then this rank had read what was told.
#pragma once

#include <gda/collectives/call.h>

// Rows from one rank: how many, the first in this rank's target, and the first in that rank's source.
struct gda_rows {
    uint64_t count;
    uint64_t start;
    uint64_t origin;
};

namespace gda {

static constexpr uint64_t NO_ROWS = ~static_cast<uint64_t>(0);  // told as a count, or as a place: none can move

GDA_DEVICE uint64_t words_of_rows(const gda_team& team) { return 6 * static_cast<uint64_t>(team.size); }

struct told_rows {
    uint64_t count;
    uint64_t origin;
};

// A call with the words of this file behind its own.
struct rows_call : collective_call {
    uint64_t told, places, rows;

    GDA_MEMBER rows_call(const gda_team& of, const gda_window& words, uint32_t number, uint64_t deadline_ns)
        : collective_call(of, words, number, deadline_ns, words_of_rows(of)) {
        told = 2 * static_cast<uint64_t>(of.size) + 2;
        places = told + 2 * static_cast<uint64_t>(of.size);
        rows = places + of.size;
    }

    GDA_MEMBER gda_rows* rows_of(uint32_t peer) const {
        return reinterpret_cast<gda_rows*>(own_word(rows + 3 * static_cast<uint64_t>(peer)));
    }

    GDA_MEMBER void refuse(uint32_t peer, gda_status* refused) {
        if (*refused == 0) name(peer);
        *refused = make_status(prm::GDA_OUT_OF_BOUNDS, 0, 0);
    }

    // Step 2 without the telling: places for all that were told, as far as there is room. Answers whether there was.
    GDA_MEMBER bool place_all(uint64_t room, gda_status* refused) {
        uint64_t end = 0;
        for (uint32_t peer = 0; peer < team.size; ++peer) {
            uint64_t count = target::load_signal(own_word(told + 2 * static_cast<uint64_t>(peer)));
            if (count == NO_ROWS) {
                refuse(peer, refused);
                count = 0;
            }
            if (count > room - end) return false;
            gda_rows* from = rows_of(peer);
            from->count = count;
            from->start = end;
            from->origin = target::load_signal(own_word(told + 2 * static_cast<uint64_t>(peer) + 1));
            end += count;
        }
        return true;
    }
};

GDA_DEVICE bool source_has(const gda_mr& source, const uint64_t* counts, const uint64_t* starts, uint32_t size,
                           uint64_t row_bytes) {
    uint64_t rows = source.bytes / row_bytes;
    for (uint32_t peer = 0; peer < size; ++peer) {
        if (counts[peer] != 0 && (starts[peer] > rows || counts[peer] > rows - starts[peer])) return false;
    }
    return true;
}

}  // namespace gda

// What came from `peer` in the last call of gda_all_to_all_v on this channel (all channels say the same); null for a
// rank that there is not.
GDA_API const gda_rows* gda_rows_from(const gda_team& team, const gda_window& signals, uint32_t peer,
                                      uint32_t channel = 0) {
    gda::rows_call words(team, signals, channel, 0);
    return words.status != 0 || peer >= team.size ? nullptr : words.rows_of(peer);
}

// Sends rows. `counts` and `starts` have a number for each rank, and are read by one thread of this rank, which calls.
GDA_API gda_status gda_all_to_all_v(const gda_team& team, const gda_window& target, const gda_mr& source,
                                    const uint64_t* counts, const uint64_t* starts, uint64_t row_bytes,
                                    const gda_window& signals, uint64_t deadline_ns, uint32_t channel = 0,
                                    uint32_t channels = 1) {
    if (row_bytes == 0) return gda::make_status(gda::prm::GDA_OUT_OF_BOUNDS, 0, 0);
    gda::rows_call call(team, signals, channel, deadline_ns);
    gda_status refused = 0;
    bool has = gda::source_has(source, counts, starts, team.size, row_bytes);
    for (uint32_t i = 0; i < team.size; ++i) {
        uint32_t peer = (team.rank + i) % team.size;
        gda::told_rows told = {has ? counts[peer] : gda::NO_ROWS, starts[peer]};
        call.tell(peer, call.told + 2 * static_cast<uint64_t>(team.rank), told);
        call.put(peer, target, 0, source, 0, 0, 1);
    }
    for (uint32_t i = 0; i < team.size; ++i) call.await_arrival((team.rank + team.size - i) % team.size, 1);
    if (call.status != 0) return call.status;
    bool placed = call.place_all(target.mine.bytes / row_bytes, &refused);
    for (uint32_t i = 0; i < team.size; ++i) {
        uint32_t peer = (team.rank + team.size - i) % team.size;
        if (!placed) call.rows_of(peer)->count = 0;
        uint64_t place = placed ? call.rows_of(peer)->start : gda::NO_ROWS;
        call.tell(peer, call.places + team.rank, place);
        call.admit(peer);
    }
    for (uint32_t i = 0; i < team.size; ++i) {
        uint32_t peer = (team.rank + i) % team.size;
        call.await_admission(peer);
        if (call.status != 0) return call.status;
        uint64_t place = gda::target::load_signal(call.own_word(call.places + peer));
        uint64_t rows = has && place != gda::NO_ROWS ? counts[peer] : 0;
        if (place == gda::NO_ROWS) call.refuse(peer, &refused);
        gda::collective_share share = gda::share_of(rows * row_bytes, channel, channels);
        call.put(peer, target, place * row_bytes + share.offset, source, starts[peer] * row_bytes + share.offset,
                 share.bytes, 2);
    }
    for (uint32_t i = 0; i < team.size; ++i) call.await_arrival((team.rank + team.size - i) % team.size, 2);
    for (uint32_t i = 0; i < team.size; ++i) call.await_sent((team.rank + i) % team.size);
    gda_status status = call.finish(2);
    return status != 0 ? status : refused;
}

// Sends the rows of the last call back, from `source` (where they lie as they lay in the target) to the window `back`
// of those they came from (where they lie as they lay in the source). One thread of each rank calls.
GDA_API gda_status gda_all_to_all_v_back(const gda_team& team, const gda_window& back, const gda_mr& source,
                                         uint64_t row_bytes, const gda_window& signals, uint64_t deadline_ns,
                                         uint32_t channel = 0, uint32_t channels = 1) {
    gda::rows_call call(team, signals, channel, deadline_ns);
    for (uint32_t i = 0; i < team.size; ++i) call.admit((team.rank + team.size - i) % team.size);
    for (uint32_t i = 0; i < team.size && call.status == 0; ++i) {
        uint32_t peer = (team.rank + i) % team.size;
        const gda_rows* rows = call.rows_of(peer);
        gda::collective_share share = gda::share_of(rows->count * row_bytes, channel, channels);
        call.await_admission(peer);
        call.put(peer, back, rows->origin * row_bytes + share.offset, source, rows->start * row_bytes + share.offset,
                 share.bytes, 1);
    }
    for (uint32_t i = 0; i < team.size; ++i) call.await_arrival((team.rank + team.size - i) % team.size, 1);
    for (uint32_t i = 0; i < team.size; ++i) call.await_sent((team.rank + i) % team.size);
    return call.finish(1);
}

// The same two for all threads of one block, which call with equal arguments.
GDA_COLLECTIVE_OF_BLOCK(all_to_all_v)
GDA_COLLECTIVE_OF_BLOCK(all_to_all_v_back)
