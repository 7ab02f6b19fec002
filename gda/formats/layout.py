# SPDX-License-Identifier: Apache-2.0
"""Plain C structs of the device ABI (cuda/gda/handle.h), little-endian, with C's alignment.

Made by headers.py; used by gda/nic/handle.py to fill and read the handles that kernels take.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gda.errors import ArgumentError
from gda.formats.fields import Buffer

__all__ = ["Layout", "Member"]


@dataclass(frozen=True)
class Member:
    """One member: `offset` and `bytes` within its struct. `count` > 0 is an array of bytes."""

    name: str
    type: str
    offset: int
    bytes: int
    layout: Layout | None = None
    count: int = 0
    enum: builtins.type[IntEnum] | None = None
    comment: str = ""

    @property
    def is_padding(self) -> bool:
        """True for the padN members, which hold nothing."""
        return self.name.startswith("pad") and self.name[3:].isdigit()


@dataclass(frozen=True)
class Layout:
    """A C struct: its size, alignment and members in order."""

    name: str
    bytes: int
    alignment: int
    members: Mapping[str, Member]

    @property
    def offsets(self) -> dict[str, int]:
        """Byte offset of each member."""
        return {name: member.offset for name, member in self.members.items()}

    def offset(self, path: str) -> int:
        """Byte offset of a member by dotted path: "cq.ring"."""
        name, _, rest = path.partition(".")
        member = self._member(name)
        if not rest:
            return member.offset
        if member.layout is None:
            raise ArgumentError(f"member {name} of {self.name} is no struct, so {path!r} names nothing")
        return member.offset + member.layout.offset(rest)

    def pack(self, /, **values: Any) -> builtins.bytes:
        """Return the struct's bytes; members not given are zero. Nested structs by dict or bytes.

        Raises ArgumentError for an unknown member and a value that does not fit.
        """
        buffer = bytearray(self.bytes)
        for name, value in values.items():
            member = self._member(name)
            buffer[member.offset : member.offset + member.bytes] = self._packed(member, value)
        return bytes(buffer)

    def unpack(self, data: Buffer) -> dict[str, Any]:
        """Return all members but padding: integers, bytes for arrays, dicts for nested structs."""
        view = memoryview(data).cast("B")
        if view.nbytes != self.bytes:
            raise ArgumentError(f"struct {self.name} has {self.bytes} bytes, the buffer {view.nbytes}")
        return {m.name: _unpacked(m, view) for m in self.members.values() if not m.is_padding}

    def _member(self, name: str) -> Member:
        member = self.members.get(name)
        if member is None:
            raise ArgumentError(f"struct {self.name} has no member {name!r}", f"one of: {', '.join(self.members)}")
        return member

    def _packed(self, member: Member, value: Any) -> builtins.bytes:
        if member.layout is not None and isinstance(value, Mapping):
            return member.layout.pack(**value)
        if member.layout is not None or member.count:
            if not isinstance(value, Buffer) or memoryview(value).nbytes != member.bytes:
                raise ArgumentError(f"{self.name}.{member.name} takes exactly {member.bytes} bytes, not {value!r}")
            return bytes(value)
        limit = (1 << (8 * member.bytes)) - 1
        try:
            number = operator.index(value)
        except TypeError:
            raise ArgumentError(f"{self.name}.{member.name} takes a whole number, not {value!r}") from None
        if not 0 <= number <= limit:
            raise ArgumentError(f"{self.name}.{member.name} = {number} ({number:#x}) is outside 0..{limit:#x}")
        return number.to_bytes(member.bytes, "little")


def _unpacked(member: Member, view: memoryview) -> Any:
    part = view[member.offset : member.offset + member.bytes]
    if member.layout is not None:
        return member.layout.unpack(part)
    return bytes(part) if member.count else int.from_bytes(part, "little")
