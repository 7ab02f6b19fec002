// SPDX-License-Identifier: Apache-2.0
// See udp.h.

#include "sim/link/udp.h"

#include <gda/formats/packet.h>

#include <cstring>

#include "sim/link/wire.h"

namespace sim {

using gda::prm::UDP_ROCE_V2;

bool Udp::open(const std::vector<Address>& addresses, std::string* problem) {
    for (const Address& address : addresses) {
        auto place = std::make_unique<Place>();
        place->address = address;
        if (!place->socket.open(address, UDP_ROCE_V2, problem)) return false;
        places_.push_back(std::move(place));
    }
    return true;
}

bool Udp::send(const Packet& packet) {
    Place* from = nullptr;
    for (const auto& place : places_) {
        if (std::memcmp(place->address.data(), packet.source, 16) == 0) from = place.get();
    }
    // RoCE v1 has no IP, and the ICRC covers the source address: from another one it would be noise.
    const bool sendable = from && !packet.version1 && is_ipv4(packet.source) == is_ipv4(packet.destination);
    if (!sendable) return counters_.count(LinkCounter::packets_to_nowhere), true;
    Packet ours = packet;
    ours.flow_port = UDP_ROCE_V2;
    datagram_.resize(datagram_bytes(ours));
    if (!encode_datagram(ours, datagram_.data())) return packet.unreadable = ours.unreadable, true;
    Address to;
    std::memcpy(to.data(), packet.destination, 16);
    switch (from->socket.send(to, UDP_ROCE_V2, datagram_.data(), datagram_.size())) {
        case Socket::Sent::no_room:
            return false;
        case Socket::Sent::too_long:
            counters_.count(LinkCounter::packets_over_link_mtu);
            break;
        case Socket::Sent::refused:
            counters_.count(LinkCounter::wire_unsent);
            break;
        case Socket::Sent::yes:
            counters_.count(LinkCounter::wire_sent);
    }
    return true;
}

int Udp::poll(const Receive& receive, int budget) {
    int taken = 0;
    for (const auto& place : places_) {
        const Socket::Take take = [&](const Address& from, uint16_t port, const uint8_t* data, size_t bytes) {
            Decoded decoded;
            decoded.packet.traffic_class = 0;
            if (!counters_.took(decode_datagram(data, bytes, from.data(), place->address.data(), port, &decoded)))
                return;
            receive(decoded.packet);
        };
        taken += place->socket.receive(take, budget);
    }
    return taken;
}

std::vector<int> Udp::descriptors() const {
    std::vector<int> all;
    for (const auto& place : places_) all.push_back(place->socket.descriptor());
    return all;
}

}  // namespace sim
