// SPDX-License-Identifier: Apache-2.0
// How a format is declared and read. A format is a struct of `u8 field[width in bits]`, most significant bit first,
// in the order of the Programmer's Reference Manual: the idiom of Linux's mlx5_ifc.h, so both can be compared by
// machine. Such a struct is never instantiated; sizeof and offsetof of its members, read as bits, place the field.
//
// Grammar (tests/formats keeps it; gda/formats/headers.py reads the same text):
//   struct NAME_bits {                        // one format; its size is a multiple of 32 bits
//       u8 field[0x18];                       // an unsigned field of 1..32 bits within one dword, or of 64 bits
//       u8 field[0x8];  // enum NAME          // ... whose values have names
//       u8 field[0x10][0x8];                  // bytes: a string of 8-bit elements, no byte order
//       struct OTHER_bits field;              // a nested format
//       u8 reserved_at_OFFSET[0x8];           // OFFSET in hex, in bits: checked against the real one
//   };
//   enum NAME { CONSTANT = 0x1, ... };
//
// No other file shifts or masks a format.
#pragma once

#include <gda/target/types.h>

namespace gda {
namespace prm {
typedef uint8_t u8;
}

namespace bits {

template <uint32_t OFFSET, uint32_t WIDTH>
struct place {
    static_assert(WIDTH >= 1 && (WIDTH <= 32 || WIDTH == 64), "a field has 1..32 or 64 bits");
    static_assert(WIDTH == 64 ? OFFSET % 32 == 0 : OFFSET / 32 == (OFFSET + WIDTH - 1) / 32,
                  "a field lies within one dword, or is two whole ones");
    static constexpr uint32_t byte = OFFSET / 32 * 4;
    static constexpr uint32_t shift = WIDTH == 64 ? 0 : (32 - WIDTH - OFFSET % 32) % 32;
    static constexpr uint32_t mask = WIDTH >= 32 ? 0xffffffffu : (1u << (WIDTH % 32)) - 1;

    // The field's bits at their place in its dword, in host byte order: or several together, then be32() once.
    static GDA_INLINE constexpr uint32_t in_dword(uint32_t value) {
        static_assert(WIDTH <= 32, "a 64-bit field is not part of a dword");
        return (value & mask) << shift;
    }
    static GDA_INLINE constexpr uint32_t from_dword(uint32_t dword) {
        static_assert(WIDTH <= 32, "a 64-bit field is not part of a dword");
        return (dword >> shift) & mask;
    }
    static GDA_INLINE void set(void* buffer, uint64_t value) {
        uint8_t* p = static_cast<uint8_t*>(buffer) + byte;
        if (WIDTH == 64) {
            store32(p, be32(static_cast<uint32_t>(value >> 32)));
            store32(p + 4, be32(static_cast<uint32_t>(value)));
        } else {
            uint32_t dword = be32(load32(p));
            dword = (dword & ~(mask << shift)) | ((static_cast<uint32_t>(value) & mask) << shift);
            store32(p, be32(dword));
        }
    }
    static GDA_INLINE uint64_t get(const void* buffer) {
        const uint8_t* p = static_cast<const uint8_t*>(buffer) + byte;
        uint32_t first = be32(load32(p));
        if (WIDTH == 64) return (static_cast<uint64_t>(first) << 32) | be32(load32(p + 4));
        return (first >> shift) & mask;
    }
};

}  // namespace bits
}  // namespace gda

// TYPE is the struct's name without _bits; FIELD may name a member of a nested format: qpc.primary_address_path.rlid
#define GDA_BIT_OFFSET(TYPE, FIELD) (static_cast<uint32_t>(GDA_OFFSETOF(::gda::prm::TYPE##_bits, FIELD)))
#define GDA_BIT_WIDTH(TYPE, FIELD) (static_cast<uint32_t>(sizeof(static_cast<::gda::prm::TYPE##_bits*>(0)->FIELD)))
#define GDA_BYTES_OF(TYPE) (static_cast<uint32_t>(sizeof(::gda::prm::TYPE##_bits) / 8))
#define GDA_BYTE_OFFSET(TYPE, FIELD) (GDA_BIT_OFFSET(TYPE, FIELD) / 8)
#define GDA_PLACE(TYPE, FIELD) ::gda::bits::place<GDA_BIT_OFFSET(TYPE, FIELD), GDA_BIT_WIDTH(TYPE, FIELD)>

// A field's contribution to its dword, host byte order (device code builds a dword from these and swaps once).
#define GDA_FIELD(TYPE, FIELD, VALUE) (GDA_PLACE(TYPE, FIELD)::in_dword(VALUE))
// A field out of its dword, host byte order.
#define GDA_EXTRACT(TYPE, FIELD, DWORD) (GDA_PLACE(TYPE, FIELD)::from_dword(DWORD))
// A field in a whole buffer of bytes.
#define GDA_SET(TYPE, BUFFER, FIELD, VALUE) (GDA_PLACE(TYPE, FIELD)::set((BUFFER), (VALUE)))
#define GDA_GET(TYPE, BUFFER, FIELD) (GDA_PLACE(TYPE, FIELD)::get(BUFFER))
// The dword that holds a field: byte offset in the format.
#define GDA_DWORD_OFFSET(TYPE, FIELD) (GDA_PLACE(TYPE, FIELD)::byte)
