// SPDX-License-Identifier: Apache-2.0
// The addresses of software NICs: those that slot and port number make, and back. A NIC may also have others (gids.h).
// Used by the engine and the shm carrier.
#pragma once

#include <cstdint>
#include <cstring>

namespace sim {

enum : uint32_t { MAX_SLOTS = 254 };  // a queue pair's number carries the slot in its highest 8 of 24 bits
enum : int {
    GID_COUNT = 16,    // entries of a port's table; an empty one is all zero
    DEFAULT_GIDS = 4,  // the port's own. 0,1: link-local; 2,3: IPv4-mapped; odd: RoCE v2
};
enum : uint32_t { MAX_PORTS = 4, ALL_GIDS = MAX_PORTS * GID_COUNT };  // ports of a NIC are counted from 1

typedef uint8_t Gid[16];

inline void mac_of(uint32_t slot, uint8_t out[6], uint32_t port = 1) {
    const uint8_t mac[6] = {0x02, 0x67, 0x64, 0x61, static_cast<uint8_t>(port - 1), static_cast<uint8_t>(slot)};
    std::memcpy(out, mac, sizeof mac);
}

inline void gid_of(uint32_t slot, int index, uint8_t out[16], uint32_t port = 1) {
    std::memset(out, 0, 16);
    if (index >= DEFAULT_GIDS) return;
    uint8_t mac[6];
    mac_of(slot, mac, port);
    if (index < 2) {  // fe80:: and the modified EUI-64 of the MAC (RFC 4291, appendix A)
        const uint8_t eui[8] = {
            static_cast<uint8_t>(mac[0] ^ 0x02), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
        out[0] = 0xfe, out[1] = 0x80;
        std::memcpy(out + 8, eui, 8);
    } else {  // ::ffff:127.71.(port - 1).(slot + 1): the loopback network, never routed
        const uint8_t mapped[6] = {0xff, 0xff, 127, 71, static_cast<uint8_t>(port - 1), static_cast<uint8_t>(slot + 1)};
        std::memcpy(out + 10, mapped, 6);
    }
}

// False: not an address of a software NIC. Whether that NIC has so many ports, only its table tells.
inline bool slot_of(const uint8_t gid[16], uint32_t* slot, uint32_t* port) {
    const uint32_t link_local = gid[15], mapped = static_cast<uint32_t>(gid[15]) - 1;
    *port = uint32_t{gid[14]} + 1;
    if (*port > MAX_PORTS) return false;
    Gid candidate;
    gid_of(link_local, 0, candidate, *port);
    if (link_local < MAX_SLOTS && std::memcmp(candidate, gid, 16) == 0) return *slot = link_local, true;
    gid_of(mapped, 2, candidate, *port);
    if (mapped < MAX_SLOTS && std::memcmp(candidate, gid, 16) == 0) return *slot = mapped, true;
    return false;
}

}  // namespace sim
