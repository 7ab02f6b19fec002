// SPDX-License-Identifier: Apache-2.0
// What stands between the engine and a carrier: the MTU of the netdev, then the capture, then the faults. Made by the
// port, one before each of its carriers, all sharing one Tap. With neither fault nor capture it compares one size.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "sim/clock.h"
#include "sim/link/address.h"
#include "sim/link/capture.h"
#include "sim/link/counters.h"
#include "sim/link/faults.h"
#include "sim/link/held.h"
#include "sim/link/link.h"

namespace sim {

// A set of ports: bit 0 stands for port 1. No port (0), no bit.
inline uint32_t port_bit(uint32_t port) { return port ? 1u << (port - 1) : 0; }

// State of a NIC's ports that all its links share.
struct Tap {
    explicit Tap(const Clock& c) : clock(c) {}
    // Whether single packets are looked at: then no link takes runs.
    bool looks() const { return faults.on() || capture.on() || !held.empty(); }
    // When there is something to do of itself; 0: never.
    uint64_t due_ns() const;
    // The port that has a GID; 0: none, or the GID is all zero.
    uint32_t port_of(const uint8_t gid[16]) const;
    // The port at which a packet of others arrives: an address that no port has is at home at the first.
    uint32_t arrives_at(const Packet& packet) const { return std::max(port_of(packet.destination), 1u); }
    // Whether one of the ports in a set is on the packet's way: its sender's, or its receiver's when that is this NIC.
    bool uses(const Packet& packet, uint32_t ports) const;

    const Clock& clock;
    std::vector<std::array<uint8_t, 16>> gids;  // GID_COUNT of each port
    uint32_t mtu_bytes[MAX_PORTS] = {9000, 9000, 9000, 9000};
    uint32_t down = 0;  // ports without a cable, as a set
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
