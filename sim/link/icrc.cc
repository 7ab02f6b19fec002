// SPDX-License-Identifier: Apache-2.0
// See icrc.h. Eight bytes a round: table n holds what a byte does to the remainder when n zero bytes follow it.

#include "sim/link/icrc.h"

#include <array>
#include <cstring>

namespace sim {

namespace {

const uint32_t POLYNOMIAL = 0xedb88320u;  // of IEEE 802.3, reflected

struct Tables {
    std::array<std::array<uint32_t, 256>, 8> of;
    constexpr Tables() : of() {
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t remainder = i;
            for (int bit = 0; bit < 8; ++bit) {
                remainder = (remainder >> 1) ^ ((remainder & 1) ? POLYNOMIAL : 0);
            }
            of[0][i] = remainder;
        }
        for (size_t n = 1; n < 8; ++n) {
            for (uint32_t i = 0; i < 256; ++i) of[n][i] = (of[n - 1][i] >> 8) ^ of[0][of[n - 1][i] & 0xff];
        }
    }
};
constexpr Tables TABLES;

uint32_t little(const uint8_t* p) {
    return p[0] | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
           static_cast<uint32_t>(p[3]) << 24;
}

}  // namespace

void Crc32::add(const void* data, size_t bytes) {
    const uint8_t* p = static_cast<const uint8_t*>(data);
    uint32_t c = state_;
    const auto& t = TABLES.of;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        const uint32_t low = little(p) ^ c, high = little(p + 4);
        c = t[7][low & 0xff] ^ t[6][(low >> 8) & 0xff] ^ t[5][(low >> 16) & 0xff] ^ t[4][low >> 24] ^
            t[3][high & 0xff] ^ t[2][(high >> 8) & 0xff] ^ t[1][(high >> 16) & 0xff] ^ t[0][high >> 24];
    }
    for (; bytes; --bytes, ++p) c = (c >> 8) ^ t[0][(c ^ *p) & 0xff];
    state_ = c;
}

}  // namespace sim
