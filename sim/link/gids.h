// SPDX-License-Identifier: Apache-2.0
// The addresses of a NIC, of all its ports, as other processes see them: part of the inbox's shared header, written by
// the NIC that owns it, read by carriers that look for the NIC behind a GID.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "sim/link/address.h"

namespace sim {

// One writer, readers in other processes: words are atomic, and a reader that met a change in the middle looks again.
// Each word carries the order between the two looks at the count (no fences: ThreadSanitizer does not know them).
class SharedGids {
   public:
    void set(int index, const Gid& gid) {
        const uint32_t before = changes_.load(std::memory_order_relaxed);
        changes_.store(before + 1, std::memory_order_relaxed);  // odd: being written
        uint64_t halves[2];
        std::memcpy(halves, gid, sizeof halves);
        for (int half = 0; half < 2; ++half) words_[index][half].store(halves[half], std::memory_order_release);
        const auto behind = static_cast<uint32_t>(index) + 1;
        if (behind > used_.load(std::memory_order_relaxed)) used_.store(behind, std::memory_order_release);
        changes_.store(before + 2, std::memory_order_release);
    }
    bool has(const uint8_t gid[16]) const {
        uint64_t halves[2];
        std::memcpy(halves, gid, sizeof halves);
        if (!halves[0] && !halves[1]) return false;        // an empty entry
        for (int attempt = 0; attempt < 100; ++attempt) {  // the owner may have died while it wrote
            const uint32_t before = changes_.load(std::memory_order_acquire);
            bool found = false;
            const uint32_t used = std::min<uint32_t>(used_.load(std::memory_order_acquire), ALL_GIDS);
            for (uint32_t i = 0; i < used; ++i) {
                found = found || (words_[i][0].load(std::memory_order_acquire) == halves[0] &&
                                  words_[i][1].load(std::memory_order_acquire) == halves[1]);
            }
            if (before % 2 == 0 && changes_.load(std::memory_order_relaxed) == before) return found;
        }
        return false;
    }

   private:
    std::atomic<uint32_t> changes_{0};
    std::atomic<uint32_t> used_{0};  // entries that were ever set: a NIC of one port has few
    std::atomic<uint64_t> words_[ALL_GIDS][2] = {};
};

}  // namespace sim
