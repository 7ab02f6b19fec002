// SPDX-License-Identifier: Apache-2.0
// A look at many doorbell records of the program, a slice at a time: which word is no longer what it was at the last
// look? For rings that were lost, since two programs overwrote each other in one register (doorbell.cc, completion.cc).
// The addresses lie side by side, so that thousands of records cost some microseconds a round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/link/guard.h"

namespace sim {

class Sweep {
   public:
    size_t size() const { return words_.size(); }
    // Null: a word that the CPU cannot read; it counts as changed in every round.
    void add(const uint32_t* at) { words_.push_back({at, 0}); }
    // The last one takes its place.
    void remove(size_t index) {
        words_[index] = words_.back();
        words_.pop_back();
        if (left_ > words_.size()) left_ = words_.size();
    }
    // What was seen there now, when it was read by other means.
    void seen(size_t index, uint32_t word) { words_[index].seen = word; }

    // One whole round from here on; a round that is under way is made longer.
    void start() { left_ = words_.size(); }
    bool running() const { return left_ != 0; }

    // Looks at up to `budget` words and hands over the index of each that has changed. It may be called for one that
    // has not, never the other way round. Returns at how many it looked.
    template <typename Changed>
    size_t run(size_t budget, Changed changed) {
        if (budget > left_) budget = left_;
        const size_t all = budget;
        while (budget) {
            if (next_ >= words_.size()) next_ = 0;
            const size_t count = budget < words_.size() - next_ ? budget : words_.size() - next_;
            const size_t found = guarded_first_change(words_.data() + next_, count);
            const size_t looked = found < count ? found + 1 : count;
            const size_t index = next_ + found;
            next_ += looked;
            budget -= looked;
            left_ -= looked;
            if (found < count) changed(index);
        }
        return all;
    }

   private:
    std::vector<WatchedWord> words_;
    size_t next_ = 0, left_ = 0;
};

// The record of one that has none, or none to be looked at: it never changes.
inline const uint32_t NO_RECORD = 0;

// What shares a page, in the order of the sweep over their records; each knows its place.
template <typename T>
void join(std::vector<T*>& all, Sweep& records, T* one, const uint32_t* record) {
    one->place_on_page = static_cast<uint32_t>(all.size());
    all.push_back(one);
    records.add(record);
}
template <typename T>
void leave(std::vector<T*>& all, Sweep& records, const T* one) {
    all.back()->place_on_page = one->place_on_page;
    all[one->place_on_page] = all.back();
    all.pop_back();
    records.remove(one->place_on_page);
}

}  // namespace sim
