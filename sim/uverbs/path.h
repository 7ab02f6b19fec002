// SPDX-License-Identifier: Apache-2.0
// From a GID to the MAC behind it: what the kernel's neighbour tables answer for RoCE. Used for address handles and
// for the path of a connected queue pair.
#pragma once

#include <cstdint>

namespace sim::uverbs {

// False where no such neighbour can exist (the kernel: EHOSTUNREACH).
bool resolve_mac(const uint8_t gid[16], uint8_t mac[6]);

}  // namespace sim::uverbs
