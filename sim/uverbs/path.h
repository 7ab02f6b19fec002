// SPDX-License-Identifier: Apache-2.0
// From a GID to the MAC behind it: what the kernel's neighbour tables answer for RoCE. Used for address handles and
// for the path of a connected queue pair.
#pragma once

#include <cstdint>

namespace sim::uverbs {

// For packets from entry `gid_index` of a port to `gid`. 0 or the kernel's errno: EINVAL (no such port or index),
// ENODATA (an empty entry), ETIMEDOUT (nobody on the link answers), EHOSTUNREACH.
int resolve_mac(uint32_t port, uint32_t gid_index, const uint8_t gid[16], uint8_t mac[6]);

}  // namespace sim::uverbs
