// SPDX-License-Identifier: Apache-2.0
// The inbox of a NIC: a ring of packets in a shared file. Many senders in other processes, one reader. Senders take a
// robust lock, so that one killed inside leaves the ring whole (its half-written packet was not yet announced). The
// file is sparse: memory is used as far as packets ever filled the ring.
#pragma once

#include <pthread.h>

#include <atomic>

#include "sim/link/gids.h"
#include "sim/link/link.h"

namespace sim {

class Inbox {
   public:
    enum : size_t { PACKET_PAYLOAD_BYTES = 64 * 1024, RING_BYTES = 8 * 1024 * 1024 };

    static int format(int fd);  // lays an empty inbox out in an empty file; 0 or errno
    // Null when the file is not a whole inbox of this version, or not this user's and that matters.
    static Inbox* map(int fd, bool of_any_user = false);
    static void unmap(Inbox* inbox);

    // Appends a copy. False: full, or another sender is in it. Sets packet.unreadable (and appends nothing) when the
    // payload's pages are gone.
    bool put(const Packet& packet);
    // The reader's side: hands over up to `budget` packets in place.
    int take(const Link::Receive& receive, int budget);
    bool empty() const { return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_acquire); }

    // No reader any more: senders drop their mapping and look the slot up again.
    void close() { closed_.store(1, std::memory_order_release); }
    bool closed() const { return closed_.load(std::memory_order_acquire) != 0; }

    // Whether the reader sleeps, and how a sender shall wake it (wake.h): not at all, unless a thread of the reader's
    // program has looked into the inbox just now (a nap between its polls), or in any case.
    enum class Asleep : uint32_t { no, lightly, deeply };
    void set_asleep(Asleep how) { asleep_.store(static_cast<uint32_t>(how), std::memory_order_seq_cst); }
    void looked(uint64_t now_ns) { looked_ns_.store(now_ns, std::memory_order_relaxed); }
    // The sender's side, after put(): true for one of them, who shall wake the reader.
    bool must_wake();
    // The addresses of the NIC whose inbox it is.
    SharedGids& gids() { return gids_; }

   private:
    Inbox() = default;
    struct Record;
    uint8_t* ring() { return reinterpret_cast<uint8_t*>(this) + HEADER_BYTES; }
    enum : size_t { HEADER_BYTES = 4096 };

    uint64_t magic_;
    std::atomic<uint32_t> closed_;
    SharedGids gids_;
    pthread_mutex_t lock_;  // among senders
    alignas(64) std::atomic<uint32_t> asleep_;
    std::atomic<uint64_t> looked_ns_;         // by the system's monotonic clock
    alignas(64) std::atomic<uint64_t> tail_;  // bytes ever appended; written by senders
    alignas(64) std::atomic<uint64_t> head_;  // bytes ever taken; written by the reader
};

}  // namespace sim
