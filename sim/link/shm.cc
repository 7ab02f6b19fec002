// SPDX-License-Identifier: Apache-2.0
// See shm.h.

#include "sim/link/shm.h"

#include <algorithm>

namespace sim {

Shm::~Shm() {
    for (Inbox* inbox : peers_) {
        if (inbox) Inbox::unmap(inbox);
    }
}

Inbox* Shm::peer(uint32_t slot) {
    Inbox*& inbox = peers_[slot];
    if (inbox && inbox->closed()) {
        Inbox::unmap(inbox);
        inbox = nullptr;
    }
    if (!inbox) inbox = directory_.open_peer(slot);
    return inbox;
}

void Shm::publish(int index, const Gid& gid) {
    if (!directory_.inbox()) return;
    directory_.inbox()->gids().set(index, gid);
    directory_.touch();
}

bool Shm::find(const uint8_t gid[16], uint32_t* slot) {
    if (!directory_.inbox()) return false;
    // The receiver looks whether the address is still its own: here the slot in it is enough.
    return slot_of(gid, slot) || search(gid, slot);
}

// Whoever comes, goes or changes its addresses changes the directory's time: between two changes one look at all is
// enough, also for packets to nobody.
bool Shm::search(const uint8_t gid[16], uint32_t* slot) {
    std::array<uint8_t, 16> key;
    std::copy(gid, gid + 16, key.begin());
    const auto known = found_.find(key);
    if (known != found_.end()) {
        Inbox* inbox = peer(known->second);
        if (inbox && inbox->gids().has(gid)) return *slot = known->second, true;
        found_.erase(known);
    }
    const uint64_t age = directory_.age();
    const auto missed = missed_.find(key);
    if (missed != missed_.end() && age && missed->second == age) return false;
    for (uint32_t candidate = 0; candidate < MAX_SLOTS; ++candidate) {
        Inbox* inbox = peer(candidate);
        if (!inbox || !inbox->gids().has(gid) || !directory_.alive(candidate)) continue;
        missed_.erase(key);
        return *slot = found_[key] = candidate, true;
    }
    if (missed_.size() > MAX_SLOTS) missed_.clear();
    missed_[key] = age;
    return false;
}

bool Shm::send(const Packet& packet) {
    uint32_t slot;
    if (!find(packet.destination, &slot)) return true;
    Inbox* inbox = peer(slot);
    return inbox ? inbox->put(packet) : true;
}

int Shm::poll(const Receive& receive, int budget) {
    return directory_.inbox() ? directory_.inbox()->take(receive, budget) : 0;
}

bool Shm::knows(const uint8_t gid[16]) {
    uint32_t slot;
    return find(gid, &slot);
}

bool Shm::alive(const uint8_t gid[16]) {
    uint32_t slot;
    return find(gid, &slot) && directory_.alive(slot);
}

bool Shm::behind(const uint8_t gid[16]) {
    uint32_t slot;
    if (!find(gid, &slot)) return false;
    Inbox* inbox = peer(slot);
    return inbox && !inbox->empty() && directory_.alive(slot);
}

}  // namespace sim
