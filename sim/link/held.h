// SPDX-License-Identifier: Apache-2.0
// Packets on their way: copies that wait for their time, for others to pass them, or for room in a carrier. Used by
// tapped.h, one for each port.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/link/link.h"

namespace sim {

class Held {
   public:
    enum : uint64_t { PASSED_BY_NOBODY_NS = 100000 };  // a reordered packet goes on alone after this long

    // Keeps a copy, due at a time. With `behind` it is due when so many packets of its flow (destination and queue
    // pair) have passed, at the latest at that time. False: the payload could not be read; nothing is kept.
    bool keep(Link& carrier, const Packet& packet, uint64_t due_ns, uint32_t behind = 0);
    // A packet of this flow goes out at that time: those that waited for it are due then.
    void passed(const Packet& packet, uint64_t due_ns);
    // Sends what is due; how many. A carrier without room keeps its packets waiting, in their order.
    int release(uint64_t now_ns);

    bool empty() const { return packets_.empty(); }
    // Whether something waits that a later packet to this carrier must not overtake.
    bool waits_for(const Link& carrier, uint64_t now_ns) const;
    bool full() const { return bytes_ >= MAX_BYTES || packets_.size() >= MAX_PACKETS; }
    uint64_t due_ns() const { return packets_.empty() ? 0 : packets_.begin()->first.first; }

   private:
    enum : size_t { MAX_BYTES = 64u << 20, MAX_PACKETS = 1u << 16 };
    struct Copy {
        Link* carrier;
        Packet packet;
        std::vector<uint8_t> payload;
        iovec piece;
        uint32_t behind;
    };
    typedef std::pair<uint64_t, uint64_t> Key;  // due, then in the order of keep()

    std::map<Key, std::unique_ptr<Copy>> packets_;
    uint64_t next_ = 0;
    size_t bytes_ = 0, behind_ = 0;  // payload; packets that wait to be passed
};

}  // namespace sim
