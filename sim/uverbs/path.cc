// SPDX-License-Identifier: Apache-2.0
// See path.h.
// Source: Linux, ib_resolve_eth_dmac and rdma_resolve_ip: an address that nobody answers for ends in ETIMEDOUT.
#include "sim/uverbs/path.h"

#include <errno.h>

#include "sim/uverbs/nic.h"

namespace sim::uverbs {

int resolve_mac(uint32_t port, uint32_t gid_index, const uint8_t gid[16], uint8_t mac[6]) {
    Nic nic;
    if (!nic) return ENODEV;
    return -nic->neighbour(static_cast<int>(gid_index), gid, mac, port);
}

}  // namespace sim::uverbs
