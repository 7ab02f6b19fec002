// SPDX-License-Identifier: Apache-2.0
// See addresses.h, and device.h for what each function promises.
// Source: InfiniBand Architecture Specification, volume 1, annex A17 (RoCE v2), "GID table".

#include "sim/engine/addresses.h"

#include <errno.h>

#include <cstdlib>
#include <cstring>

namespace sim {

namespace {

const Gid EMPTY = {};
// IP, UDP, BTH and what may follow it, and the ICRC: Linux subtracts as much (iboe_get_mtu).
const uint32_t HEADERS = 96, LEAST_PATH_MTU = 256, LARGEST_LINK_MTU = 65535;

bool link_local(const uint8_t gid[16]) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }
bool empty(const uint8_t gid[16]) { return std::memcmp(gid, EMPTY, sizeof EMPTY) == 0; }

void set(DeviceState& s, uint32_t port, int index, const uint8_t gid[16], bool version1) {
    const uint32_t place = s.gid_place(port, static_cast<uint32_t>(index));
    std::memcpy(s.gids[place], gid, sizeof s.gids[place]);
    s.gid_version1[place] = version1;
    s.port->set_gids(s.gids, s.ports * GID_COUNT);
}

bool exists(const DeviceState& s, uint32_t port, int index = 0) {
    return port >= 1 && port <= s.ports && index >= 0 && index < GID_COUNT;
}

// GDA_SIM_MTU: bytes, as network devices count, for all ports. Nonsense is reported and does nothing.
void read_link_mtu(DeviceState& s) {
    const char* value = std::getenv("GDA_SIM_MTU");
    if (!value || !*value) return;
    char* end = nullptr;
    const unsigned long bytes = std::strtoul(value, &end, 10);
    if (*end || bytes < HEADERS + LEAST_PATH_MTU || bytes > LARGEST_LINK_MTU) {
        s.report.say(Kind::configuration,
                     text("GDA_SIM_MTU=%s is not a number of bytes from %u to %u: the link keeps %u", value,
                          HEADERS + LEAST_PATH_MTU, LARGEST_LINK_MTU, s.port->mtu()));
        return;
    }
    for (uint32_t port = 1; port <= s.ports; ++port) s.port->set_mtu(static_cast<uint32_t>(bytes), port);
}

}  // namespace

void fill_addresses(DeviceState& s) {
    read_link_mtu(s);
    for (uint32_t port = 1; port <= s.ports; ++port) {
        for (int i = 0; i < DEFAULT_GIDS; ++i) {
            Gid gid;
            gid_of(s.slot, i, gid, port);
            set(s, port, i, gid, i % 2 == 0);
        }
    }
    int next = DEFAULT_GIDS;
    for (const auto& address : s.port->addresses()) {
        for (const bool version1 : {true, false}) {
            if (version1 && !s.port->carries_version1()) continue;
            if (next < GID_COUNT) set(s, 1, next++, address.data(), version1);
        }
    }
}

uint32_t arrival_port(const DeviceState& s, const Packet& packet) {
    for (uint32_t port = s.ports; port > 1; --port) {
        if (own_address(s, port, packet.destination, packet.version1) != Own::no) return port;
    }
    return 1;
}

Own own_address(const DeviceState& s, uint32_t port, const uint8_t gid[16], bool version1) {
    Own answer = Own::no;
    if (empty(gid)) return answer;
    const uint32_t first = s.gid_place(port, 0);
    for (uint32_t i = first; i < first + GID_COUNT; ++i) {
        if (std::memcmp(s.gids[i], gid, sizeof s.gids[i]) != 0) continue;
        if (s.gid_version1[i] == version1) return Own::yes;
        answer = Own::other_version;
    }
    return answer;
}

bool addressed(DeviceState& s, const Qp* qp, const Packet& packet) {
    const Own own = own_address(s, qp->port, packet.destination, packet.version1);
    if (own == Own::yes && (qp->datagrams() || packet.version1 == qp->version1)) return true;
    if (own == Own::no) {
        const uint32_t port = arrival_port(s, packet);
        if (port != qp->port && own_address(s, port, packet.destination, packet.version1) != Own::no) {
            s.report.say(
                Kind::other_port,
                text("%s: dropped a packet that arrived at port %u, for it is bound to port %u (port_num at INIT): "
                     "the peer must send to a GID of that port",
                     qp->name, port, qp->port),
                {{"qp", qp->number}, {"port", port}, {"own_port", qp->port}});
        }
        return false;
    }
    if (qp->datagrams()) {
        s.report.say(Kind::roce_version,
                     text("%s: dropped a datagram of RoCE v%d: no entry of the GID table has its address with that "
                          "version (RoCE v1 against v2)",
                          qp->name, packet.version1 ? 1 : 2),
                     {{"qp", qp->number}, {"version", packet.version1 ? 1u : 2u}});
    } else {
        s.report.say(
            Kind::roce_version,
            text("%s: dropped a packet of RoCE v%d, for it is connected with a GID of RoCE v%d: RoCE v1 against "
                 "v2; choose a GID index of the same version on both sides",
                 qp->name, packet.version1 ? 1 : 2, qp->version1 ? 1 : 2),
            {{"qp", qp->number}, {"version", packet.version1 ? 1u : 2u}, {"own_version", qp->version1 ? 1u : 2u}});
    }
    return false;
}

int Device::neighbour(int index, const uint8_t gid[16], uint8_t mac[6], uint32_t port) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (!exists(s, port, index)) return -EINVAL;
    Hold hold(s);
    const uint32_t place = s.gid_place(port, static_cast<uint32_t>(index));
    if (!s.has_gid(port, static_cast<uint32_t>(index))) return -ENODATA;
    for (uint32_t own = 1; own <= s.ports; ++own) {
        if (own_address(s, own, gid, false) != Own::no) return mac_of(s.slot, mac, own), 0;
    }
    const bool from_link = link_local(s.gids[place]), to_link = link_local(gid);
    if (from_link && !to_link) return -ETIMEDOUT;  // it asks its own link for a neighbour of another network
    // Addresses of this host's network stay resolved when their NIC has gone; a link-local one is asked for each time.
    if (!s.port->neighbour(gid, to_link, mac)) return to_link ? -ETIMEDOUT : -EHOSTUNREACH;
    return 0;
}

int Device::gid_count() { return GID_COUNT; }

void Device::gid(int index, uint8_t out[16], uint32_t port) const {
    std::memset(out, 0, 16);
    if (!exists(*state_, port, index)) return;
    Hold hold(*state_);
    std::memcpy(out, state_->gids[state_->gid_place(port, static_cast<uint32_t>(index))], 16);
}

bool Device::gid_is_version1(int index, uint32_t port) const {
    if (!exists(*state_, port, index)) return false;
    Hold hold(*state_);
    return state_->gid_version1[state_->gid_place(port, static_cast<uint32_t>(index))];
}

int Device::set_gid(int index, const uint8_t* gid, bool version1, uint32_t port) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (!exists(s, port, index)) return -EINVAL;
    Hold hold(s);
    const bool removes = !gid || empty(gid);
    const uint32_t place = s.gid_place(port, static_cast<uint32_t>(index));
    for (uint32_t i = 0; i < s.ports * GID_COUNT && !removes; ++i) {
        const bool same = s.gid_version1[i] == version1 && std::memcmp(s.gids[i], gid, sizeof s.gids[i]) == 0;
        if (i != place && same) return -EEXIST;
    }
    set(s, port, index, removes ? EMPTY : gid, !removes && version1);
    return 0;
}

uint32_t Device::link_mtu(uint32_t port) const {
    Hold hold(*state_);
    return exists(*state_, port) ? state_->port->mtu(port) : 0;
}

int Device::set_link_mtu(uint32_t bytes, uint32_t port) {
    if (!exists(*state_, port) || bytes < HEADERS + LEAST_PATH_MTU || bytes > LARGEST_LINK_MTU) return -EINVAL;
    Hold hold(*state_);
    return state_->port->set_mtu(bytes, port), 0;
}

bool Device::link_up(uint32_t port) const {
    Hold hold(*state_);
    return exists(*state_, port) && state_->port->up(port);
}

int Device::set_link_up(bool up, uint32_t port) {
    if (!exists(*state_, port)) return -EINVAL;
    Hold hold(*state_);
    return state_->port->set_up(up, port), 0;
}

}  // namespace sim
