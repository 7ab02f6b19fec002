// SPDX-License-Identifier: Apache-2.0
// See shm.h.

#include "sim/link/shm.h"

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

bool Shm::send(const Packet& packet) {
    uint32_t slot;
    if (!directory_.inbox() || !slot_of(packet.destination, &slot)) return true;
    Inbox* inbox = peer(slot);
    return inbox ? inbox->put(packet) : true;
}

int Shm::poll(const Receive& receive, int budget) {
    return directory_.inbox() ? directory_.inbox()->take(receive, budget) : 0;
}

bool Shm::knows(const uint8_t gid[16]) const {
    uint32_t slot;
    return directory_.inbox() && slot_of(gid, &slot);
}

bool Shm::alive(const uint8_t gid[16]) const {
    uint32_t slot;
    return directory_.inbox() && slot_of(gid, &slot) && directory_.alive(slot);
}

bool Shm::behind(const uint8_t gid[16]) {
    uint32_t slot;
    if (!directory_.inbox() || !slot_of(gid, &slot)) return false;
    Inbox* inbox = peer(slot);
    return inbox && !inbox->empty() && directory_.alive(slot);
}

}  // namespace sim
