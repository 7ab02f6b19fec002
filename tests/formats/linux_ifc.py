# SPDX-License-Identifier: Apache-2.0
"""Reads Linux's include/linux/mlx5/mlx5_ifc.h: where the kernel driver believes each field of a command to be.

An independent reader of an independent declaration; it shares nothing with gda.formats.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = "linux-headers-amd64 (or linux-headers-arm64)"
_TOKEN = re.compile(r"0x[0-9a-fA-F]+|\w+|[{}\[\];]")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)

Members = dict[str, tuple[int, int]]  # name -> (offset, width) in bits

# What kernels say differently from each other: format -> field -> what an older or newer one may say instead,
# (name there, bits before ours where it starts, width). Ours is the meaning that every card has.
VARIANTS: dict[str, dict[str, tuple[str, int, int]]] = {
    # Before 6.4 one capability bit stood for both; ours are the later names.
    "cmd_hca_cap": {
        "relaxed_ordering_read_pci_enabled": ("relaxed_ordering_read", 0, 1),
        "relaxed_ordering_read": ("relaxed_ordering_read", 0x32A - 0xE9, 1),
    },
    # Since 6.12 with one bit more above, for pages of 4 GiB and more.
    "mkc": {"log_page_size": ("log_page_size", 1, 6)},
}


def directory() -> Path:
    """include/ of an installed kernel header package, or skip the test."""
    found = sorted(Path("/usr/src").glob("linux-headers-*-common/include/linux/mlx5/mlx5_ifc.h"))
    if not found:
        pytest.skip(f"not run: no linux/mlx5/mlx5_ifc.h under /usr/src; apt-get install {PACKAGE}")
    return found[-1].parents[2]


class Kernel:
    """The structs and unions of the header, by name without mlx5_ifc_ and _bits."""

    def __init__(self) -> None:
        text = "".join((directory() / "linux/mlx5" / name).read_text() for name in ("mlx5_ifc_fpga.h", "mlx5_ifc.h"))
        pattern = re.compile(r"^(struct|union) mlx5_ifc_(\w+?)(?:_bits)? \{(.*?)^\};", re.M | re.S)
        self._bodies = {name: (kind, body) for kind, name, body in pattern.findall(_COMMENT.sub("", text))}
        self._done: dict[str, tuple[int, Members]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def struct(self, name: str) -> tuple[int, Members]:
        """Size in bits, and members; those of nameless structs and unions count as the outer one's."""
        if name not in self._done:
            kind, body = self._bodies[name]
            members: Members = {}
            self._done[name] = (self._read([*_TOKEN.findall(body), "}"], kind, 0, members), members)
        return self._done[name]

    def _read(self, tokens: list[str], kind: str, start: int, members: Members) -> int:
        # Consumes members up to the closing brace; returns their size.
        offset, largest = start, 0
        while (token := tokens.pop(0)) != "}":
            inner: Members = {}
            if token == "u8":
                width = 1
            elif tokens[0] == "{":
                tokens.pop(0)
                width = self._read(tokens, token, offset, inner)
            else:
                width = self.struct(tokens.pop(0).removeprefix("mlx5_ifc_").removesuffix("_bits"))[0]
            name = "" if tokens[0] == ";" else tokens.pop(0)
            while tokens.pop(0) == "[":
                count = tokens.pop(0)
                width *= 0 if count == "]" else int(count, 0)  # [] is a tail of any length
                if count != "]":
                    tokens.pop(0)
            if name:
                members[name] = (offset, width)
            else:
                members.update(inner)
            largest = max(largest, width)
            offset += width if kind == "struct" else 0
        return offset - start if kind == "struct" else largest


def enum_values(*names: str) -> dict[str, int]:
    """Constants in the enums of linux/mlx5/NAME: numbers, number << number, BIT(number), and those that count on."""
    text = _COMMENT.sub("", "".join((directory() / "linux/mlx5" / name).read_text() for name in names))
    found: dict[str, int] = {}
    for body in re.findall(r"\benum(?: \w+)? \{([^{}]*)\}", text):
        following: int | None = 0
        for item in body.split(","):
            name, equals, value = (part.strip() for part in item.partition("="))
            if equals:
                value = re.sub(r"^BIT\((\d+)\)$", r"1 << \1", value)
                match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)\s*(?:<<\s*(0[xX][0-9a-fA-F]+|\d+))?", value)
                following = int(match[1], 0) << int(match[2] or "0", 0) if match else None  # other expressions: unknown
            if name and following is not None:
                found[name] = following
                following += 1
    return found
