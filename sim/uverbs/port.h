// SPDX-License-Identifier: Apache-2.0
// A port as the driver derives it from the link behind it. Used by queries and by sysfs.
#pragma once

#include <cstdint>
#include <string>

namespace sim::uverbs {

class Nic;

struct PortState {
    uint8_t state = 0;       // enum ib_port_state: 1 down, 4 active
    uint8_t physical = 0;    // 3 disabled, 5 link up
    uint8_t active_mtu = 0;  // enum ib_mtu: 1 (256 bytes) to 5 (4096)
};
PortState port_state(const Nic& nic, uint32_t number);

// The largest path MTU that a network device's MTU leaves room for, as enum ib_mtu; 0: none.
uint8_t path_mtu_of(uint32_t link_mtu_bytes);

// The network device that has the address: the loopback device for addresses of this host's NICs, else the one that
// getifaddrs() knows it on; empty when none has it.
std::string netdev_of(const uint8_t gid[16]);

}  // namespace sim::uverbs
