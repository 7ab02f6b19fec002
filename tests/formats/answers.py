# SPDX-License-Identifier: Apache-2.0
"""Writes C++ that asks a compiler everything that Python believes of the headers.

Places, widths, sizes, constants and the folding of GDA_FIELD are static_asserts: a compiler that accepts the file has
answered. What needs running (GDA_SET onto poison, GDA_GET, GDA_FIELD of a value that is not constant) is in check()
and returns the number of wrong answers; the formats that device code writes are checked by a kernel too.
"""

from __future__ import annotations

import zlib

from gda import formats
from gda.formats import Field, Struct

from .golden import paths
from .quad import POISON

DEVICE_HEADERS = ("wqe.h", "cqe.h", "doorbell.h", "status.h", "packet.h")


def value_of(struct: Struct, path: str, field: Field) -> int:
    """A value for a field, made from its name; neither zero nor all ones where there is room."""
    seed = f"{struct.name}/{path}".encode()
    value = (zlib.crc32(seed) << 32 | zlib.crc32(b"low" + seed)) & ((1 << field.width_bits) - 1)
    return value or 1


def numbers(struct: Struct) -> list[tuple[str, Field]]:
    """Fields that GDA_SET and GDA_GET take."""
    return [(path, field) for path, field in paths(struct) if field.is_number]


def source() -> str:
    """The whole file: for g++ and clang++ a program, for nvcc a program with a kernel, for NVRTC a kernel."""
    headers = sorted(path.name for path in (formats.include_directory() / "gda" / "formats").glob("*.h"))
    lines = [f"#include <gda/formats/{name}>" for name in headers]
    lines += ["#include <gda/handle.h>", "#include <gda/trace_ring.h>", ""]
    lines += ["using namespace gda::prm;", ""]
    for name, enum in formats.enums.items():
        scope = "::" if name.startswith("gda_") else "::gda::prm::"
        lines += [f"static_assert({scope}{member.name} == {member.value:#x}u);" for member in enum]
    lines.append(f"static_assert(::GDA_HANDLE_VERSION == {formats.GDA_HANDLE_VERSION:#x}u);")
    for struct in formats.structs.values():
        lines += _static(struct)
    for layout in formats.layouts.values():
        size, alignment = f"sizeof({layout.name})", f"alignof({layout.name})"
        lines.append(f"static_assert({size} == {layout.bytes} && {alignment} == {layout.alignment});")
        for name, offset in layout.offsets.items():
            lines.append(f"static_assert(GDA_OFFSETOF({layout.name}, {name}) == {offset});")
    lines.append(_CHECK)
    device = [s for s in formats.structs.values() if s.source.split(":")[0] in DEVICE_HEADERS]
    other = [s for s in formats.structs.values() if s not in device]
    lines += _function("GDA_INLINE unsigned", "check_device", device)
    lines += _function("GDA_INLINE unsigned", "check_other", other)
    return "\n".join([*lines, ""])


FILL = f"{POISON * 0x01010101:#x}u"
_CHECK = f"""
// GDA_SET on a poisoned buffer gives exactly these dwords and leaves all others; GDA_GET gives the value back.
#define CHECK(TYPE, FIELD, VALUE, FIRST, SECOND)                                                        \\
    do {{                                                                                               \\
        constexpr uint32_t at = GDA_DWORD_OFFSET(TYPE, FIELD) / 4, two = GDA_BIT_WIDTH(TYPE, FIELD) == 64;\\
        uint32_t words[GDA_BYTES_OF(TYPE) / 4];                                                         \\
        for (uint32_t& word : words) word = {FILL};                                                     \\
        GDA_SET(TYPE, words, FIELD, VALUE);                                                             \\
        for (uint32_t i = 0; i < GDA_BYTES_OF(TYPE) / 4; i++)                                           \\
            bad += gda::be32(words[i]) !=                                                               \\
                   (i == at ? (FIRST) : two && i == at + 1 ? (SECOND) : {FILL});                        \\
        bad += GDA_GET(TYPE, words, FIELD) != (VALUE);                                                  \\
    }} while (0)
"""


def _static(struct: Struct) -> list[str]:
    name = struct.name
    lines = [f"static_assert(GDA_BYTES_OF({name}) == {struct.bytes});"]
    for path, field in paths(struct):
        offset = struct.offset(path)
        lines.append(
            f"static_assert(GDA_BIT_OFFSET({name}, {path}) == {offset:#x} && "
            f"GDA_BIT_WIDTH({name}, {path}) == {field.width_bits:#x});"
        )
        if field.count_bytes:
            lines.append(f"static_assert(GDA_BYTE_OFFSET({name}, {path}) == {offset // 8});")
        elif field.width_bits <= 32:  # folded by the compiler: the cost of a declared constant is nothing
            value, dword = _in_dword(struct, path, field)
            lines.append(f"static_assert(GDA_FIELD({name}, {path}, {value:#x}u) == {dword:#x}u);")
            lines.append(f"static_assert(GDA_EXTRACT({name}, {path}, {dword:#x}u) == {value:#x}u);")
            lines.append(f"static_assert(GDA_DWORD_OFFSET({name}, {path}) == {offset // 32 * 4});")
    return lines


def _in_dword(struct: Struct, path: str, field: Field) -> tuple[int, int]:
    value = value_of(struct, path, field)
    buffer = bytearray(struct.bytes)
    struct.set(buffer, path, value)
    first = struct.offset(path) // 32 * 4
    return value, int.from_bytes(buffer[first : first + 4], "big")


def _function(prefix: str, name: str, structs: list[Struct]) -> list[str]:
    lines = [f"{prefix} {name}(uint32_t zero) {{", "    unsigned bad = 0;"]
    for struct in structs:
        for path, field in numbers(struct):
            value = value_of(struct, path, field)
            buffer = bytearray([POISON]) * struct.bytes
            struct.set(buffer, path, value)
            at = struct.offset(path) // 32 * 4
            words = [int.from_bytes(buffer[at + i : at + i + 4], "big") for i in (0, 4)]
            lines.append(f"    CHECK({struct.name}, {path}, {value:#x}ull | zero, {words[0]:#x}u, {words[1]:#x}u);")
            if field.width_bits <= 32:
                dword = _in_dword(struct, path, field)[1]
                lines.append(f"    bad += GDA_FIELD({struct.name}, {path}, {value:#x}u | zero) != {dword:#x}u;")
                lines.append(f"    bad += GDA_EXTRACT({struct.name}, {path}, {dword:#x}u | zero) != {value:#x}u;")
    return [*lines, "    return bad;", "}", ""]


HOST_MAIN = """
#include <cstdio>
int main(int argc, char**) {
    unsigned bad = check_device(argc - 1) + check_other(argc - 1);
    std::printf("%u wrong answers\\n", bad);
    return bad != 0;
}
"""

KERNEL = """
extern "C" __global__ void formats_check(unsigned* bad, unsigned zero) { *bad = check_device(zero); }
"""
