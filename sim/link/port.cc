// SPDX-License-Identifier: Apache-2.0
// See port.h.

#include "sim/link/port.h"

#include <cstdlib>
#include <cstring>

#include "sim/link/run.h"

namespace sim {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

}  // namespace

Port::Port(const Clock& clock, Link::Receive own)
    : tap_(clock),
      loopback_(std::move(own)),
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
    read_ports();
    Gid gids[ALL_GIDS];
    for (uint32_t i = 0; i < ports_ * GID_COUNT; ++i) gid_of(slot_, i % GID_COUNT, gids[i], i / GID_COUNT + 1);
    set_gids(gids, ports_ * GID_COUNT);
    tap_.faults.set_stream(slot_);
    configure();
}

// GDA_SIM_PORTS. Nonsense is reported and does nothing.
void Port::read_ports() {
    const std::string value = environment("GDA_SIM_PORTS");
    if (value.empty()) return;
    if (value.size() == 1 && value[0] >= '1' && value[0] <= static_cast<char>('0' + MAX_PORTS)) {
        ports_ = static_cast<uint32_t>(value[0] - '0');
    } else {
        problems_.push_back("GDA_SIM_PORTS=" + value + " is not a number from 1 to " + std::to_string(MAX_PORTS) +
                            ": the NIC has one port");
    }
}

// What else the environment orders.
void Port::configure() {
    std::string problem;
    if (!set_faults(environment("GDA_SIM_FAULTS"), &problem)) problems_.push_back("GDA_SIM_FAULTS: " + problem);
    if (!set_capture(environment("GDA_SIM_CAPTURE"), &problem)) problems_.push_back("GDA_SIM_CAPTURE: " + problem);

    const std::string addresses = environment("GDA_SIM_ADDRESS"), station = environment("GDA_SIM_ETHERNET");
    if (!parse_addresses(addresses, &addresses_, &problem)) return problems_.push_back("GDA_SIM_ADDRESS: " + problem);
    if (!station.empty()) {
        uint8_t mac[6];
        mac_of(slot_, mac);
        ethernet_ = std::make_unique<Ethernet>(tap_.clock, tap_.counters);
        if (ethernet_->open(station, mac, addresses_, &problem)) {
            to_wire_ = std::make_unique<Tapped>(*ethernet_, tap_);
        } else {
            problems_.push_back("GDA_SIM_ETHERNET: " + problem);
        }
    } else if (!addresses_.empty()) {
        udp_ = std::make_unique<Udp>(tap_.counters);
        if (udp_->open(addresses_, &problem)) {
            to_wire_ = std::make_unique<Tapped>(*udp_, tap_);
        } else {
            problems_.push_back("GDA_SIM_ADDRESS: " + problem);
        }
    }
    if (to_wire_) return;
    addresses_.clear();
    udp_.reset();
    ethernet_.reset();
}

Port::~Port() = default;

void Port::set_gids(const Gid* gids, size_t count) {
    tap_.gids.resize(count);
    for (size_t i = 0; i < count; ++i) {
        if (std::memcmp(tap_.gids[i].data(), gids[i], sizeof(Gid)) == 0) continue;
        std::memcpy(tap_.gids[i].data(), gids[i], sizeof(Gid));
        shm_->publish(static_cast<int>(i), gids[i]);
    }
}

void Port::set_up(bool up, uint32_t port) { tap_.down = up ? tap_.down & ~port_bit(port) : tap_.down | port_bit(port); }

bool Port::own(const uint8_t gid[16]) const {
    if (tap_.port_of(gid)) return true;
    for (const Address& address : addresses_) {
        if (std::memcmp(address.data(), gid, sizeof(Gid)) == 0) return true;
    }
    return false;
}

Link* Port::route(const uint8_t gid[16]) {
    if (own(gid)) return &to_self_;
    if (shm_->knows(gid)) return &to_host_;
    return to_wire_ ? to_wire_.get() : &to_nobody_;
}

bool Port::set_capture(const std::string& path, std::string* problem) {
    if (!path.empty()) return tap_.capture.open(path, slot_, problem);
    tap_.capture.close();
    return true;
}

int Port::poll(const Link::Receive& receive, int budget) {
    int done = 0;
    if (tap_.room_ns && tap_.clock.now_ns() >= tap_.room_ns) tap_.room_ns = 0;
    if (!tap_.held.empty()) done += tap_.held.release(tap_.clock.now_ns());
    done += to_self_.poll(receive, budget);
    const auto others = [&](const Link::Receive& taker) {
        done += to_host_.poll(taker, budget);
        if (to_wire_) done += to_wire_->poll(taker, budget);
        return done;
    };
    if (!tap_.looks()) return others(receive);
    return others([this, &receive](const Packet& packet) { from_others(packet, receive); });
}

// What the NICs of other processes sent, while a fault or a capture is on.
void Port::from_others(const Packet& packet, const Link::Receive& receive) {
    const bool down = (port_bit(tap_.arrives_at(packet)) & tap_.faults.down()) != 0;
    if (tap_.capture.on()) {
        const uint64_t now_ns = tap_.clock.now_ns();
        for_each_packet(packet, [&](const Packet& one) {
            tap_.capture.received(one, now_ns, down ? "lost by fault: link is down" : "");
            return tap_.capture.on();
        });
    }
    if (down) return tap_.counters.count(LinkCounter::fault_link_down);
    receive(packet);
}

bool Port::neighbour(const uint8_t gid[16], bool awake, uint8_t mac[6]) {
    uint32_t slot, own_slot, port;
    if (shm_->find(gid, &slot) && (!awake || shm_->alive(gid))) {
        return mac_of(slot, mac, slot_of(gid, &own_slot, &port) ? port : 1), true;
    }
    // The carriers on a wire find the station by themselves; programs only want to see that there is a way. The network
    // of UDP has no link that a link-local address could be on.
    const bool link_local = gid[0] == 0xfe && gid[1] == 0x80;
    if (!to_wire_ || (udp_ && link_local)) return false;
    const uint8_t there[6] = {0x02, 0x67, 0x64, 0x61, 0xff, gid[15]};
    return std::memcpy(mac, there, sizeof there), true;
}

bool Port::peer_lives(const uint8_t gid[16]) { return own(gid) || shm_->alive(gid); }

bool Port::behind(const uint8_t gid[16]) { return shm_->behind(gid); }

bool Port::fall_asleep(Inbox::Asleep how) {
    shm_->fall_asleep(how);
    return !shm_->directory().inbox() || shm_->descriptor() >= 0;
}

void Port::wake_up() { shm_->wake_up(); }

std::vector<int> Port::descriptors() const {
    if (udp_) return udp_->descriptors();
    if (ethernet_) return {ethernet_->descriptor()};
    return {};
}

void Port::disown() { shm_->disown(); }

}  // namespace sim
