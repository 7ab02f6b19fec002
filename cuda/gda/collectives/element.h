// SPDX-License-Identifier: Apache-2.0
// What collectives that compute can compute with: types of elements, and operations on two of them. Used by link.h,
// reduce_scatter.h and all_reduce.h; document: docs/programs.md, "Reduce-scatter and all-reduce".
//
// Types: int8_t to int64_t, uint8_t to uint64_t, float, double, gda_half, gda_bfloat16. Operations: gda_sum, gda_prod,
// gda_min, gda_max. Integers wrap. The two of 16 bits are computed as float and rounded once, to nearest even; so
// NumPy has the same bits of float16. Of equal numbers min and max take the second (so of -0 and 0 it depends on the
// order, which collectives fix); a NaN is the answer, the first one if both are.
#pragma once

#include <gda/target.h>
#include <gda/target/narrow.h>

struct gda_half {
    uint16_t bits;
};
struct gda_bfloat16 {
    uint16_t bits;
};

namespace gda {

// Floating-point numbers that the compiler knows.
template <class T>
struct number {
    static GDA_MEMBER T sum(T a, T b) { return a + b; }
    static GDA_MEMBER T product(T a, T b) { return a * b; }
    static GDA_MEMBER bool less(T a, T b) { return a < b; }
    static GDA_MEMBER bool nan(T a) { return a != a; }
};

// Integers: as unsigned numbers, whose overflow is defined, and no narrower than what C++ would promote to.
template <class T, class U>
struct wrapping {
    static GDA_MEMBER T sum(T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }
    static GDA_MEMBER T product(T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); }
    static GDA_MEMBER bool less(T a, T b) { return a < b; }
    static GDA_MEMBER bool nan(T) { return false; }
};
#define GDA_WRAPS(T, U) \
    template <>         \
    struct number<T> : wrapping<T, U> {};
GDA_WRAPS(int8_t, uint32_t)
GDA_WRAPS(int16_t, uint32_t)
GDA_WRAPS(int32_t, uint32_t)
GDA_WRAPS(int64_t, uint64_t)
GDA_WRAPS(uint8_t, uint32_t)
GDA_WRAPS(uint16_t, uint32_t)
GDA_WRAPS(uint32_t, uint32_t)
GDA_WRAPS(uint64_t, uint64_t)
#undef GDA_WRAPS

#define GDA_NARROW(T, WIDEN, NARROW)                                                                                   \
    template <>                                                                                                        \
    struct number<T> {                                                                                                 \
        static GDA_MEMBER T sum(T a, T b) { return T{target::NARROW(target::WIDEN(a.bits) + target::WIDEN(b.bits))}; } \
        static GDA_MEMBER T product(T a, T b) {                                                                        \
            return T{target::NARROW(target::WIDEN(a.bits) * target::WIDEN(b.bits))};                                   \
        }                                                                                                              \
        static GDA_MEMBER bool less(T a, T b) { return target::WIDEN(a.bits) < target::WIDEN(b.bits); }                \
        static GDA_MEMBER bool nan(T a) { return target::WIDEN(a.bits) != target::WIDEN(a.bits); }                     \
    };
GDA_NARROW(gda_half, float_of_half, half_of_float)
GDA_NARROW(gda_bfloat16, float_of_bfloat16, bfloat16_of_float)
#undef GDA_NARROW

// For steps that only take what arrives.
struct take {
    template <class T>
    static GDA_MEMBER T of(T arrived, T) {
        return arrived;
    }
};

// For those whose own value comes first.
template <class Op>
struct swapped {
    template <class T>
    static GDA_MEMBER T of(T arrived, T own) {
        return Op::of(own, arrived);
    }
};

}  // namespace gda

struct gda_sum {
    template <class T>
    static GDA_MEMBER T of(T a, T b) {
        return gda::number<T>::sum(a, b);
    }
};
struct gda_prod {
    template <class T>
    static GDA_MEMBER T of(T a, T b) {
        return gda::number<T>::product(a, b);
    }
};
struct gda_min {
    template <class T>
    static GDA_MEMBER T of(T a, T b) {
        return gda::number<T>::less(a, b) || gda::number<T>::nan(a) ? a : b;
    }
};
struct gda_max {
    template <class T>
    static GDA_MEMBER T of(T a, T b) {
        return gda::number<T>::less(b, a) || gda::number<T>::nan(a) ? a : b;
    }
};
