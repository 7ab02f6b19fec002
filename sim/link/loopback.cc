// SPDX-License-Identifier: Apache-2.0
// See loopback.h.

#include "sim/link/loopback.h"

#include <gda/formats/packet.h>

namespace sim {

bool Loopback::send(const Packet& packet) {
    if (GDA_GET(bth, packet.header, opcode) == gda::prm::RC_ACKNOWLEDGE) {
        answers_.push_back(packet);
    } else {
        receive_(packet);
    }
    return true;
}

int Loopback::poll(const Receive& receive, int budget) {
    int taken = 0;
    while (taken < budget && !answers_.empty()) {
        Packet packet = answers_.front();
        answers_.pop_front();
        receive(packet);
        ++taken;
    }
    return taken;
}

}  // namespace sim
