// SPDX-License-Identifier: Apache-2.0
// See ethernet.h.

#include "sim/link/ethernet.h"

#include <gda/formats/packet.h>

#include <cstdlib>
#include <cstring>

#include "sim/link/wire.h"

namespace sim {

using namespace gda::prm;

namespace {

const Address LOCALHOST = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
const size_t LEAD = GDA_BYTES_OF(ethernet) - ETHERNET_BYTES;  // of the format, not on the wire
const size_t SHORTEST_BYTES = 60;                             // of an Ethernet frame, without its checksum
const uint8_t NEIGHBOUR_HOP_LIMIT = 255;                      // RFC 4861: nobody has forwarded it

Address mapped(const uint8_t ipv4[4]) {
    Address address = {};
    address[10] = address[11] = 0xff;
    std::memcpy(address.data() + 12, ipv4, 4);
    return address;
}

uint32_t type_of(const uint8_t* frame) {
    uint8_t header[GDA_BYTES_OF(ethernet)] = {};
    std::memcpy(header + LEAD, frame, ETHERNET_BYTES);
    return static_cast<uint32_t>(GDA_GET(ethernet, header, type));
}

const uint8_t* source_mac(const uint8_t* frame) { return frame + GDA_BYTE_OFFSET(ethernet, source) - LEAD; }

}  // namespace

bool Ethernet::open(const std::string& ports, const uint8_t mac[6], const std::vector<Address>& addresses,
                    std::string* problem) {
    char* end = nullptr;
    const unsigned long local = std::strtoul(ports.c_str(), &end, 10);
    const unsigned long remote = *end == ':' ? std::strtoul(end + 1, &end, 10) : 0;
    if (*end || local == 0 || local > 65535 || remote == 0 || remote > 65535) {
        *problem = "'" + ports + "' is not LOCALPORT:REMOTEPORT, two UDP ports of 127.0.0.1";
        return false;
    }
    if (addresses.empty()) {
        *problem = "a station needs an address: set GDA_SIM_ADDRESS to one of the network behind it";
        return false;
    }
    std::memcpy(mac_.data(), mac, 6);
    addresses_ = addresses;
    remote_port_ = static_cast<uint16_t>(remote);
    return socket_.open(LOCALHOST, static_cast<uint16_t>(local), problem);
}

bool Ethernet::ours(const uint8_t gid[16]) const {
    for (const Address& address : addresses_) {
        if (std::memcmp(address.data(), gid, 16) == 0) return true;
    }
    return false;
}

const Address* Ethernet::own_of_family(bool ipv4) const {
    for (const Address& address : addresses_) {
        if (is_ipv4(address.data()) == ipv4) return &address;
    }
    return nullptr;
}

Socket::Sent Ethernet::put(const Frame& frame) {
    const Socket::Sent sent = socket_.send(LOCALHOST, remote_port_, frame.data(), frame.size());
    if (sent == Socket::Sent::yes) counters_.count(LinkCounter::wire_sent);
    if (sent == Socket::Sent::refused || sent == Socket::Sent::too_long) counters_.count(LinkCounter::wire_unsent);
    return sent;
}

bool Ethernet::send(const Packet& packet) {
    Address to;
    std::memcpy(to.data(), packet.destination, 16);
    if (!ours(packet.source) || (!neighbours_.count(to) && neighbours_.size() >= MAX_NEIGHBOURS)) {
        return counters_.count(LinkCounter::packets_to_nowhere), true;
    }
    Neighbour& neighbour = neighbours_[to];
    Frame frame(frame_bytes(packet));
    if (!encode_frame(packet, neighbour.mac.data(), mac_.data(), frame.data())) return true;
    if (neighbour.known) return put(frame) != Socket::Sent::no_room;
    // Those that do not fit are lost, as a kernel loses them: the transport sends them again.
    if (neighbour.waiting.size() < MAX_WAITING) {
        neighbour.waiting.push_back(std::move(frame));
    } else {
        counters_.count(LinkCounter::wire_unsent);
    }
    ask(to, neighbour);
    return true;
}

void Ethernet::ask(const Address& address, Neighbour& neighbour) {
    const uint64_t now_ns = clock_.now_ns();
    if (neighbour.asked_ns && now_ns - neighbour.asked_ns < milliseconds(20)) return;
    neighbour.asked_ns = now_ns;
    const bool ipv4 = is_ipv4(address.data());
    const Address* own = own_of_family(ipv4);
    if (!own) return;
    if (ipv4) return send_arp(ARP_REQUEST, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, *own, address);
    Address group = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};  // solicited node, RFC 4291
    std::memcpy(group.data() + 13, address.data() + 13, 3);
    const Mac multicast = {0x33, 0x33, group[12], group[13], group[14], group[15]};
    send_neighbour(ICMPV6_NEIGHBOUR_SOLICITATION, multicast, *own, group, address);
}

void Ethernet::learn(const Address& address, const uint8_t mac[6]) {
    const auto found = neighbours_.find(address);
    if (found == neighbours_.end() && neighbours_.size() >= MAX_NEIGHBOURS) return;
    Neighbour& neighbour = neighbours_[address];
    neighbour.known = true;
    std::memcpy(neighbour.mac.data(), mac, 6);
    std::vector<Frame> waiting;
    waiting.swap(neighbour.waiting);
    for (Frame& frame : waiting) {
        std::memcpy(frame.data(), mac, 6);
        put(frame);
    }
}

Ethernet::Frame Ethernet::frame_to(const Mac& to, uint32_t type, size_t bytes) const {
    uint8_t header[GDA_BYTES_OF(ethernet)] = {};
    std::memcpy(header + GDA_BYTE_OFFSET(ethernet, destination), to.data(), 6);
    std::memcpy(header + GDA_BYTE_OFFSET(ethernet, source), mac_.data(), 6);
    GDA_SET(ethernet, header, type, type);
    Frame frame(std::max(ETHERNET_BYTES + bytes, SHORTEST_BYTES));
    std::memcpy(frame.data(), header + LEAD, ETHERNET_BYTES);
    return frame;
}

void Ethernet::send_arp(uint32_t operation, const Mac& to, const Address& sender, const Address& target) {
    Frame frame = frame_to(to, ETHER_ARP, GDA_BYTES_OF(arp));
    uint8_t* arp = frame.data() + ETHERNET_BYTES;
    GDA_SET(arp, arp, hardware_type, 1);
    GDA_SET(arp, arp, protocol_type, ETHER_IPV4);
    GDA_SET(arp, arp, hardware_bytes, 6);
    GDA_SET(arp, arp, protocol_bytes, 4);
    GDA_SET(arp, arp, operation, operation);
    std::memcpy(arp + GDA_BYTE_OFFSET(arp, sender_hardware), mac_.data(), 6);
    std::memcpy(arp + GDA_BYTE_OFFSET(arp, sender_protocol), sender.data() + 12, 4);
    if (operation == ARP_REPLY) std::memcpy(arp + GDA_BYTE_OFFSET(arp, target_hardware), to.data(), 6);
    std::memcpy(arp + GDA_BYTE_OFFSET(arp, target_protocol), target.data() + 12, 4);
    put(frame);
}

void Ethernet::send_neighbour(uint32_t type, const Mac& to, const Address& source, const Address& destination,
                              const Address& target) {
    const uint32_t bytes = GDA_BYTES_OF(neighbour);
    Frame frame = frame_to(to, ETHER_IPV6, IPV6_BYTES + bytes);
    uint8_t* ip = frame.data() + ETHERNET_BYTES;
    GDA_SET(grh, ip, ip_version, 6);
    GDA_SET(grh, ip, payload_length, bytes);
    GDA_SET(grh, ip, next_header, IP_ICMPV6);
    GDA_SET(grh, ip, hop_limit, NEIGHBOUR_HOP_LIMIT);
    std::memcpy(ip + GDA_BYTE_OFFSET(grh, sgid), source.data(), 16);
    std::memcpy(ip + GDA_BYTE_OFFSET(grh, dgid), destination.data(), 16);
    uint8_t* message = ip + IPV6_BYTES;
    const bool answer = type == ICMPV6_NEIGHBOUR_ADVERTISEMENT;
    GDA_SET(neighbour, message, type, type);
    GDA_SET(neighbour, message, solicited, answer);
    GDA_SET(neighbour, message, overriding, answer);
    std::memcpy(message + GDA_BYTE_OFFSET(neighbour, target), target.data(), 16);
    GDA_SET(neighbour, message, option_type, answer ? 2 : 1);
    GDA_SET(neighbour, message, option_units, 1);
    std::memcpy(message + GDA_BYTE_OFFSET(neighbour, option_mac), mac_.data(), 6);
    const size_t addresses = GDA_BYTE_OFFSET(grh, sgid);
    const uint32_t pseudo = internet_sum(ip + addresses, IPV6_BYTES - addresses, bytes + IP_ICMPV6);
    GDA_SET(neighbour, message, checksum, complement(internet_sum(message, bytes, pseudo)));
    put(frame);
}

void Ethernet::take_arp(const uint8_t* arp, size_t bytes) {
    if (bytes < GDA_BYTES_OF(arp) || GDA_GET(arp, arp, protocol_type) != ETHER_IPV4 ||
        GDA_GET(arp, arp, hardware_bytes) != 6 || GDA_GET(arp, arp, protocol_bytes) != 4) {
        return;
    }
    const uint8_t* sender_mac = arp + GDA_BYTE_OFFSET(arp, sender_hardware);
    const Address sender = mapped(arp + GDA_BYTE_OFFSET(arp, sender_protocol));
    const Address target = mapped(arp + GDA_BYTE_OFFSET(arp, target_protocol));
    if (!ours(target.data())) return;
    learn(sender, sender_mac);
    Mac to;
    std::memcpy(to.data(), sender_mac, 6);
    if (GDA_GET(arp, arp, operation) == ARP_REQUEST) send_arp(ARP_REPLY, to, target, sender);
}

// True: it was neighbour discovery. One with our option only, which is how Linux sends it.
bool Ethernet::take_neighbour(const uint8_t* ip, size_t bytes) {
    const size_t message_bytes = GDA_BYTES_OF(neighbour);
    if (bytes < IPV6_BYTES || GDA_GET(grh, ip, next_header) != IP_ICMPV6) return false;
    if (bytes < IPV6_BYTES + message_bytes || GDA_GET(grh, ip, payload_length) != message_bytes) return true;
    const uint8_t* message = ip + IPV6_BYTES;
    const uint32_t type = static_cast<uint32_t>(GDA_GET(neighbour, message, type));
    const size_t addresses = GDA_BYTE_OFFSET(grh, sgid);
    const uint32_t pseudo =
        internet_sum(ip + addresses, IPV6_BYTES - addresses, static_cast<uint32_t>(message_bytes) + IP_ICMPV6);
    if (complement(internet_sum(message, message_bytes, pseudo)) != 0) return true;
    if (GDA_GET(grh, ip, hop_limit) != NEIGHBOUR_HOP_LIMIT || GDA_GET(neighbour, message, option_units) != 1)
        return true;
    Address source, target;
    std::memcpy(source.data(), ip + GDA_BYTE_OFFSET(grh, sgid), 16);
    std::memcpy(target.data(), message + GDA_BYTE_OFFSET(neighbour, target), 16);
    const uint8_t* mac = message + GDA_BYTE_OFFSET(neighbour, option_mac);
    if (type == ICMPV6_NEIGHBOUR_ADVERTISEMENT && neighbours_.count(target)) learn(target, mac);
    if (type == ICMPV6_NEIGHBOUR_SOLICITATION && ours(target.data())) {
        learn(source, mac);
        Mac to;
        std::memcpy(to.data(), mac, 6);
        send_neighbour(ICMPV6_NEIGHBOUR_ADVERTISEMENT, to, target, source, target);
    }
    return true;
}

void Ethernet::take(const uint8_t* frame, size_t bytes, const Receive& receive) {
    if (bytes < ETHERNET_BYTES || std::memcmp(source_mac(frame), mac_.data(), 6) == 0) return;
    const uint32_t type = type_of(frame);
    if (type == ETHER_ARP) return take_arp(frame + ETHERNET_BYTES, bytes - ETHERNET_BYTES);
    if (type == ETHER_IPV6 && take_neighbour(frame + ETHERNET_BYTES, bytes - ETHERNET_BYTES)) return;
    if (std::memcmp(frame, mac_.data(), 6) != 0) return;  // multicast and what a hub repeats
    Decoded decoded;
    if (!counters_.took(decode_frame(frame, bytes, &decoded))) return;
    if (!ours(decoded.packet.destination)) return counters_.count(LinkCounter::wire_refused);
    Address source;
    std::memcpy(source.data(), decoded.packet.source, 16);
    if (!neighbours_.count(source) || !neighbours_[source].known) learn(source, source_mac(frame));
    receive(decoded.packet);
}

int Ethernet::poll(const Receive& receive, int budget) {
    return socket_.receive(
        [&](const Address&, uint16_t, const uint8_t* frame, size_t bytes) { take(frame, bytes, receive); }, budget);
}

}  // namespace sim
