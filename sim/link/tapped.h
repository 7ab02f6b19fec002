// SPDX-License-Identifier: Apache-2.0
// What stands between the engine and a carrier: the MTU of the netdev. Made by the port, one before each of its
// carriers, all sharing one Tap.
#pragma once

#include "sim/link/counters.h"
#include "sim/link/link.h"

namespace sim {

// State of a port that all its links share.
struct Tap {
    uint32_t mtu_bytes = 9000;
    LinkCounters counters;
};

class Tapped final : public Link {
   public:
    Tapped(Link& carrier, Tap& tap) : carrier_(carrier), tap_(tap) {}
    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override { return carrier_.poll(receive, budget); }
    size_t run_bytes() const override { return carrier_.run_bytes(); }

   private:
    bool apart(const Packet& run);

    Link& carrier_;
    Tap& tap_;
};

}  // namespace sim
