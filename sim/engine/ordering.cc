// SPDX-License-Identifier: Apache-2.0
// See ordering.h.

#include "sim/engine/ordering.h"

#include <algorithm>
#include <cinttypes>
#include <set>

#include "sim/engine/packet.h"

namespace sim {

namespace {

const uint64_t SIGNAL_BYTES = 8;    // as long a write as people signal with
const uint32_t ONE_IN = 8;          // late writes becomes visible in a step
const uint32_t ONE_IN_ARRIVES = 2;  // of those on their way, when all of its message before it has
const size_t MOST_OFFSETS = 4;      // named in a sentence

typedef std::deque<LateWrite> Late;
typedef std::pair<const Qp*, uint32_t> MessageId;
MessageId message_of(const LateWrite& write) { return {write.qp, write.message}; }

uint32_t random(DeviceState& s) {  // xorshift: the same everywhere for the same seed
    uint64_t& x = s.ordering.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return static_cast<uint32_t>(x >> 32);
}

void show(DeviceState& s, const LateWrite& write) {
    const Span from = plain_span(write.bytes.data(), write.bytes.size());
    if (copy(s, write.to, 0, from, write.qp->name) == Copied::yes) return;
    s.report.say(Kind::memory_gone,
                 text("%s: a write to 0x%" PRIx64 " (MR key 0x%x) was late, and its memory is gone: it was "
                      "acknowledged all the same; keep memory mapped until its key is destroyed",
                      write.qp->name, write.message_address + write.offset, write.key),
                 {{"qp", write.qp->number}, {"address", write.message_address + write.offset}, {"key", write.key}});
}

// Whether `late` came before a signal of this queue pair and may be missed by who sees it. Between queue pairs a
// transport promises nothing.
bool missed(const LateWrite& late, const Qp* qp) { return !late.on_its_way || late.qp == qp; }

// A signal ("a write of 8 bytes to ...") is visible before those of the first `earlier` late writes that it should
// follow.
void say_that_it_passed(DeviceState& s, const Qp* qp, const std::string& signal, size_t earlier) {
    const Late& late = s.ordering.late;
    const LateWrite* first = nullptr;
    size_t packets = 0, others = 0;
    bool transport = false;
    std::string offsets;
    for (size_t i = 0; i < earlier; ++i) {
        if (!missed(late[i], qp)) continue;
        if (!first) first = &late[i];
        transport = transport || late[i].on_its_way;
        if (message_of(late[i]) != message_of(*first)) {
            ++others;
        } else if (++packets <= MOST_OFFSETS) {
            offsets += text("%s%" PRIu64, packets > 1 ? ", " : "", late[i].offset);
        }
    }
    if (!first) return;
    if (packets > MOST_OFFSETS) offsets += ", ...";
    s.report.count(Counter::writes_passed);
    std::string sentence = text("%s: signal at %" PRIu64 " ns (", qp->name, s.now_ns) + signal +
                           text("): %zu of %u packets (offset%s ", packets,
                                packets_for(first->qp, first->message_bytes), packets > 1 ? "s" : "") +
                           offsets +
                           text(") not visible of an earlier write of %" PRIu64 " bytes to 0x%" PRIx64
                                " (MR key 0x%x), the first of them here since %" PRIu64 " ns",
                                first->message_bytes, first->message_address, first->key, first->arrived_ns);
    if (others) sentence += text(", and %zu of later writes", others);
    s.report.say(Kind::signal_passed_data,
                 sentence + ": who takes it for a signal reads old data; " +
                     (transport ? "this transport keeps no order between messages: signal after the data's completion, "
                                  "and a read as a flush where the data's key has relaxed ordering"
                                : "signal through a key with strict ordering"),
                 {{"qp", qp->number}, {"missing", packets}, {"bytes", first->message_bytes}, {"key", first->key}});
}

// The write at this place of the list becomes visible.
void show_at(DeviceState& s, size_t i) {
    const LateWrite& write = s.ordering.late[i];
    if (write.message_bytes <= SIGNAL_BYTES) {
        say_that_it_passed(s, write.qp,
                           text("write of %" PRIu64 " bytes to 0x%" PRIx64 ", MR key 0x%x, %s", write.message_bytes,
                                write.message_address, write.key, write.to.relaxed ? "relaxed" : "strict"),
                           i);
    }
    show(s, write);
    s.ordering.late.erase(s.ordering.late.begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace

void show_all(DeviceState& s) {
    for (size_t i = 0; i < s.ordering.late.size();) {
        if (s.ordering.late[i].on_its_way) {
            ++i;
        } else {
            show_at(s, i);
        }
    }
}

void place_all(DeviceState& s) {
    s.copier.settle();
    for (const LateWrite& write : s.ordering.late) show(s, write);
    s.ordering.late.clear();
}

void make_some_visible(DeviceState& s) {
    Late& late = s.ordering.late;
    if (late.empty()) return;
    ++s.done;  // there is more to come
    Faults& faults = s.port->faults();
    std::set<MessageId> behind;  // messages of which an earlier packet is still on its way
    for (size_t i = 0; i < late.size();) {
        LateWrite& write = late[i];
        if (write.on_its_way) {
            const bool waits =
                faults.unordered() && (behind.count(message_of(write)) || faults.draw_order() % ONE_IN_ARRIVES);
            if (waits) behind.insert(message_of(write));
            if (waits || (s.ordering.on && write.to.relaxed)) {
                write.on_its_way = waits;
                ++i;
                continue;
            }
        } else if (random(s) % ONE_IN) {
            ++i;
            continue;
        }
        if (!write.to.relaxed) {  // what memory does not show yet becomes visible before a strict write
            const auto to_be_shown = [](const LateWrite& w) { return !w.on_its_way; };
            write.on_its_way = true;
            i -= static_cast<size_t>(
                std::count_if(late.begin(), late.begin() + static_cast<std::ptrdiff_t>(i), to_be_shown));
            make_all_visible(s);
        }
        show_at(s, i);
    }
}

Copied write_in_order(DeviceState& s, Qp* qp, const Span& destination, uint64_t offset, const Span& source) {
    const bool unordered = s.port->faults().unordered();
    if (!s.ordering.on && !unordered) {
        // Nobody is told when a write over an unreliable transport is there: its source would be used again before.
        if (!qp->reliable()) return copy(s, destination, offset, source, qp->name);
        const auto order = destination.relaxed ? gpu::Copier::Order::beside : gpu::Copier::Order::behind;
        return copy_later(s, destination, offset, source, order, &qp->placed, qp->name);
    }
    if (!s.copier.is_done(qp->placed)) return Copied::later;
    const uint64_t before = qp->write_bytes - qp->write_rest;  // of the message, in earlier packets
    uint64_t at = 0;
    Copied result = Copied::yes;
    const bool whole = each_part(s, destination, offset, source.bytes, [&](const Span& part) {
        if (!unordered && !part.relaxed) {
            make_all_visible(s);
            result = copy(s, part, 0, plain_span(source.address + at, part.bytes, source.gpu), qp->name);
            at += part.bytes;
            return result == Copied::yes;
        }
        for (uint64_t done = 0; done < part.bytes && result == Copied::yes; done += qp->mtu) {
            const uint64_t bytes = std::min<uint64_t>(qp->mtu, part.bytes - done);
            LateWrite write;
            write.to = plain_span(part.address + done, bytes, part.gpu, part.relaxed);
            write.bytes.resize(bytes);
            write.qp = qp;
            write.on_its_way = unordered;
            write.psn = qp->expected_psn;
            write.key = qp->write_key;
            write.message = qp->msn;
            write.message_address = qp->write_address - before;
            write.message_bytes = qp->write_bytes;
            write.offset = before + offset + at;
            write.arrived_ns = s.now_ns;
            const Span from = plain_span(source.address + at, bytes, source.gpu);
            result = copy(s, plain_span(write.bytes.data(), bytes), 0, from, qp->name);
            if (result != Copied::yes) result = Copied::no_source;
            at += bytes;
            s.ordering.late.push_back(std::move(write));
        }
        return result == Copied::yes;
    });
    return whole || result != Copied::yes ? result : Copied::no_destination;
}

void order_atomic(DeviceState& s, const Qp* qp, const Span& target, uint32_t key, uint64_t address) {
    const Late& late = s.ordering.late;
    if (late.empty()) return;
    // A word that memory does not show must be seen by the atomic; a card's atomic unit sees its own writes.
    const bool own = std::any_of(late.begin(), late.end(), [&](const LateWrite& write) {
        return !write.on_its_way && target.address < write.to.address + write.to.bytes &&
               write.to.address < target.address + target.bytes;
    });
    if (!target.relaxed || target.scattered || own) make_all_visible(s);
    say_that_it_passed(
        s, qp, text("atomic on 0x%" PRIx64 ", MR key 0x%x, %s", address, key, target.relaxed ? "relaxed" : "strict"),
        late.size());
}

void order_completion(DeviceState& s, const Qp* qp) {
    Late& late = s.ordering.late;
    for (LateWrite& write : late) {
        if (message_of(write) == MessageId(qp, qp->msn)) write.on_its_way = false;
    }
    make_all_visible(s);  // the entry is a strict write
    say_that_it_passed(s, qp, "completion of a receive", late.size());
}

bool on_its_way(const DeviceState& s, const Qp* qp, uint32_t psn) {
    const Late& late = s.ordering.late;
    return std::any_of(late.begin(), late.end(), [&](const LateWrite& write) {
        return write.on_its_way && write.qp == qp && psn_difference(write.psn, psn) <= 0;
    });
}

}  // namespace sim
