// SPDX-License-Identifier: Apache-2.0
// What a NIC does, as trace events (cuda/gda/trace_ring.h) in a ring of its own that keeps the newest. Off it costs one
// branch where something could be noted. The ring is a file mapped into memory, so that other processes read it at any
// time, also when this one was killed. Used by the rest of engine/ with the device's lock held: one writer, no atomics
// but the store that tells of an event. Document: docs/trace.md.
#pragma once

#include <gda/target/ticks.h>
#include <gda/trace_ring.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/clock.h"

namespace sim {

class Trace {
   public:
    Trace() = default;
    ~Trace() { close(); }
    Trace(const Trace&) = delete;
    Trace& operator=(const Trace&) = delete;

    // Begins a ring of 2^log_events events in a new file of this directory, which names process and NIC. Requests with
    // a bit of `skip` in their index are left out. False: *problem says why, and nothing is traced.
    bool open(const std::string& directory, uint32_t slot, uint32_t log_events, uint32_t skip, std::string* problem);
    void close();  // the file stays
    bool on() const { return __builtin_expect(ring_ != nullptr, 0); }

    // When something was, by the ring's clock. A reading costs as much as three events, so an event has the latest one
    // of the NIC's step unless it is of something that came from outside or took long: that is NOW.
    enum : uint64_t { LATEST = 0, NOW = 1 };
    uint64_t latest() { return on() && !reading_ ? read() : reading_; }
    uint64_t now() { return on() ? read() : 0; }
    // A step, or a command: what follows is later than all readings.
    void begin() { reading_ = 0; }

    void note(gda::prm::trace_kind kind, uint32_t qpn, uint32_t index, uint64_t bytes, uint32_t aux, uint32_t lane,
              uint32_t opcode, uint32_t flags = 0, uint64_t time = LATEST) {
        const What what = {static_cast<uint8_t>(kind), static_cast<uint8_t>(opcode), static_cast<uint16_t>(flags)};
        if (on()) write(what, qpn, index, static_cast<uint32_t>(bytes), aux, lane, time);
    }
    // Both clocks, read together into the ring: where its times lie is then known as of now.
    void synchronize();

   private:
    uint64_t read() {
        virtual_ = 0;
        reading_ = gda::ticks();
        if (__builtin_expect(reading_ >= synchronize_at_ || Clock::is_virtual(), 0)) return read_otherwise();
        return reading_;
    }
    uint64_t read_otherwise();
    // The end of an event, in one register: with all arguments apart a call would take as long as what it does.
    struct What {
        uint8_t kind, opcode;
        uint16_t flags;
    };
    static_assert(sizeof(What) == sizeof(gda_trace_event) - offsetof(gda_trace_event, kind), "copied as one");
    void write(What what, uint32_t qpn, uint32_t index, uint32_t bytes, uint32_t aux, uint32_t lane, uint64_t time);

    gda_trace_ring* ring_ = nullptr;
    gda_trace_event* events_ = nullptr;
    uint64_t mask_ = 0, mapped_bytes_ = 0, next_ = 0;
    uint64_t reading_ = 0, synchronize_at_ = 0;
    uint32_t skip_ = 0, virtual_ = 0;  // a mask; TRACE_VIRTUAL under virtual time
};

// GDA_TRACE: the directory where this process leaves its trace; empty: nowhere.
std::string trace_directory();

}  // namespace sim
