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

void set(DeviceState& s, int index, const uint8_t gid[16], bool version1) {
    std::memcpy(s.gids[index], gid, sizeof s.gids[index]);
    s.gid_version1[index] = version1;
    s.port->set_gids(s.gids, GID_COUNT);
}

// GDA_SIM_MTU: bytes, as network devices count. Nonsense is reported and does nothing.
void read_link_mtu(DeviceState& s) {
    const char* value = std::getenv("GDA_SIM_MTU");
    if (!value || !*value) return;
    char* end = nullptr;
    const unsigned long bytes = std::strtoul(value, &end, 10);
    if (*end || bytes < HEADERS + LEAST_PATH_MTU || bytes > LARGEST_LINK_MTU) {
        s.report.say(text("GDA_SIM_MTU=%s is not a number of bytes from %u to %u: the link keeps %u", value,
                          HEADERS + LEAST_PATH_MTU, LARGEST_LINK_MTU, s.port->mtu()));
        return;
    }
    s.port->set_mtu(static_cast<uint32_t>(bytes));
}

}  // namespace

void fill_addresses(DeviceState& s) {
    read_link_mtu(s);
    for (int i = 0; i < DEFAULT_GIDS; ++i) {
        Gid gid;
        gid_of(s.slot, i, gid);
        set(s, i, gid, i % 2 == 0);
    }
    int next = DEFAULT_GIDS;
    for (const auto& address : s.port->addresses()) {
        for (const bool version1 : {true, false}) {
            if (version1 && !s.port->carries_version1()) continue;
            if (next < GID_COUNT) set(s, next++, address.data(), version1);
        }
    }
}

Own own_address(const DeviceState& s, const uint8_t gid[16], bool version1) {
    Own answer = Own::no;
    if (empty(gid)) return answer;
    for (int i = 0; i < GID_COUNT; ++i) {
        if (std::memcmp(s.gids[i], gid, sizeof s.gids[i]) != 0) continue;
        if (s.gid_version1[i] == version1) return Own::yes;
        answer = Own::other_version;
    }
    return answer;
}

bool addressed(DeviceState& s, const Qp* qp, const Packet& packet) {
    const Own own = own_address(s, packet.destination, packet.version1);
    if (own == Own::yes && (qp->datagrams() || packet.version1 == qp->version1)) return true;
    if (own == Own::no) return false;
    if (qp->datagrams()) {
        s.report.say(
            text("%s: dropped a datagram of RoCE v%d: no entry of the GID table has its address with that "
                 "version (RoCE v1 against v2)",
                 qp->name, packet.version1 ? 1 : 2));
    } else {
        s.report.say(
            text("%s: dropped a packet of RoCE v%d, for it is connected with a GID of RoCE v%d: RoCE v1 against "
                 "v2; choose a GID index of the same version on both sides",
                 qp->name, packet.version1 ? 1 : 2, qp->version1 ? 1 : 2));
    }
    return false;
}

int Device::neighbour(int index, const uint8_t gid[16], uint8_t mac[6]) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (index < 0 || index >= GID_COUNT) return -EINVAL;
    Hold hold(s);
    if (!s.has_gid(static_cast<uint32_t>(index))) return -ENODATA;
    if (own_address(s, gid, false) != Own::no) return mac_of(s.slot, mac), 0;
    const bool from_link = link_local(s.gids[index]), to_link = link_local(gid);
    if (from_link && !to_link) return -ETIMEDOUT;  // it asks its own link for a neighbour of another network
    // Addresses of this host's network stay resolved when their NIC has gone; a link-local one is asked for each time.
    if (!s.port->neighbour(gid, to_link, mac)) return to_link ? -ETIMEDOUT : -EHOSTUNREACH;
    return 0;
}

int Device::gid_count() { return GID_COUNT; }

void Device::gid(int index, uint8_t out[16]) const {
    std::memset(out, 0, 16);
    if (index < 0 || index >= GID_COUNT) return;
    Hold hold(*state_);
    std::memcpy(out, state_->gids[index], 16);
}

bool Device::gid_is_version1(int index) const {
    if (index < 0 || index >= GID_COUNT) return false;
    Hold hold(*state_);
    return state_->gid_version1[index];
}

int Device::set_gid(int index, const uint8_t* gid, bool version1) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (index < 0 || index >= GID_COUNT) return -EINVAL;
    Hold hold(s);
    const bool removes = !gid || empty(gid);
    for (int i = 0; i < GID_COUNT && !removes; ++i) {
        const bool same = s.gid_version1[i] == version1 && std::memcmp(s.gids[i], gid, sizeof s.gids[i]) == 0;
        if (i != index && same) return -EEXIST;
    }
    set(s, index, removes ? EMPTY : gid, !removes && version1);
    return 0;
}

uint32_t Device::link_mtu() const {
    Hold hold(*state_);
    return state_->port->mtu();
}

int Device::set_link_mtu(uint32_t bytes) {
    if (bytes < HEADERS + LEAST_PATH_MTU || bytes > LARGEST_LINK_MTU) return -EINVAL;
    Hold hold(*state_);
    return state_->port->set_mtu(bytes), 0;
}

bool Device::link_up() const {
    Hold hold(*state_);
    return state_->port->up();
}

void Device::set_link_up(bool up) {
    Hold hold(*state_);
    state_->port->set_up(up);
}

}  // namespace sim
