// SPDX-License-Identifier: Apache-2.0
// See port.h.

#include "sim/link/port.h"

#include <cstring>

namespace sim {

Port::Port(const Clock&, Link::Receive own)
    : loopback_(std::move(own)),
      shm_(std::make_unique<Shm>()),
      nowhere_(tap_.counters),
      to_self_(loopback_, tap_),
      to_host_(*shm_, tap_),
      to_nobody_(nowhere_, tap_) {
    if (shm_->directory().inbox()) {
        slot_ = shm_->directory().slot();
    } else {
        problems_.push_back("no link to other processes: " + shm_->directory().problem() +
                            "; this NIC reaches only itself (set GDA_SIM_DIRECTORY to a directory of yours)");
    }
    Gid gids[GID_COUNT];
    for (int i = 0; i < GID_COUNT; ++i) gid_of(slot_, i, gids[i]);
    set_gids(gids, GID_COUNT);
}

Port::~Port() = default;

void Port::set_gids(const Gid* gids, size_t count) {
    gids_.resize(count);
    for (size_t i = 0; i < count; ++i) std::memcpy(gids_[i].data(), gids[i], sizeof(Gid));
}

bool Port::own(const uint8_t gid[16]) const {
    for (const auto& g : gids_) {
        if (std::memcmp(g.data(), gid, sizeof(Gid)) == 0) return true;
    }
    return false;
}

Link* Port::route(const uint8_t gid[16]) {
    if (own(gid)) return &to_self_;
    if (shm_->knows(gid)) return &to_host_;
    return &to_nobody_;
}

int Port::poll(const Link::Receive& receive, int budget) {
    return to_self_.poll(receive, budget) + to_host_.poll(receive, budget);
}

bool Port::peer_lives(const uint8_t gid[16]) const { return own(gid) || shm_->alive(gid); }

bool Port::behind(const uint8_t gid[16]) { return shm_->behind(gid); }

void Port::disown() { shm_->disown(); }

}  // namespace sim
