// SPDX-License-Identifier: Apache-2.0
// See ordering.h.

#include "sim/engine/ordering.h"

#include <algorithm>
#include <cinttypes>

namespace sim {

namespace {

const uint64_t SIGNAL_BYTES = 8;  // as long a write as people signal with
const uint32_t ONE_IN = 8;        // late writes become visible in a step

uint32_t random(DeviceState& s) {  // xorshift: the same everywhere for the same seed
    uint64_t& x = s.ordering.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return static_cast<uint32_t>(x >> 32);
}

bool show(DeviceState& s, LateWrite& write) {
    const Span from = {write.bytes.data(), write.bytes.size(), nullptr, nullptr, false};
    return copy(s, write.to, 0, from, write.whose.c_str()) == Copied::yes;
}

// Something of a signal's size passes `earlier` writes that are not visible yet.
void say_that_it_passed(DeviceState& s, const char* whose, const char* what, const uint8_t* address, size_t earlier) {
    if (!earlier) return;
    const LateWrite& first = s.ordering.late.front();
    s.report.count(Counter::writes_passed);
    s.report.say(
        text("%s: %s of a key with relaxed ordering at %p became visible before %zu writes that came earlier "
             "(the first of them at %p): who takes it for a signal reads old data; signal through a key with "
             "strict ordering",
             whose, what, static_cast<const void*>(address), earlier, static_cast<const void*>(first.to.address)));
}

}  // namespace

void make_all_visible(DeviceState& s) {
    for (LateWrite& write : s.ordering.late) show(s, write);
    s.ordering.late.clear();
}

void make_some_visible(DeviceState& s) {
    std::deque<LateWrite>& late = s.ordering.late;
    if (late.empty()) return;
    ++s.done;  // there is more to come
    for (size_t i = 0; i < late.size();) {
        if (random(s) % ONE_IN) {
            ++i;
            continue;
        }
        LateWrite write = std::move(late[i]);
        if (write.to.bytes <= SIGNAL_BYTES) {
            say_that_it_passed(s, write.whose.c_str(), "a write", write.to.address, i);
        }
        late.erase(late.begin() + static_cast<std::ptrdiff_t>(i));
        show(s, write);
    }
}

Copied write_in_order(DeviceState& s, const Span& destination, uint64_t offset, const Span& source,
                      uint64_t piece_bytes, const char* whose) {
    if (!s.ordering.on) return copy(s, destination, offset, source, whose);
    uint64_t at = 0;
    Copied result = Copied::yes;
    const bool whole = each_part(s, destination, offset, source.bytes, [&](const Span& part) {
        if (!part.relaxed) {
            make_all_visible(s);
            result = copy(s, part, 0, {source.address + at, part.bytes, source.gpu, nullptr, false}, whose);
            at += part.bytes;
            return result == Copied::yes;
        }
        for (uint64_t done = 0; done < part.bytes && result == Copied::yes; done += piece_bytes) {
            const uint64_t bytes = std::min(piece_bytes, part.bytes - done);
            LateWrite write;
            write.to = {part.address + done, bytes, part.gpu, nullptr, true};
            write.bytes.resize(bytes);
            write.whose = whose;
            const Span from = {source.address + at, bytes, source.gpu, nullptr, false};
            result = copy(s, {write.bytes.data(), bytes, nullptr, nullptr, false}, 0, from, whose);
            if (result != Copied::yes) result = Copied::no_source;
            at += bytes;
            s.ordering.late.push_back(std::move(write));
        }
        return result == Copied::yes;
    });
    return whole || result != Copied::yes ? result : Copied::no_destination;
}

void order_atomic(DeviceState& s, const Span& target, const char* whose) {
    if (!s.ordering.on) return;
    // A word that is late itself must be seen by the atomic; a card's atomic unit sees its own writes.
    const bool own = std::any_of(s.ordering.late.begin(), s.ordering.late.end(), [&](const LateWrite& write) {
        return target.address < write.to.address + write.to.bytes && write.to.address < target.address + target.bytes;
    });
    if (!target.relaxed || target.scattered || own) return make_all_visible(s);
    say_that_it_passed(s, whose, "an atomic", target.address, s.ordering.late.size());
}

}  // namespace sim
