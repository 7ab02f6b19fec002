// SPDX-License-Identifier: Apache-2.0
// What stands between the engine and a carrier: the MTU of the netdev, then the capture, then the faults. Made by the
// port, one before each of its carriers, all sharing one Tap. With neither fault nor capture it compares one size.
#pragma once

#include "sim/clock.h"
#include "sim/link/capture.h"
#include "sim/link/counters.h"
#include "sim/link/faults.h"
#include "sim/link/held.h"
#include "sim/link/link.h"

namespace sim {

// State of a port that all its links share.
struct Tap {
    explicit Tap(const Clock& c) : clock(c) {}
    // Whether single packets are looked at: then no link takes runs.
    bool looks() const { return faults.on() || capture.on() || !held.empty(); }
    // When there is something to do of itself; 0: never.
    uint64_t due_ns() const;

    const Clock& clock;
    uint32_t mtu_bytes = 9000;
    bool up = true;
    LinkCounters counters;
    Faults faults;
    Capture capture;
    Held held;
    uint64_t room_ns = 0;  // when a sender that was sent away may come again; 0: none was
};

class Tapped final : public Link {
   public:
    Tapped(Link& carrier, Tap& tap) : carrier_(carrier), tap_(tap) {}
    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override;
    size_t run_bytes() const override { return tap_.looks() ? 0 : carrier_.run_bytes(); }

   private:
    bool apart(const Packet& run);
    bool look(const Packet& packet);
    void pass(const Packet& packet, const Faults::Verdict& verdict, uint64_t now_ns, uint64_t due_ns);
    bool corrupt(const Packet& packet, const Faults::Verdict& verdict, uint64_t now_ns, uint64_t due_ns);

    Link& carrier_;
    Tap& tap_;
};

}  // namespace sim
