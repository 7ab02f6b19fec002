// SPDX-License-Identifier: Apache-2.0
// What a NIC does, as trace events (cuda/gda/trace_ring.h) in a ring of its own that keeps the newest. Off it costs one
// branch where something could be noted. The ring is a file mapped into memory, so that other processes read it at any
// time, also when this one was killed. Used by the rest of engine/ with the device's lock held: one writer, no atomics
// but the store that tells of an event. Document: docs/trace.md.
#pragma once

#include <gda/trace_ring.h>

#include <cstdint>
#include <string>

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

    // The time now by the ring's clock, for an event that is noted later; 0 when off.
    uint64_t time() const { return on() ? read_clock() : 0; }
    void note(gda::prm::trace_kind kind, uint32_t qpn, uint32_t index, uint64_t bytes, uint32_t aux, uint32_t lane,
              uint32_t opcode, uint32_t flags = 0, uint64_t time = 0) {
        if (on()) write(kind, qpn, index, bytes, aux, lane, opcode, flags, time);
    }
    // Both clocks, read together into the ring: where its times lie is then known as of now.
    void synchronize();

   private:
    static uint64_t read_clock();
    void write(gda::prm::trace_kind kind, uint32_t qpn, uint32_t index, uint64_t bytes, uint32_t aux, uint32_t lane,
               uint32_t opcode, uint32_t flags, uint64_t time);

    gda_trace_ring* ring_ = nullptr;
    gda_trace_event* events_ = nullptr;
    uint64_t mask_ = 0, mapped_bytes_ = 0;
    uint32_t skip_ = 0;
};

// GDA_TRACE: the directory where this process leaves its trace; empty: nowhere.
std::string trace_directory();

}  // namespace sim
