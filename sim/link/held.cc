// SPDX-License-Identifier: Apache-2.0
// See held.h.

#include "sim/link/held.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cstring>

#include "sim/link/guard.h"

namespace sim {

namespace {

bool same_flow(const Packet& a, const Packet& b) {
    return std::memcmp(a.destination, b.destination, sizeof a.destination) == 0 &&
           GDA_GET(bth, a.header, dest_qp) == GDA_GET(bth, b.header, dest_qp);
}

}  // namespace

bool Held::keep(Link& carrier, const Packet& packet, uint64_t due_ns, uint32_t behind) {
    auto copy = std::make_unique<Copy>();
    copy->carrier = &carrier;
    copy->packet = packet;
    copy->behind = behind;
    copy->payload.resize(packet.payload_bytes);
    uint8_t* to = copy->payload.data();
    for (size_t i = 0; i < packet.payload_count; ++i) {
        if (!guarded_copy(to, packet.payload[i].iov_base, packet.payload[i].iov_len)) {
            packet.unreadable = true;
            return false;
        }
        to += packet.payload[i].iov_len;
    }
    copy->piece = {copy->payload.data(), copy->payload.size()};
    copy->packet.payload = &copy->piece;
    copy->packet.payload_count = copy->payload.empty() ? 0 : 1;
    bytes_ += copy->payload.size();
    behind_ += behind ? 1 : 0;
    packets_.emplace(Key{due_ns, next_++}, std::move(copy));
    return true;
}

void Held::passed(const Packet& packet, uint64_t due_ns) {
    if (!behind_) return;
    std::vector<Key> ready;
    for (auto& [key, copy] : packets_) {
        if (copy->behind && same_flow(copy->packet, packet) && --copy->behind == 0) ready.push_back(key);
    }
    for (const Key& key : ready) {
        auto node = packets_.extract(key);
        node.key() = {due_ns, next_++};
        packets_.insert(std::move(node));
        --behind_;
    }
}

int Held::release(uint64_t now_ns) {
    int sent = 0;
    std::vector<const Link*> no_room;
    std::vector<std::pair<Key, std::unique_ptr<Copy>>> kept;
    // A carrier may hand a packet over at once, and the answer to it may be kept here meanwhile.
    while (!packets_.empty() && packets_.begin()->first.first <= now_ns) {
        auto node = packets_.extract(packets_.begin());
        std::unique_ptr<Copy> copy = std::move(node.mapped());
        const bool blocked = std::find(no_room.begin(), no_room.end(), copy->carrier) != no_room.end();
        if (copy->behind) copy->behind = 0, --behind_;
        if (!blocked && copy->carrier->send(copy->packet)) {
            bytes_ -= copy->payload.size();
            ++sent;
            continue;
        }
        if (!blocked) no_room.push_back(copy->carrier);
        kept.emplace_back(node.key(), std::move(copy));
    }
    for (auto& [key, copy] : kept) packets_.emplace(key, std::move(copy));
    return sent;
}

bool Held::waits_for(const Link& carrier, uint64_t now_ns) const {
    for (const auto& [key, copy] : packets_) {
        if (key.first > now_ns) return false;
        if (copy->carrier == &carrier) return true;
    }
    return false;
}

}  // namespace sim
