# SPDX-License-Identifier: Apache-2.0
"""Reads cuda/gda/formats/*.h, handle.h and trace_ring.h as text: the grammar is written in bits.h.

The same files are compiled by g++, clang++, nvcc and NVRTC; here they become `Struct`, `IntEnum` and `Layout`
objects, once, when first asked for. A line that the grammar does not know is an error with file and line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

from gda.errors import GdaError, UnavailableError
from gda.formats.fields import Field, Struct
from gda.formats.layout import Layout, Member

__all__ = ["Declarations", "declarations", "include_directory", "parse"]

_COMMENT = r"\s*(?://\s*(?P<comment>.*))?"
_NUMBER = r"0x[0-9a-fA-F]+|\d+"
_U8 = re.compile(rf"u8 (?P<name>\w+)\[(?P<first>{_NUMBER})\](?:\[(?P<second>{_NUMBER})\])?;{_COMMENT}")
_NESTED = re.compile(rf"struct (?P<type>\w+)_bits (?P<name>\w+);{_COMMENT}")
_MEMBER = re.compile(rf"(?P<type>[a-z]\w*) (?P<name>\w+)(?:\[(?P<count>{_NUMBER})\])?;{_COMMENT}")
_CONSTANT = re.compile(rf"(?P<name>[A-Za-z]\w*) = (?P<value>{_NUMBER}),?{_COMMENT}")
_ENUM = re.compile(rf"enum (?:(?P<name>\w+) )?\{{(?: (?P<body>.*) \}};)?{_COMMENT}")
_STRUCT = re.compile(rf"struct (?P<name>\w+) \{{{_COMMENT}")
_TYPEDEF = re.compile(rf"typedef (?P<old>\w+) (?P<new>\w+);{_COMMENT}")
_OUTSIDE = re.compile(
    r"(?:#pragma once|#include <gda/[\w/]+\.h>|#define \w+\(.*|namespace \w+ \{|static_assert\(.*|GDA_ASSERT_AT\(.*"
    r"|\}  // namespace \w+|//.*)?"
)
_ENUM_COMMENT = re.compile(r"enum (\w+)(?:[:,;] *(.*))?")
_GRAMMAR = "the grammar is written in formats/bits.h"
_INTEGERS = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8}


def include_directory() -> Path:
    """Directory for the compiler's -I: holds gda/formats and the device library.

    In an installed package it is gda/include, in a source tree cuda. Raises UnavailableError when neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "include", package.parent / "cuda"):
        if (directory / "gda" / "formats" / "bits.h").is_file():
            return directory
    raise UnavailableError(
        f"the headers are missing: neither {package / 'include'} nor {package.parent / 'cuda'} holds gda/formats",
        "install the package again, or run from a complete source tree",
    )


@dataclass(frozen=True)
class Declarations:
    """Everything declared: formats, enums and C structs by name, and each constant of an enum by its own name."""

    structs: Mapping[str, Struct]
    enums: Mapping[str, type[IntEnum]]
    layouts: Mapping[str, Layout]
    constants: Mapping[str, IntEnum]


@functools.cache
def declarations() -> Declarations:
    """Read the headers of this installation. The result is shared and does not change."""
    root = include_directory() / "gda"
    paths = [path for path in sorted((root / "formats").glob("*.h")) if path.name != "bits.h"]
    paths += [root / name for name in ("handle.h", "trace_ring.h")]
    return parse({path.name: path.read_text("utf-8") for path in paths})


def parse(texts: Mapping[str, str]) -> Declarations:
    """Read header texts by file name. Raises GdaError with file and line for what the grammar does not allow."""
    found = _Found()
    for name, text in texts.items():
        _scan(name, text, found)
    enums = {name: _make_enum(name, values) for name, (values, _) in found.enums.items() if not name.startswith("<")}
    constants: dict[str, IntEnum] = {}
    for name, (values, where) in found.enums.items():
        for member in enums.get(name) or _make_enum("constant", values):
            if member.name in constants:
                raise GdaError(f"{where}: constant {member.name} is declared twice")
            constants[member.name] = member
    structs: dict[str, Struct] = {}
    layouts: dict[str, Layout] = {}
    for name, block in found.blocks.items():
        if name.endswith("_bits"):
            structs[name.removesuffix("_bits")] = _make_struct(block, structs, enums)
        else:
            layouts[name] = _make_layout(block, layouts, found.typedefs, enums)
    return Declarations(*(MappingProxyType(table) for table in (structs, enums, layouts, constants)))  # type: ignore[arg-type]


# ----- text to blocks


@dataclass
class _Block:
    name: str
    where: str
    lines: list[tuple[str, str]] = field(default_factory=list)  # (file:line, text)


@dataclass
class _Found:
    blocks: dict[str, _Block] = field(default_factory=dict)
    enums: dict[str, tuple[dict[str, int], str]] = field(default_factory=dict)
    typedefs: dict[str, str] = field(default_factory=dict)


def _scan(file: str, text: str, found: _Found) -> None:
    block: _Block | None = None
    values: dict[str, int] | None = None
    text = text.replace("\\\n", "")  # macros of handle.h that continue
    for number, raw in enumerate(text.splitlines(), 1):
        line, where = raw.strip(), f"{file}:{number}"
        if block is not None:
            if line == "};":
                block = None
            elif line and not line.startswith("//"):
                block.lines.append((where, line))
        elif values is not None:
            if line == "};":
                values = None
            elif line and not line.startswith("//"):
                _constant(line, where, values)
        elif match := _ENUM.fullmatch(line):
            values = {}
            name = match["name"] or f"<{where}>"
            _refuse_second(name, where, found)
            found.enums[name] = (values, where)
            if match["body"]:
                for part in match["body"].split(", "):
                    _constant(part, where, values)
                values = None
        elif match := _STRUCT.fullmatch(line):
            _refuse_second(match["name"], where, found)
            block = found.blocks[match["name"]] = _Block(match["name"], where)
        elif match := _TYPEDEF.fullmatch(line):
            found.typedefs[match["new"]] = match["old"]
        elif not _OUTSIDE.fullmatch(line):
            raise GdaError(f"{where}: not in the grammar of formats: {line}", _GRAMMAR)
    if block is not None or values is not None:
        raise GdaError(f"{file}: the last declaration does not end")


def _refuse_second(name: str, where: str, found: _Found) -> None:
    if name in found.blocks or name in found.enums or f"{name}_bits" in found.blocks:
        raise GdaError(f"{where}: {name} is declared twice")


def _constant(line: str, where: str, values: dict[str, int]) -> None:
    match = _CONSTANT.fullmatch(line)
    if not match:
        raise GdaError(f"{where}: not a line `NAME = number,` of an enum: {line}")
    values[match["name"]] = int(match["value"], 0)


# ----- blocks to objects


def _make_enum(name: str, values: Mapping[str, int]) -> type[IntEnum]:
    # The functional form is typed for literals only; module and qualname let members be pickled.
    return IntEnum(name, dict(values), module="gda.formats", qualname=name)  # type: ignore[return-value]


def _comment(text: str | None, where: str, enums: Mapping[str, type[IntEnum]]) -> tuple[type[IntEnum] | None, str]:
    match = _ENUM_COMMENT.fullmatch(text or "")
    if not match:
        return None, text or ""
    if match[1] not in enums:
        raise GdaError(f"{where}: enum {match[1]} is not declared")
    return enums[match[1]], match[2] or ""


def _make_struct(block: _Block, structs: Mapping[str, Struct], enums: Mapping[str, type[IntEnum]]) -> Struct:
    fields: dict[str, Field] = {}
    reserved: list[Field] = []
    offset = 0
    for where, line in block.lines:
        if match := _NESTED.fullmatch(line):
            inner = structs.get(match["type"])
            if inner is None:
                raise GdaError(f"{where}: format {match['type']} is not declared before it is used")
            item = Field(match["name"], offset, inner.bits, None, inner, 0, match["comment"] or "")
        elif match := _U8.fullmatch(line):
            first = int(match["first"], 0)
            if match["second"] and (int(match["second"], 0) != 8 or offset % 8):
                raise GdaError(f"{where}: a byte string is u8 name[count][0x8] and starts at a whole byte")
            enum, comment = _comment(match["comment"], where, enums)
            if match["second"]:
                item = Field(match["name"], offset, 8 * first, None, None, first, comment)
            else:
                item = Field(match["name"], offset, first, enum, None, 0, comment)
        else:
            raise GdaError(f"{where}: not a field of the grammar: {line}", _GRAMMAR)
        is_reserved = item.name.startswith("reserved_at_")
        if is_reserved and int(item.name.removeprefix("reserved_at_"), 16) != offset:
            raise GdaError(f"{where}: {item.name} lies at {offset:#x}")
        if item.is_number and not is_reserved and not _fits(offset, item.width_bits):
            raise GdaError(f"{where}: {item.name} has {item.width_bits} bits at {offset:#x}: not within one dword")
        if item.name in fields:
            raise GdaError(f"{where}: {item.name} is declared twice")
        if is_reserved:
            reserved.append(item)
        else:
            fields[item.name] = item
        offset += item.width_bits
    if offset % 32 or not offset:
        raise GdaError(f"{block.where}: {block.name} has {offset:#x} bits, not a multiple of 32")
    name = block.name.removesuffix("_bits")
    return Struct(name, offset, MappingProxyType(fields), tuple(reserved), block.where)


def _fits(offset: int, width: int) -> bool:
    if width == 64:
        return offset % 32 == 0
    return width > 0 and offset // 32 == (offset + width - 1) // 32


def _make_layout(
    block: _Block, layouts: Mapping[str, Layout], typedefs: Mapping[str, str], enums: Mapping[str, type[IntEnum]]
) -> Layout:
    members: dict[str, Member] = {}
    offset, widest = 0, 1
    for where, line in block.lines:
        match = _MEMBER.fullmatch(line)
        kind = typedefs.get(match["type"], match["type"]) if match else ""
        inner = layouts.get(kind)
        if not match or (inner is None and kind not in _INTEGERS):
            raise GdaError(f"{where}: not a member `type name;` of a known type: {line}")
        size, alignment = (inner.bytes, inner.alignment) if inner else (_INTEGERS[kind], _INTEGERS[kind])
        count = int(match["count"] or "0", 0)
        if count and size != 1:
            raise GdaError(f"{where}: only arrays of uint8_t are known: {line}")
        offset = -(-offset // alignment) * alignment
        widest = max(widest, alignment)
        enum, comment = _comment(match["comment"], where, enums)
        name, total = match["name"], size * (count or 1)
        members[name] = Member(name, match["type"], offset, total, inner, count, enum, comment)
        offset += total
    return Layout(block.name, -(-offset // widest) * widest, widest, MappingProxyType(members))
