// SPDX-License-Identifier: Apache-2.0
// The cable. A link carries packets between NICs: real transport headers (formats/packet.h) and payload. Carriers:
// loopback (this NIC to itself) and shm (NICs of other processes of this host). Wrappers may stand before any of them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sim {

struct Packet {
    uint8_t source[16];  // GIDs
    uint8_t destination[16];
    uint8_t header[64];  // BTH and what follows it up to the payload
    uint32_t header_bytes = 0;
    const iovec* payload = nullptr;  // valid during the call only
    size_t payload_count = 0;
    size_t payload_bytes = 0;
    mutable bool unreadable = false;  // set by whoever copies the payload, when its pages are gone: nothing was sent
};

class Link {
   public:
    using Receive = std::function<void(const Packet&)>;
    virtual ~Link() = default;
    // False: no room now, try again in a later step. The packet is copied or delivered before send() returns.
    virtual bool send(const Packet& packet) = 0;
    // Hands over what has arrived, at most `budget` packets; returns how many.
    virtual int poll(const Receive& receive, int budget) = 0;
    // The largest payload of one packet.
    virtual size_t mtu_bytes() const = 0;
};

}  // namespace sim
