// SPDX-License-Identifier: Apache-2.0
// One call of a collective, as one rank goes through it: what the collectives of this folder are made of. They say who
// sends what to whom; here is how. Words and checks in Python: gda/comm/collectives/collective.py. Document:
// docs/programs.md, "Collectives".
//
//   gda::collective_call call(team, signals, channel, deadline_ns);
//   call.admit(left);                                    // the left one may write to me
//   call.await_admission(right);                         // and I to the right one
//   call.put(right, data, 0, data.mine, 0, bytes, 1);    // bytes, and behind them: step 1 of this call is there
//   call.await_arrival(left, 1);
//   call.await_sent(right);
//   return call.finish(1);                               // this call took 1 step; the same number on all ranks
//
// A fast rank may begin the next call while a slow one still reads what the last one brought. So nobody writes to a
// rank before it has said that it has come to the same call (admit): then it has read what it wanted.
//
// Words, of signals (strictly ordered) that serve one collective alone; N ranks, 2N + 2 words for each channel:
//   [peer]      how far the peer's bytes have arrived here, as a count of steps; set by that peer alone
//   [N + peer]  to which call the peer has come, as the count of steps at its first; set by that peer alone
//   [2N]        after a failure, the rank that was waited for, plus one (0: none); of this rank alone. Its host sets it
//               while a call waits, where a rank is lost: the call stops (patience.h)
//   [2N + 1]    the steps of all calls so far: this rank's own count
//   behind it what a collective needs beside: all_to_all_v.h
// Counts only grow and go round 2^64, so nothing is set back between calls. After a failure the words of ranks differ:
// the signals are of no use any more. Channels share nothing but, where a peer has fewer queues, those.
#pragma once

#include <gda/collectives/patience.h>
#include <gda/comm.h>

namespace gda {

// The parts that are long when compiled stand once, not at each of their many uses: a kernel would be several times as
// long, for its compiler and for a GPU that has to fetch it.

// A put with a signal behind it, or, of no bytes, the signal alone.
GDA_COLD gda_ticket put_in_call(const gda_team& team, uint32_t peer, const gda_window& window, uint64_t offset,
                                const gda_mr& source, uint64_t source_offset, uint64_t bytes, const gda_window& signals,
                                uint64_t word, uint64_t value, uint32_t channel) {
    if (bytes == 0) return gda_signal_to(team, peer, signals, word, value, GDA_SIGNAL_SET, channel);
    return gda_put_signal_to(team, peer, window, offset, source, source_offset, bytes, signals, word, value,
                             GDA_SIGNAL_SET, channel);
}
template <class T>
GDA_COLD gda_ticket tell_in_call(const gda_team& team, uint32_t peer, const gda_window& signals, uint64_t word,
                                 const T& value, uint32_t channel) {
    return gda_put_value(gda_queue_of(team, peer, channel), gda_memory_of(signals, peer), word * sizeof(uint64_t),
                         value, GDA_MORE);
}
GDA_COLD gda_status flush_in_call(gda_qp* queue, uint64_t end_ns) {
    return gda_flush(queue, nanoseconds_until(end_ns));
}

struct collective_call {
    const gda_team& team;
    const gda_window& signals;
    uint32_t channel;
    uint64_t first;     // number of the channel's first word
    uint64_t before;    // steps of all calls before this one
    uint64_t end_ns;    // on the target's clock: the deadline of the whole call
    gda_status status;  // the first failure; nothing is done behind it

    // A channel has `more` words behind those above.
    GDA_MEMBER collective_call(const gda_team& of, const gda_window& words, uint32_t number, uint64_t deadline_ns,
                               uint64_t more = 0)
        : team(of), signals(words), channel(number), before(0), end_ns(moment_after(deadline_ns)), status(0) {
        uint64_t words_of_channel = 2 * static_cast<uint64_t>(team.size) + 2 + more;
        first = channel * words_of_channel;
        if (team.version != GDA_HANDLE_VERSION) {
            status = make_status(prm::GDA_BAD_HANDLE, 0, 0);
        } else if (gda_signal_of(signals, first + words_of_channel - 1) == nullptr) {
            status = make_status(prm::GDA_OUT_OF_BOUNDS, 0, 0);
        } else {
            before = target::load_owned(own_word(2 * team.size + 1));
        }
    }

    // Tells the peer that this rank has come to this call: its memory may be written.
    GDA_MEMBER void admit(uint32_t peer) {
        if (status != 0) return;
        posted(peer, put_in_call(team, peer, signals, 0, signals.mine, 0, 0, signals, first + team.size + team.rank,
                                 before + 1, channel));
    }
    GDA_MEMBER void await_admission(uint32_t peer) { await_word(team.size + peer, before + 1, peer); }

    // Bytes to the peer's window, and behind them the word that `step` (from 1 on) of this call has arrived.
    GDA_MEMBER void put(uint32_t peer, const gda_window& window, uint64_t offset, const gda_mr& source,
                        uint64_t source_offset, uint64_t bytes, uint64_t step) {
        if (status != 0) return;
        posted(peer, put_in_call(team, peer, window, offset, source, source_offset, bytes, signals, first + team.rank,
                                 before + step, channel));
    }
    GDA_MEMBER void await_arrival(uint32_t peer, uint64_t step) { await_word(peer, before + step, peer); }

    // A value to words of the peer, in front of the signal that goes to it next.
    template <class T>
    GDA_MEMBER void tell(uint32_t peer, uint64_t word, const T& value) {
        if (status != 0) return;
        posted(peer, tell_in_call(team, peer, signals, first + word, value, channel));
    }

    // All that went to the peer by this channel's queue has left: the sources may change.
    GDA_MEMBER void await_sent(uint32_t peer) {
        if (status == 0) note(peer, flush_in_call(gda_queue_of(team, peer, channel), end_ns));
    }

    // The end of the call. `steps` is how many it had, on whichever rank had most; on a failure it does not matter.
    GDA_MEMBER gda_status finish(uint64_t steps) {
        if (status == 0) target::store_owned(own_word(2 * team.size + 1), before + steps);
        return status;
    }

    // A failure on the way to this peer, or while it was waited for; 0 is none.
    GDA_MEMBER void note(uint32_t peer, gda_status what) {
        if (status != 0 || what == 0) return;
        status = what;
        name(peer);
    }
    GDA_MEMBER void name(uint32_t peer) { target::store_owned(own_word(2 * team.size), peer + 1); }

    GDA_MEMBER void posted(uint32_t peer, gda_ticket ticket) {
        if (gda_failed(ticket)) note(peer, refusal(gda_queue_of(team, peer, channel), ticket));
    }

    GDA_MEMBER void await_word(uint64_t word, uint64_t value, uint32_t peer) {
        if (status == 0) note(peer, await_unless_stopped(own_word(word), value, end_ns, own_word(2 * team.size)));
    }

    GDA_MEMBER uint64_t* own_word(uint64_t word) const {
        return const_cast<uint64_t*>(gda_signal_of(signals, first + word));
    }
};

// The part of `bytes` that one of several channels carries; all but the last begin and end at multiples of 128.
struct collective_share {
    uint64_t offset;
    uint64_t bytes;
};
GDA_DEVICE collective_share share_of(uint64_t bytes, uint32_t channel, uint32_t channels) {
    uint64_t each = (bytes / channels + (bytes % channels != 0) + 127) / 128 * 128;
    collective_share share;
    share.offset = channel * each < bytes ? channel * each : bytes;
    share.bytes = bytes - share.offset < each ? bytes - share.offset : each;
    return share;
}

}  // namespace gda

// The form of a collective for one block, gda_NAME_block: all threads call with equal arguments, one does it, all get
// its status. What any of them wrote before the call is sent; what the call brought, all see.
#define GDA_COLLECTIVE_OF_BLOCK(NAME)                                            \
    template <class... P>                                                        \
    GDA_API gda_status gda_##NAME##_block(const P&... values) {                  \
        gda::target::sync_block();                                               \
        gda_status status = 0;                                                   \
        if (gda::target::thread_of_block() == 0) status = gda_##NAME(values...); \
        status = gda::target::broadcast_block(status);                           \
        gda::target::sync_block();                                               \
        return status;                                                           \
    }
