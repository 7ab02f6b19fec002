// SPDX-License-Identifier: Apache-2.0
// Three ways to know that a step of a collective has arrived. Interchangeable: a collective takes one as its first
// template parameter. Called by reduce_scatter.h and all_reduce.h; document: docs/protocols.md.
//
//   gda_simple  the data, and behind it a signal: two writes, nothing is packed, the bytes go as they are
//   gda_ll      a flag of 4 bytes behind each 4 bytes of data: one write, twice the bytes; whoever sees the flag of a
//               word has its data, since a word of 8 bytes is seen whole
//   gda_ll128   a flag of 8 bytes behind each 120 bytes: one write, 1/15 more bytes; whoever sees the flag has the line
//               if memory shows a line in the order of its addresses. Who promises that: docs/protocols.md
//
// A flag is the number of the step, so it differs from what the last users of the slot left there. The one of gda_ll
// has 32 bits and goes round; a slot's words that long have carried nothing could still show that number of the lap
// before, so the receiver writes all flags of a slot anew once in 2^30 steps. That of gda_ll128 has 64 bits.
//
// A protocol has, for all threads of a block together:
//   send<T>(link, data, at)            sends elements of this rank's window
//   receive<T, Op>(link, data, at)     ... = Op::of(what arrives, what is there)
//   send_result, receive_result        the same for what is final: no slot has to be in between
//   settle(link)                       until elements that were sent may change
//   room(bytes)                        bytes of elements that go into so large a slot; a multiple of 8
#pragma once

#include <gda/collectives/link.h>

struct gda_simple {
    static constexpr bool PACKS = false;
    static GDA_MEMBER uint64_t room(uint64_t slot_bytes) { return slot_bytes; }

    template <class T>
    static GDA_MEMBER void send(gda::link& l, const gda_window& data, const gda::span& at) {
        send_to(l, data, at.begin * sizeof(T), at.count * sizeof(T), l.staging, l.slot_there());
    }
    template <class T>
    static GDA_MEMBER void send_result(gda::link& l, const gda_window& data, const gda::span& at) {
        send_to(l, data, at.begin * sizeof(T), at.count * sizeof(T), data, at.begin * sizeof(T));
    }
    static GDA_MEMBER void send_to(gda::link& l, const gda_window& data, uint64_t offset, uint64_t bytes,
                                   const gda_window& there, uint64_t there_offset) {
        if (!l.await_slot()) return;
        gda_mr signals = gda_memory_of(l.signals, l.to);
        uint64_t signal = (l.words + gda::LINK_ARRIVED) * sizeof(uint64_t);
        l.posted(bytes == 0 ? gda::link_signal(l.queue(), signals, signal, l.sent + 1)
                            : gda::link_put_signal(l.queue(), gda_memory_of(there, l.to), there_offset, data.mine,
                                                   offset, bytes, signals, signal, l.sent + 1));
    }
    static GDA_MEMBER void settle(gda::link& l) { l.settle(); }

    template <class T, class Op>
    static GDA_MEMBER void receive(gda::link& l, const gda_window& data, const gda::span& at) {
        if (!l.await_signal()) return;
        constexpr uint64_t TURN = 16 / sizeof(T);  // elements of a thread in a row
        const T* __restrict__ arrived = reinterpret_cast<const T*>(l.arrival());
        T* __restrict__ own = reinterpret_cast<T*>(data.mine.addr) + at.begin;
        uint64_t first = gda::target::thread_of_block() * TURN, stride = gda::target::threads_of_block() * TURN;
        for (uint64_t i = first; i < at.count; i += stride) {
            if (i + TURN <= at.count) {
                for (uint64_t j = i; j < i + TURN; ++j) own[j] = Op::of(arrived[j], own[j]);
            } else {
                for (uint64_t j = i; j < at.count; ++j) own[j] = Op::of(arrived[j], own[j]);
            }
        }
        l.taken();
    }
    template <class T>
    static GDA_MEMBER void receive_result(gda::link& l, const gda_window&, const gda::span&) {
        if (l.await_signal()) l.taken();
    }
};

namespace gda {

// Lines with flags. `Line` has WORDS words of 8 bytes of data, BYTES in all, and put, get and renew.
template <class Line>
struct flagged {
    static constexpr bool PACKS = true;
    static GDA_MEMBER uint64_t room(uint64_t slot_bytes) { return slot_bytes / Line::BYTES * Line::WORDS * 8; }

    template <class T>
    static GDA_MEMBER void send(link& l, const gda_window& data, const span& at) {
        if (!l.await_slot()) return;
        constexpr uint64_t MOST = Line::WORDS * 8 / sizeof(T);  // elements of a line
        const T* own = reinterpret_cast<const T*>(data.mine.addr) + at.begin;
        uint8_t* slot = reinterpret_cast<uint8_t*>(l.staging.mine.addr + l.slot_here());
        uint64_t lines = divided_up(at.count, MOST);
        for (uint64_t n = target::thread_of_block(); n < lines; n += target::threads_of_block()) {
            uint64_t words[Line::WORDS];
            T elements[MOST] = {};
            uint64_t left = at.count - n * MOST;
            if (left >= MOST) {
                for (uint64_t i = 0; i < MOST; ++i) elements[i] = own[n * MOST + i];
            } else {
                for (uint64_t i = 0; i < left; ++i) elements[i] = own[n * MOST + i];
            }
            target::copy<sizeof words>(words, elements);
            Line::put(slot + n * Line::BYTES, l.sent + 1, words);
        }
        l.posted(lines == 0 ? 0
                            : link_put(l.queue(), gda_memory_of(l.staging, l.to), l.slot_there(), l.staging.mine,
                                       l.slot_here(), lines * Line::BYTES));
    }
    template <class T, class Op>
    static GDA_MEMBER void receive(link& l, const gda_window& data, const span& at) {
        constexpr uint64_t MOST = Line::WORDS * 8 / sizeof(T);
        T* own = reinterpret_cast<T*>(data.mine.addr) + at.begin;
        uint8_t* slot = l.arrival();
        uint64_t lines = l.status == 0 ? divided_up(at.count, MOST) : 0;
        bool late = false;
        for (uint64_t n = target::thread_of_block(); n < lines && !late; n += target::threads_of_block()) {
            uint64_t words[Line::WORDS];
            for (uint32_t turns = 1; !Line::get(slot + n * Line::BYTES, l.received + 1, words); ++turns) {
                if (l.is_late(turns)) {
                    late = true;
                    break;
                }
                target::idle();
            }
            if (late) break;
            T arrived[MOST];
            target::copy<sizeof words>(arrived, words);
            uint64_t left = at.count - n * MOST;
            if (left >= MOST) {
                for (uint64_t i = 0; i < MOST; ++i) own[n * MOST + i] = Op::of(arrived[i], own[n * MOST + i]);
            } else {
                for (uint64_t i = 0; i < left; ++i) own[n * MOST + i] = Op::of(arrived[i], own[n * MOST + i]);
            }
        }
        if (l.all_came(!late)) Line::renew(slot, l.slot_bytes, l.received + 1);
        l.taken();
    }
    template <class T>
    static GDA_MEMBER void send_result(link& l, const gda_window& data, const span& at) {
        send<T>(l, data, at);
    }
    template <class T>
    static GDA_MEMBER void receive_result(link& l, const gda_window& data, const span& at) {
        receive<T, take>(l, data, at);
    }
    static GDA_MEMBER void settle(link&) {}  // what was sent is a copy
};

struct ll_line {
    static constexpr uint64_t WORDS = 1, BYTES = 16, RENEWED_EVERY = uint64_t(1) << 30;

    static GDA_MEMBER uint64_t joined(uint64_t data, uint64_t step) { return step << 32 | (data & 0xffffffffu); }
    static GDA_MEMBER void put(uint8_t* at, uint64_t step, const uint64_t* words) {
        uint64_t* line = reinterpret_cast<uint64_t*>(at);
        line[0] = joined(words[0], step);
        line[1] = joined(words[0] >> 32, step);
    }
    static GDA_MEMBER bool get(const uint8_t* at, uint64_t step, uint64_t* words) {
        const uint64_t* line = reinterpret_cast<const uint64_t*>(at);
        uint64_t low = target::load_flagged(line), high = target::load_flagged(line + 1);
        words[0] = (low & 0xffffffffu) | high << 32;
        return low >> 32 == (step & 0xffffffffu) && high >> 32 == (step & 0xffffffffu);
    }
    // Before the sender hears that the slot is free, so nobody else writes it.
    static GDA_MEMBER void renew(uint8_t* slot, uint64_t bytes, uint64_t step) {
        if (__builtin_expect(step % RENEWED_EVERY >= LINK_SLOTS, 1)) return;
        for (uint64_t i = target::thread_of_block(); i < bytes / 8; i += target::threads_of_block()) {
            reinterpret_cast<uint64_t*>(slot)[i] = joined(0, step);
        }
    }
};

struct ll128_line {
    static constexpr uint64_t WORDS = 15, BYTES = 128;

    static GDA_MEMBER void put(uint8_t* at, uint64_t step, const uint64_t* words) {
        uint64_t* line = reinterpret_cast<uint64_t*>(at);
        for (uint64_t i = 0; i < WORDS; ++i) line[i] = words[i];
        line[WORDS] = step;
    }
    static GDA_MEMBER bool get(const uint8_t* at, uint64_t step, uint64_t* words) {
        const uint64_t* line = reinterpret_cast<const uint64_t*>(at);
        if (target::load_signal(line + WORDS) != step) return false;
        for (uint64_t i = 0; i < WORDS; ++i) words[i] = target::load_flagged(line + i);
        return true;
    }
    static GDA_MEMBER void renew(uint8_t*, uint64_t, uint64_t) {}
};

}  // namespace gda

struct gda_ll : gda::flagged<gda::ll_line> {};
struct gda_ll128 : gda::flagged<gda::ll128_line> {};
