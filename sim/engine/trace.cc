// SPDX-License-Identifier: Apache-2.0
// See trace.h.

#include "sim/engine/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <gda/target/ticks.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "sim/clock.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t MOST_LOG_EVENTS = 24;
const uint64_t SYNCHRONIZE_EVERY = 256;       // events; and after so many ticks, about two milliseconds:
const uint64_t SYNCHRONIZE_TICKS = 1u << 22;  // a process that is killed has read both clocks lately

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
    if (ring_) read_both(&ring_->last_time, &ring_->last_ns);
}

uint64_t Trace::read_clock() { return Clock::is_virtual() ? Clock().now_ns() : gda::ticks(); }

void Trace::write(trace_kind kind, uint32_t qpn, uint32_t index, uint64_t bytes, uint32_t aux, uint32_t lane,
                  uint32_t opcode, uint32_t flags, uint64_t time) {
    if ((index & skip_) && index != TRACE_NO_INDEX) return;
    const uint64_t next = ring_->next;
    gda_trace_event& e = events_[next & mask_];
    e.time = time ? time : read_clock();
    e.qpn = qpn;
    e.index = index;
    e.bytes = static_cast<uint32_t>(bytes);
    e.aux = aux;
    e.lane = lane;
    e.kind = static_cast<uint8_t>(kind);
    e.opcode = static_cast<uint8_t>(opcode);
    e.flags = static_cast<uint16_t>(flags | (Clock::is_virtual() ? TRACE_VIRTUAL : 0));
    __atomic_store_n(&ring_->next, next + 1, __ATOMIC_RELEASE);
    const bool late = !(e.flags & TRACE_VIRTUAL) && e.time - ring_->last_time > SYNCHRONIZE_TICKS;
    if (next % SYNCHRONIZE_EVERY == 0 || late) synchronize();
}

}  // namespace sim
