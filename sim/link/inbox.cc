// SPDX-License-Identifier: Apache-2.0
// See inbox.h.

#include "sim/link/inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "sim/link/guard.h"

namespace sim {

namespace {
const uint64_t MAGIC = 0x6764612d696e6237;  // "gda-inb7": changes with the layout
const uint64_t LOOKS_AGAIN_NS = 30000;      // a program that polls looks again within this time

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

// What lies in the ring: this, then the payload, padded to 64 bytes. One that would cross the end is preceded by a
// record of `bytes` = the rest and no packet.
struct Inbox::Record {
    uint32_t bytes;  // of the whole record
    uint32_t filler;
    uint32_t payload_bytes;
    uint32_t header_bytes;
    uint8_t source[16], destination[16];
    uint8_t header[sizeof Packet::header];
    uint32_t run_mtu;
    uint16_t flow_port;
    uint8_t traffic_class, hop_limit;
    uint8_t version1;
    uint8_t pad[55];
};

int Inbox::format(int fd) {
    const size_t bytes = HEADER_BYTES + RING_BYTES;
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return errno;
    void* p = mmap(nullptr, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return errno;
    // A file system without room answers the first touch with SIGBUS: touch the header by allocating it.
    int error = posix_fallocate(fd, 0, HEADER_BYTES);
    if (error) {
        munmap(p, HEADER_BYTES);
        return error;
    }
    Inbox* inbox = new (p) Inbox;
    static_assert(sizeof(Inbox) <= HEADER_BYTES && sizeof(Record) == 192, "layout of the shared file");
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&inbox->lock_, &attributes);
    pthread_mutexattr_destroy(&attributes);
    inbox->tail_.store(0);
    inbox->head_.store(0);
    inbox->closed_.store(0);
    inbox->asleep_.store(0);
    inbox->looked_ns_.store(0);
    __atomic_store_n(&inbox->magic_, MAGIC, __ATOMIC_RELEASE);
    munmap(p, HEADER_BYTES);
    return 0;
}

Inbox* Inbox::map(int fd, bool of_any_user) {
    const size_t bytes = HEADER_BYTES + RING_BYTES;
    struct stat s;
    if (fstat(fd, &s) != 0 || static_cast<size_t>(s.st_size) != bytes) return nullptr;
    if (!of_any_user && s.st_uid != geteuid()) return nullptr;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) return nullptr;
    Inbox* inbox = static_cast<Inbox*>(p);
    if (__atomic_load_n(&inbox->magic_, __ATOMIC_ACQUIRE) == MAGIC) return inbox;
    munmap(p, bytes);
    return nullptr;
}

void Inbox::unmap(Inbox* inbox) { munmap(inbox, HEADER_BYTES + RING_BYTES); }

bool Inbox::put(const Packet& packet) {
    int locked = pthread_mutex_trylock(&lock_);
    if (locked == EOWNERDEAD) {
        pthread_mutex_consistent(&lock_);  // what its owner had announced is whole, the rest is not announced
    } else if (locked != 0) {
        return false;
    }
    const size_t need = aligned(sizeof(Record) + packet.payload_bytes);
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    const size_t rest = RING_BYTES - tail % RING_BYTES;
    const size_t whole = need <= rest ? need : rest + need;
    bool sent = false;
    if (tail + whole - head_.load(std::memory_order_acquire) <= RING_BYTES) {
        bool readable = true, room = true;
        uintptr_t fault = 0;
        if (need > rest) {
            Record filler = {};
            filler.bytes = static_cast<uint32_t>(rest);
            filler.filler = 1;
            // 64-byte steps leave at least 64 bytes: the fields that are read lie in the first 16.
            room = guarded_copy(ring() + tail % RING_BYTES, &filler, 16);
            tail += rest;
        }
        uint8_t* to = ring() + tail % RING_BYTES;
        Record record = {};
        record.bytes = static_cast<uint32_t>(need);
        record.payload_bytes = static_cast<uint32_t>(packet.payload_bytes);
        record.header_bytes = packet.header_bytes;
        std::memcpy(record.source, packet.source, 16);
        std::memcpy(record.destination, packet.destination, 16);
        std::memcpy(record.header, packet.header, sizeof record.header);
        record.run_mtu = packet.run_mtu;
        record.flow_port = packet.flow_port;
        record.traffic_class = packet.traffic_class;
        record.hop_limit = packet.hop_limit;
        record.version1 = packet.version1;
        room = room && guarded_copy(to, &record, sizeof record);
        to += sizeof record;
        for (size_t i = 0; room && readable && i < packet.payload_count; ++i) {
            readable = guarded_copy(to, packet.payload[i].iov_base, packet.payload[i].iov_len, &fault);
            // A file system without memory answers the first touch of a page with SIGBUS: no room, not a bad payload.
            if (!readable && fault - reinterpret_cast<uintptr_t>(ring()) < RING_BYTES) room = false;
            to += packet.payload[i].iov_len;
        }
        packet.unreadable = room && !readable;
        if (room && readable) tail_.store(tail + need, std::memory_order_seq_cst);
        sent = room;
    }
    pthread_mutex_unlock(&lock_);
    return sent;
}

bool Inbox::must_wake() {
    // Of a reader that says it sleeps and then looks for packets, and a sender that announces one and then looks
    // whether the reader sleeps, one sees the other: all four are in one order (seq_cst).
    const uint32_t how = asleep_.load(std::memory_order_seq_cst);
    if (how == static_cast<uint32_t>(Asleep::no)) return false;
    const uint64_t last_ns = looked_ns_.load(std::memory_order_relaxed);
    if (how == static_cast<uint32_t>(Asleep::lightly) && now_ns() - last_ns < LOOKS_AGAIN_NS) return false;
    return asleep_.exchange(static_cast<uint32_t>(Asleep::no)) != static_cast<uint32_t>(Asleep::no);
}

int Inbox::take(const Link::Receive& receive, int budget) {
    int taken = 0;
    uint64_t head = head_.load(std::memory_order_relaxed);
    while (taken < budget && head != tail_.load(std::memory_order_seq_cst)) {
        const Record* record = reinterpret_cast<const Record*>(ring() + head % RING_BYTES);
        const size_t bytes = record->bytes;
        const size_t rest = RING_BYTES - head % RING_BYTES;
        const bool sane = bytes >= 16 && bytes <= rest &&
                          (record->filler || aligned(sizeof(Record) + size_t{record->payload_bytes}) == bytes);
        if (!sane) {  // another process wrote nonsense: lose what is there rather than read beyond it
            head = tail_.load(std::memory_order_acquire);
            head_.store(head, std::memory_order_release);
            break;
        }
        if (!record->filler) {
            Packet packet;
            std::memcpy(packet.source, record->source, 16);
            std::memcpy(packet.destination, record->destination, 16);
            std::memcpy(packet.header, record->header, sizeof packet.header);
            packet.header_bytes = record->header_bytes;
            packet.run_mtu = record->run_mtu;
            packet.flow_port = record->flow_port;
            packet.traffic_class = record->traffic_class;
            packet.hop_limit = record->hop_limit;
            packet.version1 = record->version1 != 0;
            iovec payload = {const_cast<Record*>(record) + 1, record->payload_bytes};
            packet.payload = &payload;
            packet.payload_count = 1;
            packet.payload_bytes = record->payload_bytes;
            receive(packet);
            ++taken;
        }
        head += bytes;
        head_.store(head, std::memory_order_release);
    }
    return taken;
}

}  // namespace sim
