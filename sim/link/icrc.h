// SPDX-License-Identifier: Apache-2.0
// The checksum at the end of a packet. Called by wire.h only.
// Source: InfiniBand Architecture Specification, volume 1, "Invariant CRC": the CRC of Ethernet (IEEE 802.3), stored
// least significant byte first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

class Crc32 {
   public:
    void add(const void* data, size_t bytes);
    uint32_t value() const { return ~state_; }

   private:
    uint32_t state_ = 0xffffffffu;
};

}  // namespace sim
