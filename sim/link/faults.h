// SPDX-License-Identifier: Apache-2.0
// What befalls each packet that a NIC sends: decided here, done by tapped.h. A function of the plan, the NIC's slot and
// the packets sent so far: every packet draws the same number of random numbers, whatever becomes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/link/fault_spec.h"

namespace sim {

class Faults {
   public:
    // The slot of the NIC: each draws its own numbers from the same seed.
    void set_stream(uint32_t slot) { stream_ = slot; }
    // From now on; the random numbers and the counts of the rules begin anew. False: nothing changed, *problem says
    // why.
    bool set(const std::string& text, std::string* problem);
    bool on() const { return on_; }
    // The ports whose link is down: bit 0 stands for port 1.
    uint32_t down() const { return plan_.down; }
    // Whether messages of a queue pair that arrive are placed in any order, and the random numbers that decide it: of
    // their own, so that what befalls packets does not depend on them.
    bool unordered() const { return plan_.unordered; }
    uint64_t draw_order();

    struct Verdict {
        bool drop = false, duplicate = false, corrupt = false;
        uint32_t behind = 0;    // later packets of its flow that pass it
        uint64_t delay_ns = 0;  // after it has left
        uint64_t draw = 0;      // which bit is corrupted
        std::string why;        // for people: what applies, as typed
    };
    // `down`: the link is, of a port on its way.
    Verdict judge(const Packet& packet, bool down);

    // When a packet of so many bytes has left on a line of the planned rate; now, without one.
    uint64_t leaves_ns(uint64_t now_ns, size_t bytes);
    // Whether so much waits for the line that the NIC must wait too; until when.
    bool crowded(uint64_t now_ns) const { return now_ns < room_ns(); }
    uint64_t room_ns() const { return free_ns_ > backlog_ns_ ? free_ns_ - backlog_ns_ : 0; }

   private:
    uint64_t random();
    void seed();

    bool on_ = false;
    uint32_t stream_ = 0;
    FaultPlan plan_;
    std::vector<uint64_t> matched_;  // per rule
    uint64_t state_[4] = {};
    uint64_t order_ = 0;
    uint64_t free_ns_ = 0, backlog_ns_ = 0;
};

}  // namespace sim
