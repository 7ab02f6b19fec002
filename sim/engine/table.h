// SPDX-License-Identifier: Apache-2.0
// Numbered objects of the NIC: umems, keys, queues. Found by index in two loads; of most kinds there are at most
// 65,536. It grows by blocks of 2 KiB: a large allocation would be mapped into a gap of the address space that the
// program just left, where a stale key of the program still points.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace sim {

template <typename T, uint32_t MOST = 65536>
class Table {
   public:
    enum : uint32_t { LIMIT = MOST };

    T* find(uint32_t index) const {
        if (index >= LIMIT || !blocks_[index / BLOCK]) return nullptr;
        return (*blocks_[index / BLOCK])[index % BLOCK].get();
    }

    // The next free index at or after `first`, going round, so that a number that was freed stays unused for long.
    // LIMIT when all are taken.
    uint32_t free_index(uint32_t first) {
        for (uint32_t tried = 0; tried < LIMIT; ++tried) {
            if (next_ < first || next_ >= LIMIT) next_ = first;
            const uint32_t index = next_++;
            if (!find(index)) return index;
        }
        return LIMIT;
    }

    T* put(uint32_t index, std::unique_ptr<T> object) {
        std::unique_ptr<Block>& block = blocks_[index / BLOCK];
        if (!block) block = std::make_unique<Block>();
        ++size_;
        return ((*block)[index % BLOCK] = std::move(object)).get();
    }

    void erase(uint32_t index) {
        (*blocks_[index / BLOCK])[index % BLOCK].reset();
        --size_;
    }

    template <typename Visit>
    void each(Visit visit) const {
        for (const auto& block : blocks_) {
            if (!block) continue;
            for (const auto& object : *block) {
                if (object) visit(*object);
            }
        }
    }

    size_t size() const { return size_; }

    // For those who read it from outside (engine/live.h): pointers to blocks of so many pointers.
    const void* blocks() const { return blocks_.data(); }
    enum : uint32_t { PER_BLOCK = 256 };

   private:
    enum : uint32_t { BLOCK = PER_BLOCK };
    typedef std::array<std::unique_ptr<T>, BLOCK> Block;

    std::array<std::unique_ptr<Block>, LIMIT / BLOCK> blocks_;
    uint32_t next_ = 0;
    size_t size_ = 0;
};

}  // namespace sim
