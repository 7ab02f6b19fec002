// SPDX-License-Identifier: Apache-2.0
// What an object of libibverbs had in the places of its functions before they were replaced, by its address. Read by
// every post and poll without a lock; an object that is gone stays until another one has its address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace sim::calls {

template <typename Functions>
class Before {
   public:
    // Null: the object was never entered.
    Functions* of(const void* object) {
        for (size_t i = first(object); places_[i % PLACES].object.load(std::memory_order_acquire); ++i)
            if (places_[i % PLACES].object.load(std::memory_order_relaxed) == object)
                return &places_[i % PLACES].functions;
        return nullptr;
    }
    // False: there is no room. Nobody else uses the object yet.
    bool enter(const void* object, const Functions& functions) {
        std::lock_guard<std::mutex> guard(mutex_);
        size_t i = first(object);
        while (places_[i % PLACES].object && places_[i % PLACES].object != object) ++i;
        Place& place = places_[i % PLACES];
        if (!place.object && ++used_ == PLACES) return --used_, false;  // one stays empty: searches end there
        place.functions = functions;
        place.object.store(object, std::memory_order_release);
        return true;
    }

   private:
    enum : size_t { PLACES = 8192 };
    struct Place {
        std::atomic<const void*> object{nullptr};
        Functions functions{};
    };
    static size_t first(const void* object) {
        return static_cast<size_t>(reinterpret_cast<uintptr_t>(object) * 0x9e3779b97f4a7c15u >> 40);
    }
    Place places_[PLACES];
    size_t used_ = 0;
    std::mutex mutex_;
};

}  // namespace sim::calls
