// SPDX-License-Identifier: Apache-2.0
// The carrier that plays a whole Ethernet station: raw frames in datagrams on 127.0.0.1, as QEMU's
// `-netdev dgram,local.port=REMOTE,remote.port=LOCAL` carries them. The kernel in the virtual machine sees a peer with
// a MAC and an address, which answers ARP (neighbour discovery for IPv6) and speaks RoCE. Made by the port when
// ordered.
#pragma once

#include <map>
#include <vector>

#include "sim/clock.h"
#include "sim/link/counters.h"
#include "sim/link/link.h"
#include "sim/link/socket.h"

namespace sim {

class Ethernet final : public Link {
   public:
    Ethernet(const Clock& clock, LinkCounters& counters) : clock_(clock), counters_(counters) {}
    // `ports` is LOCAL:REMOTE. False: *problem says why.
    bool open(const std::string& ports, const uint8_t mac[6], const std::vector<Address>& addresses,
              std::string* problem);

    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override;
    size_t run_bytes() const override { return 0; }
    int descriptor() const { return socket_.descriptor(); }

   private:
    typedef std::array<uint8_t, 6> Mac;
    typedef std::vector<uint8_t> Frame;
    struct Neighbour {
        bool known = false;
        Mac mac = {};
        uint64_t asked_ns = 0;
        std::vector<Frame> waiting;  // for its MAC
    };
    enum : size_t { MAX_WAITING = 64, MAX_NEIGHBOURS = 1024 };

    bool ours(const uint8_t gid[16]) const;
    Socket::Sent put(const Frame& frame);
    Frame frame_to(const Mac& to, uint32_t type, size_t bytes) const;
    void learn(const Address& address, const uint8_t mac[6]);
    void ask(const Address& address, Neighbour& neighbour);
    void take(const uint8_t* frame, size_t bytes, const Receive& receive);
    void take_arp(const uint8_t* arp, size_t bytes);
    bool take_neighbour(const uint8_t* ip, size_t bytes);
    void send_arp(uint32_t operation, const Mac& to, const Address& sender, const Address& target);
    void send_neighbour(uint32_t type, const Mac& to, const Address& source, const Address& destination,
                        const Address& target);
    const Address* own_of_family(bool ipv4) const;

    const Clock& clock_;
    LinkCounters& counters_;
    Socket socket_;
    uint16_t remote_port_ = 0;
    Mac mac_ = {};
    std::vector<Address> addresses_;
    std::map<Address, Neighbour> neighbours_;
};

}  // namespace sim
