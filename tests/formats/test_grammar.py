# SPDX-License-Identifier: Apache-2.0
"""The headers keep the grammar of bits.h, and the reader refuses what leaves it.

The first part reads the text by itself, line by line, so that a slack reader cannot hide a bad line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gda import formats
from gda.errors import GdaError
from gda.formats.headers import parse

DIRECTORY = formats.include_directory() / "gda" / "formats"
HEADERS = sorted(path for path in DIRECTORY.glob("*.h") if path.name != "bits.h")
NUMBER = r"(?:0x[0-9a-f]+|[0-9]+)"
LINES = {
    "outside": re.compile(
        r"|//.*|#pragma once|#include <gda/formats/\w+\.h>|namespace gda \{|namespace prm \{"
        r"|\}  // namespace (?:prm|gda)"
    ),
    "struct": re.compile(
        r"|\s*//.*|    u8 [A-Za-z]\w*\[0x[0-9a-f]+\](?:\[0x8\])?;(?:  +//.*)?|    struct \w+_bits \w+;(?:  +//.*)?"
    ),
    "enum": re.compile(rf"|\s*//.*|    [A-Z][A-Z0-9_]* = {NUMBER},(?:  +//.*)?"),
}
WHOLE_ENUM = re.compile(rf"enum \w+ \{{ [A-Z][A-Z0-9_]* = {NUMBER} \}};")


def names(pattern: str) -> list[str]:
    return [name for path in HEADERS for name in re.findall(pattern, path.read_text(), re.M)]


@pytest.mark.parametrize("path", HEADERS, ids=lambda p: p.name)
def test_every_line_is_in_the_grammar(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"^\s*#\s*(if|define|else|endif|undef)", text, re.M), "only #pragma once and #include"
    place = "outside"
    for number, line in enumerate(text.splitlines(), 1):
        if place == "outside" and (match := re.fullmatch(r"(struct|enum) \w+ \{", line)):
            place = match[1]
        elif place != "outside" and line == "};":
            place = "outside"
        else:
            assert LINES[place].fullmatch(line) or (place == "outside" and WHOLE_ENUM.fullmatch(line)), (
                f"{path.name}:{number} ({place}): {line}"
            )
    assert place == "outside"


def test_no_name_is_declared_twice() -> None:
    constants = names(rf"^\s+([A-Z][A-Z0-9_]*) = {NUMBER},") + names(r"^enum \w+ \{ (\w+) = ")
    every = names(r"^struct (\w+) \{") + names(r"^enum (\w+) \{") + constants
    assert len(every) == len(set(every)), sorted(name for name in every if every.count(name) > 1)


def test_the_reader_finds_what_the_text_declares() -> None:
    """Counted apart from the reader: nothing is passed over."""
    assert {f"{name}_bits" for name in formats.structs} == set(names(r"^struct (\w+) \{"))
    assert set(names(r"^enum (\w+) \{")) <= set(formats.enums)
    fields = names(r"^    u8 (?!reserved_at_)(\w+)") + names(r"^    struct \w+_bits (\w+);")
    assert sum(len(struct.fields) for struct in formats.structs.values()) == len(fields)


def test_every_enum_of_a_comment_exists() -> None:
    for name in names(r"// enum (\w+)"):
        assert name in formats.enums, name
    assert formats.wqe_ctrl_seg.fields["opcode"].enum is formats.enums["wqe_opcode"]


@pytest.mark.parametrize("struct", formats.structs.values(), ids=lambda s: s.name)
def test_fields_cover_the_format_without_overlap(struct: formats.Struct) -> None:
    at = 0
    for field in sorted((*struct.fields.values(), *struct.reserved), key=lambda f: f.offset_bits):
        assert field.offset_bits == at, f"{field.name} lies at {field.offset_bits:#x}, the one before ends at {at:#x}"
        if field.name.startswith("reserved_at_"):
            assert field.name == f"reserved_at_{at:x}"
        at += field.width_bits
    assert at == struct.bits
    assert at % 32 == 0


# ----- what the reader refuses

HEAD = "// x\n#pragma once\nnamespace gda {\nnamespace prm {\n"
GOOD = "enum e {\n    ONE = 0x1,\n};\nstruct a_bits {\n    u8 x[0x20];  // enum e\n};\n"
BAD = {
    "reserved name": (
        "struct b_bits {\n    u8 x[0x8];\n    u8 reserved_at_9[0x18];\n};",
        "x.h:13: reserved_at_9 lies at 0x8",
    ),
    "not a multiple of 32": ("struct b_bits {\n    u8 x[0x8];\n};", "0x8 bits, not a multiple of 32"),
    "empty": ("struct b_bits {\n};", "0x0 bits"),
    "across dwords": (
        "struct b_bits {\n    u8 x[0x18];\n    u8 y[0x10];\n    u8 z[0x18];\n};",
        "x.h:13: y has 16 bits",
    ),
    "48 bits": ("struct b_bits {\n    u8 x[0x30];\n    u8 y[0x10];\n};", "x has 48 bits"),
    "twice in one format": ("struct b_bits {\n    u8 x[0x20];\n    u8 x[0x20];\n};", "x.h:13: x is declared twice"),
    "format twice": ("struct a_bits {\n    u8 x[0x20];\n};", "a_bits is declared twice"),
    "enum twice": ("enum e {\n    TWO = 2,\n};", "e is declared twice"),
    "constant twice": ("enum f {\n    ONE = 2,\n};", "constant ONE is declared twice"),
    "unknown enum": ("struct b_bits {\n    u8 x[0x20];  // enum g\n};", "enum g is not declared"),
    "used before declared": ("struct b_bits {\n    struct c_bits x;\n};", "format c is not declared before"),
    "bytes of 16 bits": ("struct b_bits {\n    u8 x[0x2][0x10];\n};", "a byte string is"),
    "another type": ("struct b_bits {\n    u16 x[0x20];\n};", "not a field of the grammar: u16"),
    "bit-field": ("struct b_bits {\n    u8 x : 8;\n};", "not a field of the grammar"),
    "conditional": ("#if X", "not in the grammar of formats: #if X"),
    "computed constant": ("enum f {\n    TWO = 1 << 1,\n};", "x.h:12: not a line"),
    "no end": ("struct b_bits {\n    u8 x[0x20];\n", "does not end"),
}


def test_good_text_is_read() -> None:
    found = parse({"x.h": HEAD + GOOD})
    assert found.structs["a"].pack(x=1) == b"\0\0\0\1"
    assert found.constants["ONE"] == 1


@pytest.mark.parametrize("case", BAD)
def test_text_outside_the_grammar_is_refused(case: str) -> None:
    text, words = BAD[case]
    with pytest.raises(GdaError) as error:
        parse({"x.h": HEAD + GOOD + text})
    assert words in str(error.value)
    assert "x.h" in str(error.value)
