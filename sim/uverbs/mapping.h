// SPDX-License-Identifier: Apache-2.0
// What stands behind an address range: whether memory can be registered (what pinning its pages would tell the real
// driver), and whether it is a doorbell page of ours.
#pragma once

#include <cstdint>

namespace sim::uverbs {

// 0 when all of the range is mapped with the rights a NIC needs, or is memory of a GPU; else EFAULT.
int check_mapped(uint64_t address, uint64_t bytes, bool writable);

// Whether all of the range lies in doorbell pages that the program mapped from one device file of ours.
bool is_doorbell_page(uint64_t address, uint64_t bytes);

}  // namespace sim::uverbs
