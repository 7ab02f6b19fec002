// SPDX-License-Identifier: Apache-2.0
// The carrier between the NICs of one host: a packet to a GID goes into the inbox of the NIC whose slot the GID names,
// or, for other addresses, of the NIC whose table has it (gids.h).
// A packet to nobody is lost, as on a cable that ends nowhere: the sender's retry counter is what notices.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "sim/link/address.h"
#include "sim/link/directory.h"

namespace sim {

class Shm final : public Link {
   public:
    ~Shm() override;
    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override;
    bool empty() { return !directory_.inbox() || directory_.inbox()->empty(); }
    size_t run_bytes() const override { return Inbox::PACKET_PAYLOAD_BYTES; }

    // Whether that GID is one that a NIC of the directory has or may get; whether one that has it is alive.
    bool knows(const uint8_t gid[16]);
    bool alive(const uint8_t gid[16]);

    // Whether a NIC is alive at that address and has not yet looked at all that lies in its inbox: its answer may
    // still come, however long the machine lets it wait.
    bool behind(const uint8_t gid[16]);
    // The slot of the living NIC that has that address.
    bool find(const uint8_t gid[16], uint32_t* slot);
    // This NIC's own table has changed: others shall find it.
    void publish(int index, const Gid& gid);

    // For an engine that wants to sleep: readable when a sender has woken it; -1: no sender can. After fall_asleep()
    // look once more; between two polls by threads of the program a light sleep is enough.
    int descriptor() { return directory_.pipe().descriptor(); }
    void fall_asleep(Inbox::Asleep how);
    void wake_up();
    // A thread of the program has looked.
    void looked(uint64_t now_ns);

    Directory& directory() { return directory_; }
    void disown() { directory_.disown(); }

   private:
    Inbox* peer(uint32_t slot);
    bool search(const uint8_t gid[16], uint32_t* slot);

    Directory directory_;
    Inbox* peers_[MAX_SLOTS] = {};
    WakeCall calls_[MAX_SLOTS];
    uint64_t looked_ns_ = 0;
    std::map<std::array<uint8_t, 16>, uint32_t> found_;   // addresses that no slot makes, where they were seen last
    std::map<std::array<uint8_t, 16>, uint64_t> missed_;  // and those that nobody had, by the directory's age then
};

}  // namespace sim
