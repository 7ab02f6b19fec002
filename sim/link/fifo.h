// SPDX-License-Identifier: Apache-2.0
// A queue of small records: what a queue pair has sent and has to answer, and answers on the way to it. It takes no
// memory before its first use, and none that grew large once it is empty: thousands of queue pairs are idle. For
// loopback.h and engine/state.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace sim {

template <typename T>
class Fifo {
    static_assert(std::is_trivially_copyable<T>::value, "they are moved by assignment and never destroyed one by one");

   public:
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    T& operator[](size_t index) { return room_[(first_ + index) & (capacity_ - 1)]; }
    const T& operator[](size_t index) const { return room_[(first_ + index) & (capacity_ - 1)]; }
    T& front() { return (*this)[0]; }
    const T& front() const { return (*this)[0]; }
    T& back() { return (*this)[size_ - 1]; }
    const T& back() const { return (*this)[size_ - 1]; }

    // References to others end with it. The second is for one that is filled in at its place: a copy of what was just
    // written field by field waits for the fields.
    void push_back(const T& value) {
        if (size_ == capacity_) grow();
        (*this)[size_++] = value;
    }
    T& add() {
        if (size_ == capacity_) grow();
        return *new (&(*this)[size_++]) T();
    }
    void pop_front() {
        first_ = (first_ + 1) & (capacity_ - 1);
        if (--size_ == 0) clear();
    }
    void clear() {
        first_ = size_ = 0;
        if (capacity_ <= KEPT) return;
        room_.reset();
        capacity_ = 0;
    }

   private:
    enum : uint32_t { FIRST = 4, KEPT = 64 };  // records

    void grow() {
        const uint32_t capacity = capacity_ ? 2 * capacity_ : FIRST;
        auto room = std::make_unique<T[]>(capacity);
        for (uint32_t i = 0; i < size_; ++i) room[i] = (*this)[i];
        room_ = std::move(room);
        capacity_ = capacity;
        first_ = 0;
    }

    std::unique_ptr<T[]> room_;
    uint32_t capacity_ = 0;  // 0 or a power of two
    uint32_t first_ = 0, size_ = 0;
};

}  // namespace sim
