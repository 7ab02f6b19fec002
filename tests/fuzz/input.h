// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share: the input as a stream of records, and memory whose neighbours cannot be touched.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace fuzz {

// Bytes of the input, in order; zeros when it has ended.
class Input {
   public:
    Input(const uint8_t* data, size_t bytes) : at_(data), left_(bytes) {}
    size_t left() const { return left_; }
    template <typename T>
    T value() {
        T result{};
        const size_t n = std::min(sizeof result, left_);
        if (n) std::memcpy(&result, at_, n);
        skip(n);
        return result;
    }
    // A copy of its own, exactly as long as it is: a sanitizer sees who reads past its end.
    std::vector<uint8_t> bytes(size_t wanted) {
        const size_t n = std::min(wanted, left_);
        std::vector<uint8_t> result(at_, at_ + n);
        skip(n);
        return result;
    }

   private:
    void skip(size_t n) { at_ += n, left_ -= n; }
    const uint8_t* at_;
    size_t left_;
};

// Pages at an address of our choice, which inputs can name, between two that nobody may touch.
class Arena {
   public:
    Arena(uint64_t address, size_t size) : bytes(size) {
        void* const wanted = reinterpret_cast<void*>(address - PAGE);
        void* const all =
            mmap(wanted, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (all != wanted || mprotect(static_cast<uint8_t*>(all) + PAGE, bytes, PROT_READ | PROT_WRITE) != 0) {
            std::perror("arena");
            std::abort();
        }
        p = static_cast<uint8_t*>(all) + PAGE;
    }
    uint64_t address() const { return reinterpret_cast<uint64_t>(p); }
    void clear() { std::memset(p, 0, bytes); }
    uint8_t* p;
    const size_t bytes;

   private:
    enum : size_t { PAGE = 4096 };
};

// A property that must hold for every input.
inline void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

}  // namespace fuzz
