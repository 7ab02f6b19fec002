# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/handle.h: Python's layouts are the compiler's, byte for byte; the same four tests for plain C structs."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from gda import formats
from gda.errors import ArgumentError, GdaError
from gda.formats import Layout, Member
from gda.formats.headers import parse

from . import compilers

LAYOUTS = [pytest.param(layout, id=name) for name, layout in formats.layouts.items()]


def leaves(layout: Layout, prefix: str = "") -> list[tuple[str, Member]]:
    """Integers and arrays of bytes by path, also of nested structs."""
    found: list[tuple[str, Member]] = []
    for name, member in layout.members.items():
        if member.layout is not None:
            found += leaves(member.layout, f"{prefix}{name}.")
        elif not member.is_padding:
            found.append((f"{prefix}{name}", member))
    return found


def paddings(layout: Layout, at: int = 0) -> list[tuple[int, Member]]:
    """Padding members with their offsets, also of nested structs."""
    found = []
    for member in layout.members.values():
        if member.is_padding:
            found.append((at + member.offset, member))
        elif member.layout is not None:
            found += paddings(member.layout, at + member.offset)
    return found


def value_of(layout: Layout, path: str, member: Member) -> int | bytes:
    seed = f"{layout.name}.{path}".encode()
    if member.count:
        return bytes((zlib.crc32(seed) + 7 * i) % 256 for i in range(member.count))
    return (zlib.crc32(seed) << 32 | zlib.crc32(b"low" + seed)) & ((1 << 8 * member.bytes) - 1)


def nested(layout: Layout, prefix: str = "") -> dict[str, object]:
    root = prefix.split(".", maxsplit=1)[0] if prefix else layout.name
    outer = formats.layouts[root]
    path = prefix.partition(".")[2]
    result: dict[str, object] = {}
    for name, member in layout.members.items():
        if member.is_padding:
            continue
        if member.layout is not None:
            result[name] = nested(member.layout, f"{prefix or layout.name + '.'}{name}.")
        else:
            result[name] = value_of(outer, path + name, member)
    return result


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Each struct as the C++ compiler lays it out, on memory that was poisoned first."""
    compiler = compilers.find("g++")
    lines = [f"#include <{name}>" for name in ("gda/handle.h", "gda/trace_ring.h", "cstdio", "cstring")]
    lines.append("int main() {")
    for layout in formats.layouts.values():
        lines += ["{", f"{layout.name} h; memset(static_cast<void*>(&h), 0xa5, sizeof h);"]
        for path, member in leaves(layout):
            value = value_of(layout, path, member)
            if isinstance(value, bytes):
                lines += [f"h.{path}[{i}] = {byte};" for i, byte in enumerate(value)]
            else:
                lines.append(f"h.{path} = {value:#x}ull;")
        lines.append("const unsigned char* p = reinterpret_cast<const unsigned char*>(&h);")
        lines.append(f'printf("{layout.name} "); for (unsigned i = 0; i < sizeof h; i++) printf("%02x", p[i]);')
        lines.append('printf("\\n"); }')
    directory = tmp_path_factory.mktemp("handle")
    source = directory / "handle.cc"
    source.write_text("\n".join([*lines, "return 0; }", ""]))
    out = compilers.run(compilers.build(compiler, source, directory, "-std=c++17"))
    return {name: bytes.fromhex(data) for name, data in (line.split() for line in out.splitlines())}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deconstruct(layout: Layout, golden: dict[str, bytes]) -> None:
    data = golden[layout.name]
    assert len(data) == layout.bytes
    for path, member in leaves(layout):
        at = layout.offset(path)
        value = value_of(layout, path, member)
        found = data[at : at + member.bytes]
        assert (found if isinstance(value, bytes) else int.from_bytes(found, "little")) == value, path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parse(layout: Layout, golden: dict[str, bytes]) -> None:
    assert layout.unpack(golden[layout.name]) == nested(layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_construct_and_emit(layout: Layout, golden: dict[str, bytes]) -> None:
    """Padding is zero in what Python packs, poison in what C++ left; everything else is equal."""
    expected = bytearray(golden[layout.name])
    for at, member in paddings(layout):
        assert set(expected[at : at + member.bytes]) == {0xA5}, member.name
        expected[at : at + member.bytes] = bytes(member.bytes)
    assert layout.pack(**nested(layout)) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_members_cover_the_struct(layout: Layout) -> None:
    """No hole that a compiler would fill by itself: the padding is written down."""
    at = 0
    for member in layout.members.values():
        assert member.offset == at, member.name
        at += member.bytes
    assert at == layout.bytes


def test_a_nested_struct_may_be_given_packed() -> None:
    cq = formats.gda_cq.pack(ring=0x1000, cqn=5)
    assert formats.gda_qp.pack(cq=cq) == formats.gda_qp.pack(cq={"ring": 0x1000, "cqn": 5})
    assert formats.gda_qp.unpack(formats.gda_qp.pack(cq=cq))["cq"]["cqn"] == 5
    assert formats.gda_qp.offset("cq.ring") == formats.gda_qp.offsets["cq"]


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="struct gda_qp has no member 'pd'"):
        formats.gda_qp.pack(pd=1)
    with pytest.raises(ArgumentError, match=r"gda_qp\.qpn = 4294967296 \(0x100000000\) is outside 0\.\.0xffffffff"):
        formats.gda_qp.pack(qpn=1 << 32)
    with pytest.raises(ArgumentError, match=r"gda_qp\.qpn takes a whole number"):
        formats.gda_qp.pack(qpn="1")
    with pytest.raises(ArgumentError, match=r"gda_qp\.cq takes exactly 32 bytes"):
        formats.gda_qp.pack(cq=bytes(31))
    with pytest.raises(ArgumentError, match="struct gda_mr has 32 bytes, the buffer 33"):
        formats.gda_mr.unpack(bytes(33))
    with pytest.raises(ArgumentError, match="no struct"):
        formats.gda_qp.offset("qpn.x")


@pytest.mark.parametrize(
    ("line", "words"),
    [("float x;", "not a member"), ("void* x;", "not a member"), ("uint64_t x[2];", "only arrays of uint8_t")],
)
def test_members_outside_the_table_are_refused(line: str, words: str) -> None:
    with pytest.raises(GdaError, match=words):
        parse({"h.h": f"struct s {{\n    {line}\n}};\n"})


def test_an_asserted_offset_that_moved_does_not_compile(tmp_path: Path) -> None:
    """handle.h guards its ABI by itself: one member more and the compiler stops."""
    compiler = compilers.find("g++")
    text = (formats.include_directory() / "gda" / "handle.h").read_text()
    moved = text.replace("    uint64_t sq; ", "    uint64_t more;\n    uint64_t sq; ")
    assert moved != text
    source = tmp_path / "moved.cc"
    source.write_text(moved)
    result = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", f"-I{formats.include_directory()}", str(source)],
        capture_output=True,
        text=True,
    )
    assert result.returncode
    assert "change GDA_HANDLE_VERSION" in result.stderr
