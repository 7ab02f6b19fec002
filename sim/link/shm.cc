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
        calls_[slot].forget();
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
    uint32_t port;
    return slot_of(gid, slot, &port) || search(gid, slot);
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
    if (!inbox) return true;
    const bool sent = inbox->put(packet);
    if (inbox->must_wake()) calls_[slot].wake(directory_.pipe_path(slot));  // also when it is full
    return sent;
}

void Shm::fall_asleep(Inbox::Asleep how) {
    if (directory_.inbox()) directory_.inbox()->set_asleep(how);
}

void Shm::wake_up() {
    fall_asleep(Inbox::Asleep::no);
    directory_.pipe().drain();
}

void Shm::looked(uint64_t now_ns) {
    const uint64_t often_enough_ns = 5000;  // others read the word: it is not written at each look
    if (!directory_.inbox() || now_ns - looked_ns_ < often_enough_ns) return;
    looked_ns_ = now_ns;
    directory_.inbox()->looked(now_ns);
}

int Shm::poll(const Receive& receive, int budget) {
    return directory_.inbox() ? directory_.inbox()->take(receive, budget) : 0;
}

bool Shm::knows(const uint8_t gid[16]) {
    uint32_t slot;
    return find(gid, &slot);
}

bool Shm::alive(const uint8_t gid[16]) {
    uint32_t slot, own_slot, port;
    if (!find(gid, &slot) || !directory_.alive(slot)) return false;
    // A NIC need not have so many ports.
    Inbox* inbox = slot_of(gid, &own_slot, &port) && port > 1 ? peer(slot) : nullptr;
    return !inbox || inbox->gids().has(gid);
}

bool Shm::behind(const uint8_t gid[16]) {
    uint32_t slot;
    if (!find(gid, &slot)) return false;
    Inbox* inbox = peer(slot);
    return inbox && !inbox->empty() && directory_.alive(slot);
}

}  // namespace sim
