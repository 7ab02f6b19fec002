// SPDX-License-Identifier: Apache-2.0
// See port.h. Source: Linux, iboe_get_mtu, mlx5_query_port_roce.
#include "sim/uverbs/port.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>

#include "sim/uverbs/nic.h"

namespace sim::uverbs {

namespace {
constexpr uint8_t port_down = 1, port_is_active = 4, physical_disabled = 3, physical_link_up = 5;
constexpr uint32_t header_bytes = 96;  // GRH, UDP, BTH, extended and atomic headers, ICRC
}  // namespace

uint8_t path_mtu_of(uint32_t link_mtu_bytes) {
    uint8_t mtu = 0;
    while (mtu < 5 && link_mtu_bytes >= header_bytes + (256u << mtu)) ++mtu;
    return mtu;
}

PortState port_state(const Nic& nic, uint32_t number) {
    PortState port;
    const bool up = nic->link_up(number);
    port.state = up ? port_is_active : port_down;
    port.physical = up ? physical_link_up : physical_disabled;
    port.active_mtu = path_mtu_of(nic->link_mtu(number));
    return port;
}

std::string netdev_of(const uint8_t gid[16]) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool ipv4 = std::memcmp(gid, mapped, sizeof mapped) == 0;
    if (ipv4 && gid[12] == IN_LOOPBACKNET) return "lo";
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return {};
    std::string name;
    for (const ifaddrs* i = list; i && name.empty(); i = i->ifa_next) {
        if (!i->ifa_addr) continue;
        if (ipv4 && i->ifa_addr->sa_family == AF_INET) {
            const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
            if (std::memcmp(&address->sin_addr, gid + 12, 4) == 0) name = i->ifa_name;
        } else if (!ipv4 && i->ifa_addr->sa_family == AF_INET6) {
            const auto* address = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
            if (std::memcmp(&address->sin6_addr, gid, 16) == 0) name = i->ifa_name;
        }
    }
    freeifaddrs(list);
    return name;
}

}  // namespace sim::uverbs
