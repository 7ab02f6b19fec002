// SPDX-License-Identifier: Apache-2.0
// float16 (IEEE 754 binary16) and bfloat16 as 16 bits, to float and back, rounding to nearest even: the same bits from
// every compiler here, of which some know no such type. Used by collectives/element.h.
// Subnormal numbers and NaNs stay what they are; a NaN comes back quiet.
#pragma once

#include <gda/target/types.h>

namespace gda {
namespace target {

GDA_INLINE uint32_t bits_of(float v) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(v);
#else
    uint32_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    return bits;
#endif
}
GDA_INLINE float float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float v;
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
#endif
}

// binary16: sign, 5 bits of exponent biased by 15, 10 of fraction; float: 8 biased by 127, 23.
static constexpr uint32_t FLOAT_INFINITY = 0x7f800000, HALF_SIGN = 0x8000, HALF_INFINITY = 0x7c00;
static constexpr uint32_t REBIAS = (127 - 15) << 23;
static constexpr uint32_t SMALLEST_NORMAL_HALF = (127 - 14) << 23, HALF_OVERFLOWS = (127 + 16) << 23;  // as float bits

GDA_INLINE float float_of_half(uint16_t half) {
    uint32_t sign = (half & HALF_SIGN) << 16, rest = half & 0x7fffu;
    if (rest >= HALF_INFINITY) return float_of(sign | FLOAT_INFINITY | (rest - HALF_INFINITY) << 13);
    if (rest >= 0x400) return float_of(sign | ((rest << 13) + REBIAS));
    return float_of(sign | bits_of(static_cast<float>(rest) * (1.0f / 16777216.0f)));  // subnormal: units of 2^-24
}

GDA_INLINE uint16_t half_of_float(float v) {
    uint32_t bits = bits_of(v), sign = bits >> 16 & HALF_SIGN, rest = bits & 0x7fffffffu;
    if (rest > FLOAT_INFINITY) return static_cast<uint16_t>(sign | HALF_INFINITY | 0x200 | (rest >> 13 & 0x1ff));
    if (rest >= HALF_OVERFLOWS) return static_cast<uint16_t>(sign | HALF_INFINITY);
    // Below the normal numbers the unit is 2^-24, which is that of a float of 0.5: the sum rounds.
    if (rest < SMALLEST_NORMAL_HALF)
        return static_cast<uint16_t>(sign | (bits_of(float_of(rest) + 0.5f) - bits_of(0.5f)));
    return static_cast<uint16_t>(sign | ((rest - REBIAS + 0xfff + (rest >> 13 & 1)) >> 13));
}

// bfloat16 is the upper half of a float.
GDA_INLINE float float_of_bfloat16(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }
GDA_INLINE uint16_t bfloat16_of_float(float v) {
    uint32_t bits = bits_of(v);
    if ((bits & 0x7fffffffu) > FLOAT_INFINITY) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace target
}  // namespace gda
