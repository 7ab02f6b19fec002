// SPDX-License-Identifier: Apache-2.0
// Memory as weak as target.h allows. Used by target.h (the device library's third target) and explore.cc.
//
// A store reaches each observer at a time of its own, unless a barrier stands between: as if every pair of a writer and
// an observer had a store buffer that empties in any order. Written down as views. A word is the list of the values
// stored to it, in the order in which memory takes them. A view says how much of every list, and of the facts below, is
// known. A thread's `now` is what it must see; `read` is what came with the values that it has read, which it must see
// after an acquire; `told` is what goes out with its stores, which a release brings up to `now`. So a load may answer
// anything that is not older than `now`, and a store may lie in its list anywhere behind it. A read-modify-write acts
// on memory at once: behind all others of its word, but before plain stores that are still under way. Source of the
// method: Lahav et al., "Repairing Sequential Consistency in C/C++11"; Kang et al., "A Promising Semantics for
// Relaxed-Memory Concurrency" (without promises).
#pragma once

#include <stdint.h>

#include <algorithm>
#include <vector>

namespace model {

constexpr uint32_t WORDS = 24;      // shared words and completion entries
constexpr uint32_t REQUESTS = 64;   // per execution: a bit each
constexpr uint32_t STEP = 1 << 12;  // between places of a list, so that stores fit in between

struct view {
    uint32_t place[WORDS] = {};  // newest value that is known
    uint64_t written = 0;        // requests whose work request is whole
    uint64_t fetched = 0;        // requests that the NIC has read
    uint64_t delivered = 0;      // requests whose payload the NIC has written
    uint64_t records = 0;        // stores to the doorbell record, by number
    uint64_t consumers = 0;      // stores to the completion queue's record, by number
    uint64_t doorbells = 0;      // doorbells, by number

    void join(const view& other) {
        for (uint32_t i = 0; i < WORDS; ++i) place[i] = std::max(place[i], other.place[i]);
        written |= other.written;
        fetched |= other.fetched;
        delivered |= other.delivered;
        records |= other.records;
        consumers |= other.consumers;
        doorbells |= other.doorbells;
    }
};

struct value {
    uint64_t v;
    uint32_t place;
    bool at_once;  // by a read-modify-write
    view with;     // what who reads it by acquire must see
};

struct observer {
    view now, read, told, told_mmio;

    void acquire() { now.join(read); }
};

class word {
   public:
    void reset(uint64_t v) {
        list_.clear();
        list_.push_back(value{v, 0, true, view{}});
    }
    uint64_t newest() const { return list_.back().v; }
    uint32_t newest_place() const { return list_.back().place; }
    const value& at(uint32_t i) const { return list_[i]; }
    uint32_t size() const { return static_cast<uint32_t>(list_.size()); }

    // Values that a load may answer: so many, counted from the newest.
    uint32_t readable(const view& now, uint32_t which) const {
        uint32_t n = 0;
        while (n < size() && list_[size() - 1 - n].place >= now.place[which]) ++n;
        return n;
    }
    // Places that a store may take, counted from the newest; of a read-modify-write the same, with what it reads.
    uint32_t open(const view& now, uint32_t which) const {
        uint32_t n = 0;
        while (n < size() && list_[size() - 1 - n].place >= now.place[which]) {
            ++n;
            if (list_[size() - n].at_once) break;
        }
        return n;
    }
    // Behind the value that is `back` before the newest.
    value& insert(uint32_t back, uint64_t v, bool at_once, const view& with) {
        uint32_t after = size() - 1 - back;
        uint32_t low = list_[after].place;
        uint32_t place = back == 0 ? low + STEP : low + (list_[after + 1].place - low) / 2;
        list_.insert(list_.begin() + after + 1, value{v, place, at_once, with});
        return list_[after + 1];
    }

   private:
    std::vector<value> list_;
};

}  // namespace model
