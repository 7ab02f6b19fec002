// SPDX-License-Identifier: Apache-2.0
// See trace.h.

#include "sim/engine/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <gda/target/ticks.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/clock.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t MOST_LOG_EVENTS = 24;
// A process that is killed has read both clocks lately: first after so many ticks, then each time after twice as many,
// in the end every two milliseconds.
const uint64_t FIRST_SYNCHRONIZE_TICKS = 1u << 16, SYNCHRONIZE_TICKS = 1u << 22;

uint64_t monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return seconds(static_cast<uint64_t>(t.tv_sec)) + static_cast<uint64_t>(t.tv_nsec);
}

// The middle of two looks at one clock around one at the other, the closest of a few.
void read_both(uint64_t* time, uint64_t* ns) {
    uint64_t closest = ~uint64_t{0};
    for (int i = 0; i < 4; ++i) {
        const uint64_t before = gda::ticks(), now_ns = monotonic_ns(), after = gda::ticks();
        if (after - before >= closest) continue;
        closest = after - before;
        *time = before + closest / 2;
        *ns = now_ns;
    }
}

}  // namespace

std::string trace_directory() {
    const char* value = std::getenv("GDA_TRACE");
    return value ? value : "";
}

bool Trace::open(const std::string& directory, uint32_t slot, uint32_t log_events, uint32_t skip,
                 std::string* problem) {
    close();
    if (log_events < 4 || log_events > MOST_LOG_EVENTS) {
        *problem = "a trace has 2^4 to 2^24 events, not 2^" + std::to_string(log_events);
        return false;
    }
    const std::string path = directory + "/nic-" + std::to_string(getpid()) + "-" + std::to_string(slot) + ".ring";
    const uint64_t bytes = TRACE_RING_BYTES + (uint64_t{TRACE_EVENT_BYTES} << log_events);
    unlink(path.c_str());  // of an earlier trace, or of an earlier process with this number
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    void* memory = MAP_FAILED;
    // Room is taken now: a full disk must not become a SIGBUS in the middle of a put.
    if (fd >= 0) {
        errno = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
        if (errno == 0) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    if (memory == MAP_FAILED) *problem = "cannot trace to " + path + ": " + std::strerror(errno);
    if (fd >= 0) ::close(fd);
    if (memory == MAP_FAILED) return false;
    ring_ = static_cast<gda_trace_ring*>(memory);
    events_ = reinterpret_cast<gda_trace_event*>(static_cast<uint8_t*>(memory) + TRACE_RING_BYTES);
    mapped_bytes_ = bytes;
    mask_ = (uint64_t{1} << log_events) - 1;
    skip_ = ring_->skip = skip;
    ring_->log_events = log_events;
    ring_->pid = static_cast<uint32_t>(getpid());
    ring_->slot = slot;
    ring_->clock = TRACE_CLOCK_TICKS;
    read_both(&ring_->first_time, &ring_->first_ns);
    next_ = reading_ = 0;
    virtual_ = Clock::is_virtual() ? TRACE_VIRTUAL : 0;
    synchronize();
    __atomic_store_n(&ring_->magic, uint64_t{TRACE_MAGIC}, __ATOMIC_RELEASE);
    return true;
}

void Trace::close() {
    if (!ring_) return;
    synchronize();
    munmap(ring_, mapped_bytes_);
    ring_ = nullptr;
}

void Trace::synchronize() {
    if (!ring_) return;
    read_both(&ring_->last_time, &ring_->last_ns);
    const uint64_t so_far = ring_->last_time - ring_->first_time;
    synchronize_at_ = ring_->last_time + std::min(std::max(so_far, FIRST_SYNCHRONIZE_TICKS), SYNCHRONIZE_TICKS);
}

uint64_t Trace::read_otherwise() {
    if (!Clock::is_virtual()) {
        synchronize();
        return reading_;
    }
    virtual_ = TRACE_VIRTUAL;
    return reading_ = Clock().now_ns();
}

// The clock is read before anything is written: a processor may finish everything before a reading, which the rest
// would then wait for.
void Trace::write(What what, uint32_t qpn, uint32_t index, uint32_t bytes, uint32_t aux, uint32_t lane, uint64_t time) {
    if ((index & skip_) && index != TRACE_NO_INDEX) return;
    if (time <= NOW) time = time == LATEST && reading_ ? reading_ : read();
    what.flags = static_cast<uint16_t>(what.flags | virtual_);
    gda_trace_event& e = events_[next_++ & mask_];
    e.time = time;
    e.qpn = qpn;
    e.index = index;
    e.bytes = bytes;
    e.aux = aux;
    e.lane = lane;
    std::memcpy(&e.kind, &what, sizeof what);
    __atomic_store_n(&ring_->next, next_, __ATOMIC_RELEASE);
}

}  // namespace sim
