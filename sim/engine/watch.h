// SPDX-License-Identifier: Apache-2.0
// How the sleeping engine hears of a doorbell: the pages where the *program* sees its doorbells are write-protected,
// and the program's next store to one of them wakes the engine's thread through a file descriptor. The store waits
// until the thread has taken the protection away; the engine's own mappings of the pages are never protected. Called
// by thread.cc and by device.cc when pages come and go. Source: userfaultfd(2), ioctl_userfaultfd(2).
//
// Its lock is its own and is held over system calls only: a program thread that holds the device's lock may itself be
// waiting for such a store.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sim {

class Watch {
   public:
    Watch() = default;
    ~Watch() { close(); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // A page exists; a program maps it at `at`, maybe at several places; it is gone. A page of which no mapping is
    // known may be stored to unseen: then nobody may sleep.
    void expect(uint32_t page_id);
    bool map(uint32_t page_id, uint8_t* at);  // false: there is no such page
    void forget(uint32_t page_id);

    // Protects every mapping. False: some store could go unseen, and nothing is protected.
    bool protect();
    // Takes the protection away: stores that wait go on.
    void release();
    // Readable when a store waits; -1 when the system has no such service.
    int descriptor() const { return descriptor_.load(std::memory_order_relaxed); }
    // Why it does not work here, once protect() has failed for good; for people.
    std::string refusal();

    // Releases and ends it. In a forked child, which has a copy of the descriptor but not of the protection: drop().
    void close();
    void drop();
    std::mutex& lock() { return lock_; }  // held across fork

   private:
    struct Page {
        bool mapped = false;  // at least once
        std::vector<uint8_t*> at;
    };
    bool open();
    bool set(uint8_t* at, bool protect);
    void release_all();

    std::mutex lock_;
    std::unordered_map<uint32_t, Page> pages_;
    size_t unmapped_ = 0;              // pages without a known mapping
    std::atomic<int> descriptor_{-1};  // the thread looks without the lock: it may miss that there is one now
    bool tried_ = false, protected_ = false;
    std::string refusal_;
};

}  // namespace sim
