// SPDX-License-Identifier: Apache-2.0
// A link: how one block of a rank sends steps to one rank and receives steps from one. Collectives that compute are
// made of links and a protocol (protocol.h), which says how a step travels. Used by reduce_scatter.h and all_reduce.h.
//
// What arrives is never overwritten before it was read: a step goes to one of LINK_SLOTS slots of the receiver's
// staging window, in turn, and its sender waits until the receiver has said that what was there before is taken. It
// says so every LINK_SLOTS / 2 steps, so that a sender is at most LINK_SLOTS steps ahead and seldom has to wait.
//
// Words of the signals window, for each link: how far the other side has sent (set by it, behind the data), how far it
// has taken what this side sent (set by it), and this rank's own two counts, which no other touches. Counts are of
// steps, the same on both sides, only grow and go round 2^64: nothing is reset between calls. A channel's links lie
// behind the words that call.h tells of, of which one is used: [2N], the rank that was waited for when a call failed,
// or that is lost, as the host says. The staging window has room for equally many slots of each link: LINK_SLOTS to
// receive in and, where the protocol packs, as many to send from.
#pragma once

#include <gda/collectives/element.h>
#include <gda/collectives/patience.h>
#include <gda/comm.h>

namespace gda {

enum link_word { LINK_ARRIVED, LINK_TAKEN, LINK_SENT, LINK_RECEIVED, LINK_WORDS };
static constexpr uint64_t LINK_SLOTS = 4;
static constexpr uint64_t SLOT_ALIGNMENT = 128;  // bytes: a line of LL128

// What links ask of queues, each once in the compiled code: in line at every step it would make that very long. All
// threads of the block call.
GDA_COLD gda_ticket link_signal(gda_qp* queue, const gda_mr& signals, uint64_t offset, uint64_t value) {
    return gda_signal_block(queue, signals, offset, value, GDA_SIGNAL_SET);
}
GDA_COLD gda_ticket link_put(gda_qp* queue, const gda_mr& to, uint64_t offset, const gda_mr& from, uint64_t from_offset,
                             uint64_t bytes) {
    return gda_put_block(queue, to, offset, from, from_offset, bytes);
}
GDA_COLD gda_ticket link_put_signal(gda_qp* queue, const gda_mr& to, uint64_t offset, const gda_mr& from,
                                    uint64_t from_offset, uint64_t bytes, const gda_mr& signals, uint64_t signal,
                                    uint64_t value) {
    return gda_put_signal_block(queue, to, offset, from, from_offset, bytes, signals, signal, value, GDA_SIGNAL_SET);
}
GDA_COLD gda_status link_wait(gda_qp* queue, gda_ticket ticket, uint64_t deadline_ns) {
    return gda_wait_block(queue, ticket, deadline_ns);
}
GDA_COLD gda_status link_flush(gda_qp* queue, uint64_t deadline_ns) { return gda_flush_block(queue, deadline_ns); }
GDA_COLD gda_status link_wait_signal(const uint64_t* signal, uint64_t value, uint64_t end_ns, const uint64_t* stop) {
    gda_status status = 0;
    if (target::thread_of_block() == 0) status = await_unless_stopped(signal, value, end_ns, stop);
    return target::broadcast_block(status);
}

// All threads of the block call all of it, with the same values, and have the same `status`: the first failure.
struct link {
    const gda_team& team;
    const gda_window& staging;
    const gda_window& signals;
    uint32_t to, from, which;
    uint64_t words;       // index of the first of its words
    uint64_t missed;      // index of the word for the rank that was waited for
    uint64_t slots;       // offset of its slots
    uint64_t slot_bytes;  // of each
    uint64_t give_up_at;  // by the target's clock
    uint64_t sent, received;
    gda_ticket ticket;  // of the last step sent, 0 before
    gda_status status;

    GDA_MEMBER gda_qp* queue() const { return gda_queue_of(team, to, which); }
    GDA_MEMBER uint64_t patience_ns() const { return nanoseconds_until(give_up_at); }
    GDA_MEMBER gda_status await_own(link_word word, uint64_t value) const {
        return link_wait_signal(own(word), value, give_up_at, signal_here(missed));
    }
    // For a thread that waits by itself: whether to go on, after so many turns.
    GDA_MEMBER bool is_late(uint32_t turns) const {
        return target::clock_ns() >= give_up_at ||
               (turns % STOP_LOOK_TURNS == 0 && target::load_signal(signal_here(missed)) != 0);
    }

    // ---- sending
    // Offsets of the next step's slot at the receiver, and of the one to send from here.
    GDA_MEMBER uint64_t slot_there() const { return slots + sent % LINK_SLOTS * slot_bytes; }
    GDA_MEMBER uint64_t slot_here() const { return slots + (LINK_SLOTS + sent % LINK_SLOTS) * slot_bytes; }
    // Waits until the next step's slot may be written, at both sides: what was taken had been read from here, too.
    GDA_MEMBER bool await_slot() {
        if (status == 0) {
            fail(to, await_own(LINK_TAKEN, sent + 1 - LINK_SLOTS));
        }
        return status == 0;
    }
    GDA_MEMBER void posted(gda_ticket posted) {
        ticket = posted;
        if (gda_failed(ticket)) fail(to, link_wait(queue(), ticket, 0));
        ++sent;
    }
    // Waits until all that was sent has been read from this rank's memory.
    GDA_MEMBER void settle() {
        if (status == 0 && ticket != 0) fail(to, link_wait(queue(), ticket, patience_ns()));
    }

    // ---- receiving
    GDA_MEMBER uint8_t* arrival() const {
        return reinterpret_cast<uint8_t*>(staging.mine.addr + slots + received % LINK_SLOTS * slot_bytes);
    }
    GDA_MEMBER bool await_signal() {
        if (status == 0) fail(from, await_own(LINK_ARRIVED, received + 1));
        return status == 0;
    }
    // Where each thread waits by itself: whether it came to all of them.
    GDA_MEMBER bool all_came(bool came) {
        if (target::sync_block_any(!came)) fail(from, signal_timeout(received));
        return status == 0;
    }
    // The step that came is used; the sender hears of it now or with the next one, when all threads have come so far.
    GDA_MEMBER void taken() {
        ++received;
        if (status == 0 && received % (LINK_SLOTS / 2) == 0) tell_taken();
    }
    GDA_MEMBER void tell_taken() {
        gda_qp* back = gda_queue_of(team, from, which);
        gda_ticket told =
            link_signal(back, gda_memory_of(signals, from), (words + LINK_TAKEN) * sizeof(uint64_t), received);
        if (gda_failed(told)) fail(from, link_wait(back, told, 0));
    }

    // Until the other side has taken all, and this one's word of that has arrived there: neither writes any more. And
    // until the NIC knows so much: where an acknowledgement was lost it sends again, from memory that must still be
    // there.
    GDA_MEMBER void leave() {
        if (status == 0 && received % (LINK_SLOTS / 2) != 0) tell_taken();
        if (status == 0) fail(to, await_own(LINK_TAKEN, sent));
        if (status == 0) fail(from, link_flush(gda_queue_of(team, from, which), patience_ns()));
        if (status == 0 && to != from) fail(to, link_flush(queue(), patience_ns()));
    }

    // A failure on the way to this peer, or while it was waited for; 0 is none.
    GDA_MEMBER void fail(uint32_t peer, gda_status what) {
        if (status != 0 || what == 0) return;
        status = what;
        if (target::thread_of_block() == 0) target::store_owned(signal_here(missed), peer + 1);
    }

    // Notes how far it came, for who opens it next.
    GDA_MEMBER gda_status close() const {
        if (target::thread_of_block() == 0 && slot_bytes != 0) {
            target::store_owned(own(LINK_SENT), sent);
            target::store_owned(own(LINK_RECEIVED), received);
        }
        target::sync_block();
        return status;
    }
    GDA_MEMBER uint64_t* own(link_word word) const { return signal_here(words + word); }
    GDA_MEMBER uint64_t* signal_here(uint64_t index) const {
        return const_cast<uint64_t*>(gda_signal_of(signals, index));
    }
};

template <class Protocol>
GDA_DEVICE uint64_t slots_of_link() {
    return Protocol::PACKS ? 2 * LINK_SLOTS : LINK_SLOTS;
}
// `links` in all, of all channels.
template <class Protocol>
GDA_DEVICE uint64_t slot_bytes_of(const gda_window& staging, uint32_t links) {
    return staging.mine.bytes / links / slots_of_link<Protocol>() / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}
// Of a window that is too small: one, which open_link refuses.
template <class Protocol, class T>
GDA_DEVICE uint64_t elements_of_slot(const gda_window& staging, uint32_t links) {
    uint64_t slot = slot_bytes_of<Protocol>(staging, links);
    return slot != 0 ? Protocol::room(slot) / sizeof(T) : 1;
}

// What the links of a channel have in common.
struct link_place {
    const gda_team& team;
    const gda_window& staging;
    const gda_window& signals;
    uint32_t channel, channels, links;  // this channel of how many, and links of each
    uint64_t give_up_at;
};

// Link `number` of a channel. Windows that are too small for it are GDA_OUT_OF_BOUNDS.
template <class Protocol>
GDA_DEVICE link open_link(const link_place& p, uint32_t number, uint32_t to, uint32_t from) {
    uint64_t slot = slot_bytes_of<Protocol>(p.staging, p.channels * p.links);
    uint64_t slots = (uint64_t(p.channel) * p.links + number) * slots_of_link<Protocol>() * slot;
    uint64_t before = 2 * uint64_t(p.team.size) + 2;
    uint64_t first = p.channel * (before + p.links * LINK_WORDS), words = first + before + number * LINK_WORDS;
    link l = {p.team, p.staging, p.signals,    to, from, p.channel, words, first + 2 * p.team.size,
              slots,  slot,      p.give_up_at, 0,  0,    0,         0};
    if (p.team.version != GDA_HANDLE_VERSION || slot == 0 || l.signal_here(words + LINK_WORDS - 1) == nullptr) {
        l.slot_bytes = 0;
        l.status = make_status(prm::GDA_OUT_OF_BOUNDS, 0, 0);
        return l;
    }
    l.sent = target::load_owned(l.own(LINK_SENT));
    l.received = target::load_owned(l.own(LINK_RECEIVED));
    return l;
}

// A piece of an array, in elements.
struct span {
    uint64_t begin, count;
};
// Piece `index` of `parts` that differ by one element at most.
GDA_DEVICE span part_of(const span& whole, uint64_t index, uint64_t parts) {
    uint64_t begin = whole.count * index / parts;
    return {whole.begin + begin, whole.count * (index + 1) / parts - begin};
}
// As much of it as chunk number `chunk` of `most` elements has.
GDA_DEVICE span chunk_of(const span& whole, uint64_t chunk, uint64_t most) {
    uint64_t begin = chunk * most < whole.count ? chunk * most : whole.count;
    return {whole.begin + begin, whole.count - begin < most ? whole.count - begin : most};
}
GDA_DEVICE uint64_t divided_up(uint64_t count, uint64_t by) { return (count + by - 1) / by; }

}  // namespace gda
