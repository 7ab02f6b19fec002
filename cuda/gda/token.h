// SPDX-License-Identifier: Apache-2.0
// Publication on a queue that many threads share: who writes record and doorbell, and how that right goes on. Called by
// submit.h; document: docs/ordering.md.
//
// There is one token. Who has it tells the NIC of all slots that are written in one piece from its position on, as one
// doorbell, and then parks the token at the first slot that is not. Nobody waits for the token: a thread whose slots
// are not next notes in the window that they are written and leaves; the holder, or who finds the token parked at its
// own slots, rings for it. So no thread waits for a slower one, and doorbells merge by themselves under load.
//
// The window has a word for each 32 slots, and 64 words; slot i is bit i % 32 of word i / 32 % 64.
//   low half   bit i: slot i is written, and its writer has left
//   PARKED     the token lies here, at the slot in PARKED_AT
//   Both sides change the word of one slot by one read-modify-write each, so one of them sees the other: the writer
//   that sets its bits and finds the token parked at its first slot has it; the holder that parks and finds a bit there
//   goes on. A writer that read `ready` as its own first slot knows that the token is parked there without a look, and
//   it alone may take it: it sets no bits.
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

GDA_DEVICE uint64_t* window_word(const queue_view& q, uint64_t slot) {
    return q.window + (slot / WORD_SLOTS & (WINDOW_WORDS - 1));
}
GDA_DEVICE bool same_word(uint64_t a, uint64_t b) { return a / WORD_SLOTS == b / WORD_SLOTS; }
GDA_DEVICE uint64_t written(uint64_t word) { return word & 0xffffffffu; }
GDA_DEVICE uint64_t parked_at(uint64_t slot) { return PARKED | (slot % WORD_SLOTS) << 32; }
GDA_DEVICE uint64_t slot_bits(uint64_t first, uint64_t count) {
    return ((static_cast<uint64_t>(1) << count) - 1) << first;
}

// The token in hand: all slots below `end` are written. `word` is the window's word of `end`, as last seen.
struct token {
    uint64_t end;
    uint64_t word;
};

// Words that lie behind the token are used again a lap later.
GDA_DEVICE void clear_words(const queue_view& q, uint64_t from, uint64_t to) {
    for (uint64_t slot = from; !same_word(slot, to); slot += WORD_SLOTS) target::store_shared(window_word(q, slot), 0);
}

// Takes in what is written of the word that t.end begins. True if that is all of it.
GDA_DEVICE bool take_word(token& t, uint64_t word) {
    uint32_t ones = target::count_ones(static_cast<uint32_t>(written(word)));
    t.word = word;
    t.end += ones;
    return ones == WORD_SLOTS;
}

// Takes in the slots from t.end on that are written in one piece. True if there are any. `knows`: the barrier has been
// passed behind the word in which the token was found. Before that a look at the words ahead may still answer what they
// held a lap ago, since those who cleared them held the token.
GDA_DEVICE bool take_written(const queue_view& q, token& t, bool knows) {
    uint64_t from = t.end;
    t.end += target::count_ones(static_cast<uint32_t>(written(t.word)) >> from % WORD_SLOTS);
    while (t.end != from && t.end % WORD_SLOTS == 0) {  // the word is full, t.end in the next one
        if (!knows) target::earlier_slots_before_mine(q.scope);
        knows = true;
        // Four reads under way together; no array, which a GPU would keep in memory.
        uint64_t first = target::load_shared(window_word(q, t.end));
        uint64_t second = target::load_shared(window_word(q, t.end + WORD_SLOTS));
        uint64_t third = target::load_shared(window_word(q, t.end + 2 * WORD_SLOTS));
        uint64_t fourth = target::load_shared(window_word(q, t.end + 3 * WORD_SLOTS));
        if (!take_word(t, first) || !take_word(t, second) || !take_word(t, third) || !take_word(t, fourth)) break;
    }
    clear_words(q, from, t.end);
    return t.end != from;
}

// Rings for all that is written, until the token can be parked. On entry the barrier behind the WQEs below t.end has
// been passed.
GDA_DEVICE void ring_and_park(gda_qp* qp, const queue_view& q, token t, bool more) {
    ring_or_defer(qp, q, t.end, more);
    for (;;) {
        // Without a record the register is the only source of the index: the next holder's must come later.
        if ((q.flags & GDA_QP_RECORDLESS) != 0) target::doorbell_before_ready(q.scope);
        uint64_t seen = target::exchange_if(window_word(q, t.end), t.word, parked_at(t.end) | written(t.word));
        if (seen == t.word) break;
        t.word = seen;
        if (!take_written(q, t, true)) continue;  // a bit farther on: others will come to it
        target::earlier_slots_before_mine(q.scope);
        ring_doorbell(qp, q, t.end);
    }
    target::raise(&qp->ready, t.end);
}

// Until the window reaches the last of the slots. False: an earlier thread is gone, and the queue has failed.
GDA_DEVICE bool await_window(gda_qp* qp, const queue_view& q, const claim& c) {
    uint64_t end = c.base + c.count;
    if (end <= c.ready + WINDOW_SLOTS) return true;
    uint64_t fail_at = moment_after(OTHERS_LIMIT_NS);
    while (end > target::load_shared(&qp->ready) + WINDOW_SLOTS) {
        if (target::load_shared(&qp->error) != 0) return false;
        if (target::clock_ns() >= fail_at) latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, c.base));
        target::idle();
    }
    target::earlier_slots_before_mine(q.scope);  // and the clearing of the words before the bits
    return true;
}

// Notes that the slots are written, word by word. True: the token was parked at one of them, and is the caller's.
GDA_DEVICE bool leave_written(const queue_view& q, const claim& c, token* t) {
    constexpr uint64_t FLAGS = ~static_cast<uint64_t>(0xffffffffu);
    uint64_t end = c.base + c.count, found = end, last = 0;
    for (uint64_t slot = c.base; slot != end;) {
        uint64_t here = WORD_SLOTS - slot % WORD_SLOTS;
        if (here > end - slot) here = end - slot;
        uint64_t bits = slot_bits(slot % WORD_SLOTS, here);
        uint64_t seen = target::set_bits(window_word(q, slot), bits);
        // At a later word than the first: the holder came between two of them, and has passed and cleared those before.
        if (found == end && (seen & FLAGS) == parked_at(slot)) found = slot;
        last = seen | bits;
        slot += here;
    }
    if (found == end) return false;
    t->end = end;
    t->word = end % WORD_SLOTS != 0 ? last : 0;
    clear_words(q, found, end);
    return true;
}

// No doorbell is lost: a thread that leaves has set its bits before the token came to them, and no holder parks in
// front of a bit. No unwritten slot is rung: bits are set behind a barrier, and the holder has one between bits and
// record. No record goes back: there is one token, and the barrier between record and doorbell lies before the parking.
GDA_DEVICE void publish_shared(gda_qp* qp, const queue_view& q, const claim& c, bool more) {
    bool mine = c.ready == c.base;
    token t = {c.base + c.count, same_word(c.base, c.base + c.count) ? parked_at(c.base) : 0};
    if (mine) clear_words(q, c.base, t.end);
    // Both for the own WQEs (release) and, when `ready` was read as c.base before, for earlier ones (acquire).
    target::wqe_before_doorbell_record(q.scope);
    if (!mine) {
        if (!await_window(qp, q, c) || !leave_written(q, c, &t)) return;
        take_written(q, t, false);  // of those who came before the token was found
        target::earlier_slots_before_mine(q.scope);
    }
    ring_and_park(qp, q, t, more);
}

}  // namespace gda
