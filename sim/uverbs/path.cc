// SPDX-License-Identifier: Apache-2.0
// See path.h.
#include "sim/uverbs/path.h"

#include "sim/link/address.h"

namespace sim::uverbs {

bool resolve_mac(const uint8_t gid[16], uint8_t mac[6]) {
    uint32_t slot;
    if (slot_of(gid, &slot)) {
        mac_of(slot, mac);
        return true;
    }
    // Any link-local address made from a MAC names it (RFC 4291, appendix A). Whether somebody answers there is for
    // the transport to find out.
    if (gid[0] != 0xfe || gid[1] != 0x80 || gid[11] != 0xff || gid[12] != 0xfe) return false;
    const uint8_t inside[6] = {static_cast<uint8_t>(gid[8] ^ 0x02), gid[9], gid[10], gid[13], gid[14], gid[15]};
    __builtin_memcpy(mac, inside, sizeof inside);
    return true;
}

}  // namespace sim::uverbs
