// SPDX-License-Identifier: Apache-2.0
// Whether memory can be registered: what pinning its pages would tell the real driver.
#pragma once

#include <cstdint>

namespace sim::uverbs {

// 0 when all of the range is mapped with the rights a NIC needs, or is memory of a GPU; else EFAULT.
int check_mapped(uint64_t address, uint64_t bytes, bool writable);

}  // namespace sim::uverbs
