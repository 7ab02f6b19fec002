// SPDX-License-Identifier: Apache-2.0
// The carrier between hosts: RoCE v2 in datagrams of an ordinary UDP socket on port 4791 of addresses that this host
// has. The kernel writes the IP and UDP headers; what the ICRC covers of them is known beforehand. Made by the port
// when addresses are configured.
//
// Only: every connection has source port 4791, since a socket has one; and a peer whose datagrams have another IPv4 ID
// than 0 cannot be heard, since a socket does not show the ID that the ICRC covers (ethernet.h shows it).
#pragma once

#include <memory>
#include <vector>

#include "sim/link/counters.h"
#include "sim/link/link.h"
#include "sim/link/socket.h"

namespace sim {

class Udp final : public Link {
   public:
    explicit Udp(LinkCounters& counters) : counters_(counters) {}
    // Takes the port on each address. False: *problem says why; those before it stay taken.
    bool open(const std::vector<Address>& addresses, std::string* problem);

    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override;
    size_t run_bytes() const override { return 0; }
    std::vector<int> descriptors() const;

   private:
    struct Place {
        Address address;
        Socket socket;
    };
    LinkCounters& counters_;
    std::vector<std::unique_ptr<Place>> places_;
    std::vector<uint8_t> datagram_;
};

}  // namespace sim
