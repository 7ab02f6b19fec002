// SPDX-License-Identifier: Apache-2.0
// Publication on a queue that many threads share: who writes record and doorbell, and how that right goes on. Called by
// submit.h; document: docs/ordering.md.
//
// There is one token. Who has it tells the NIC of all slots that are written in one piece from its position on, as one
// doorbell, and leaves the token at the first slot that is not. A thread whose slots are not next notes in the window
// that they are written and leaves: who has the token, or comes to have it, rings for it. So no thread waits for one
// that is slow to write, and doorbells merge by themselves under load. Only who finds the token on its way to its own
// slots waits until it is there: as long as the one before it rings.
//
// The window has a word for each 32 slots, and 64 words; slot i is bit i % 32 of word i / 32 % 64.
//   low half   bit i: slot i is written, and its writer has left
//   PARKED     the token lies at the slot in PARKED_AT, or will when `ready` says so
//   Both sides change the word of one slot by one read-modify-write each, so one of them sees the other: the writer
//   that sets its bits and finds the token parked at its first slot has it; the holder that parks and finds a bit there
//   goes on. A writer that read `ready` as its own first slot knows that the token is there without a look, and it
//   alone may take it: it sets no bits. The holder parks before it rings, so that its look costs no time of its own.
//   Words behind the token are cleared by who passes them, before `ready` tells of it. A writer sets bits only within
//   63 words above a `ready` that it has read: so no bit of a lap meets one of the lap before.
#pragma once

#include <gda/ring.h>

namespace gda {

static constexpr uint64_t WORD_SLOTS = 32;
static constexpr uint64_t WINDOW_WORDS = 64;
static constexpr uint64_t WINDOW_SLOTS = (WINDOW_WORDS - 1) * WORD_SLOTS;  // above `ready`: one word is being cleared
static constexpr uint64_t PARKED = static_cast<uint64_t>(1) << 63;
static_assert(sizeof(gda_queue::window) == WINDOW_WORDS * sizeof(uint64_t), "the window's size is ABI");

GDA_DEVICE uint64_t* window_word(uint64_t* window, uint64_t slot) {
    return window + (static_cast<uint32_t>(slot) / WORD_SLOTS & (WINDOW_WORDS - 1));
}
// Of slots that are less than 2^32 apart.
GDA_DEVICE bool same_word(uint64_t a, uint64_t b) { return static_cast<uint32_t>(a ^ b) < WORD_SLOTS; }
GDA_DEVICE uint64_t written(uint64_t word) { return word & 0xffffffffu; }
GDA_DEVICE uint64_t parked_at(uint64_t slot) { return PARKED | static_cast<uint64_t>(slot % WORD_SLOTS) << 32; }
GDA_DEVICE uint64_t slot_bits(uint64_t first, uint64_t count) {
    return ((static_cast<uint64_t>(1) << count) - 1) << first;
}

// The token in hand: all slots below `end` are written. `word` is the window's word of `end`, as last seen.
struct token {
    uint64_t end;
    uint64_t word;
};

// Words that lie behind the token are used again a lap later.
GDA_DEVICE void clear_words(uint64_t* window, uint64_t from, uint64_t to) {
    for (uint64_t slot = from; !same_word(slot, to); slot += WORD_SLOTS)
        target::store_shared(window_word(window, slot), 0);
}

// Takes in what is written of the word that t.end begins. True if that is all of it.
GDA_DEVICE bool take_word(token& t, uint64_t word) {
    uint32_t ones = target::count_ones(static_cast<uint32_t>(written(word)));
    t.word = word;
    t.end += ones;
    return ones == WORD_SLOTS;
}

// The token behind the slots from t.end on that are written in one piece.
GDA_DEVICE token take_written(uint64_t* window, token t) {
    uint64_t from = t.end;
    t.end += target::count_ones(static_cast<uint32_t>(written(t.word)) >> from % WORD_SLOTS);
    while (t.end != from && t.end % WORD_SLOTS == 0) {  // the word is full, t.end in the next one
        // Four reads under way together; no array, which a GPU would keep in memory.
        uint64_t first = target::load_shared(window_word(window, t.end));
        uint64_t second = target::load_shared(window_word(window, t.end + WORD_SLOTS));
        uint64_t third = target::load_shared(window_word(window, t.end + 2 * WORD_SLOTS));
        uint64_t fourth = target::load_shared(window_word(window, t.end + 3 * WORD_SLOTS));
        if (!take_word(t, first) || !take_word(t, second) || !take_word(t, third) || !take_word(t, fourth)) break;
    }
    clear_words(window, from, t.end);
    return t;
}

// The end of all that is written from t.end on; the token is parked there, and the doorbell rung, unless it was for as
// much (`rung`). The words ahead are read behind a barrier: before it they may still hold what they held a lap ago,
// since those who cleared them held the token. Another one stands between what they say and the record.
GDA_COLD uint64_t ring_for_others(gda_qp* qp, token t, uint64_t rung) {
    queue_view q = view(qp);
    target::earlier_slots_before_mine(q.scope);
    for (;;) {
        t = take_written(q.window, t);
        uint64_t seen = target::exchange_if(window_word(q.window, t.end), t.word, parked_at(t.end) | written(t.word));
        if (seen == t.word) break;
        t.word = seen;
    }
    if (t.end != rung) {
        target::earlier_slots_before_mine(q.scope);
        ring_doorbell(qp, q, t.end);
    }
    return t.end;
}

// The token of whoever has read `ready` as its own first slot is parked behind its slots. Answers what was in the
// window's word there; what must have been there for it to be parked is behind(c).
GDA_DEVICE uint64_t behind(const claim& c) { return same_word(c.base, c.base + c.count) ? parked_at(c.base) : 0; }
GDA_DEVICE uint64_t park(const queue_view& q, const claim& c) {
    uint64_t end = c.base + c.count;
    return target::exchange_if(window_word(q.window, end), behind(c), parked_at(end));
}

// At gpu scope it is parked before the slots are written, so that the answer comes meanwhile: nobody waits for it. That
// the word is read no earlier than `ready`, on which this depends, is practice and not PTX's promise; at system scope
// the barrier of publish_shared() comes first.
GDA_DEVICE uint64_t park_early(const queue_view& q, const claim& c) {
    return c.ready == c.base && q.scope == target::scope_gpu ? park(q, c) : 0;
}

// Until the window reaches the last of the slots. False: an earlier thread is gone, and the queue has failed.
GDA_COLD bool await_window(gda_qp* qp, claim c) {
    queue_view q = view(qp);
    uint64_t end = c.base + c.count;
    uint64_t fail_at = moment_after(OTHERS_LIMIT_NS);
    while (end > target::load_shared(&qp->ready) + WINDOW_SLOTS) {
        if (target::load_shared(&qp->error) != 0) return false;
        if (target::clock_ns() >= fail_at) latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, c.base));
        target::idle();
    }
    target::earlier_slots_before_mine(q.scope);  // and the clearing of the words before the bits
    return true;
}

// Until the token has come to `slot`, where it is parked: the one before tells the NIC of its own slots. False: it is
// gone, and the queue has failed.
GDA_COLD bool token_is_lost(gda_qp* qp, uint64_t slot, uint64_t* fail_at) {
    if (*fail_at == 0) *fail_at = moment_after(OTHERS_LIMIT_NS);
    if (target::clock_ns() < *fail_at) return false;
    queue_view q = view(qp);
    latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, slot));
    return true;
}
GDA_DEVICE bool await_token(gda_qp* qp, uint64_t slot) {
    uint64_t fail_at = 0;
    for (uint32_t turns = 1; target::load_shared(&qp->ready) != slot; ++turns) {
        target::idle();
        if (turns % 64 == 0 && token_is_lost(qp, slot, &fail_at)) return false;
    }
    return true;
}

// Notes that the slots are written, from the last of the window's words to the first. True: the token was parked at one
// of them, `*at`, and is the caller's. Of requests of several blocks a later word comes surely first: a holder that
// came between two of them would ring in the middle of a request.
GDA_DEVICE bool leave_written(const queue_view& q, const claim& c, uint64_t* at, token* t) {
    constexpr uint64_t FLAGS = ~static_cast<uint64_t>(0xffffffffu);
    uint64_t found = c.base + c.count;
    t->end = found;
    t->word = 0;
    for (uint64_t end = t->end; end != c.base;) {
        uint64_t slot = (end - 1) / WORD_SLOTS * WORD_SLOTS;
        if (slot < c.base) slot = c.base;
        uint64_t bits = slot_bits(slot % WORD_SLOTS, end - slot);
        uint64_t seen = target::set_bits(window_word(q.window, slot), bits);
        if ((seen & FLAGS) == parked_at(slot)) found = slot;
        if (end == t->end && end % WORD_SLOTS != 0) t->word = seen | bits;
        end = slot;
        if (c.request_blocks > 1 && end != c.base) target::earlier_slots_before_mine(q.scope);
    }
    *at = found;
    return found != t->end;
}

// No doorbell is lost: a thread that leaves has set its bits before the token came to them, and no holder parks in
// front of a bit. No unwritten slot is rung: bits are set behind a barrier, and the holder has one between bits and
// record. No record goes back: who takes the token over writes its record after it has read `ready`, which the one
// before has stored behind the barrier between its record and its doorbell.
GDA_DEVICE void publish_shared(gda_qp* qp, const queue_view& q, const claim& c, uint64_t seen, bool more) {
    uint64_t end = c.base + c.count;
    if (__builtin_expect(c.ready == c.base, 1)) {
        clear_words(q.window, c.base, end);
        // Both for the own WQEs (release) and, since `ready` was read before, for earlier ones (acquire).
        target::wqe_before_doorbell_record(q.scope);
        if (q.scope != target::scope_gpu) seen = park(q, c);
        ring_or_defer(qp, q, end, more);
        token t = {end, target::not_before(seen)};
        if (__builtin_expect(t.word != behind(c), 0)) {  // others were there first
            end = ring_for_others(qp, t, end);
        }
    } else {
        token t;
        uint64_t at;
        target::wqe_before_doorbell_record(q.scope);  // here before the note
        if (end > c.ready + WINDOW_SLOTS && !await_window(qp, c)) return;
        if (!leave_written(q, c, &at, &t) || !await_token(qp, at)) return;
        clear_words(q.window, at, end);
        end = ring_for_others(qp, t, at);
    }
    // Where the register itself says what is there, the next holder's must come later.
    if ((q.flags & ORDERED_DOORBELLS) != 0) target::doorbell_before_ready(q.scope);
    target::store_shared(&qp->ready, end);
}

}  // namespace gda
