# SPDX-License-Identifier: Apache-2.0
"""Formats of the NIC as Python sees them: named bit fields, most significant bit first.

`Field` says where a value lies, `Struct` packs and unpacks whole formats. Both are made by headers.py from the text
of cuda/gda/formats/*.h and never change. Used by everybody who reads or writes a format in Python; no other Python
code shifts or masks one.
"""

from __future__ import annotations

import builtins
import difflib
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gda.errors import ArgumentError

__all__ = ["Buffer", "Field", "Struct", "value_text"]

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Field:
    """One field of a format. `offset_bits` counts from the format's first bit, which is the highest of byte 0.

    A byte string has `count_bytes` > 0; a nested format has `struct`; everything else is an unsigned number, whose
    known values have names in `enum`.
    """

    name: str
    offset_bits: int
    width_bits: int
    enum: type[IntEnum] | None = None
    struct: Struct | None = None
    count_bytes: int = 0
    comment: str = ""

    @property
    def is_number(self) -> bool:
        """True for a plain unsigned field."""
        return self.struct is None and not self.count_bytes

    def read(self, data: Buffer) -> int:
        """Return the number in `data`, the bytes of the whole format."""
        first, last, shift = self._place()
        return (int.from_bytes(data[first:last], "big") >> shift) & ((1 << self.width_bits) - 1)

    def write(self, buffer: bytearray | memoryview, value: int) -> None:
        """Store a number that fits; the other bits of `buffer` stay."""
        first, last, shift = self._place()
        mask = ((1 << self.width_bits) - 1) << shift
        word = (int.from_bytes(buffer[first:last], "big") & ~mask) | (value << shift)
        buffer[first:last] = word.to_bytes(last - first, "big")

    def named(self, value: int) -> int:
        """Return the enum member for a known value, else the number itself: unknown codes are kept."""
        if self.enum is None:
            return value
        try:
            return self.enum(value)
        except ValueError:
            return value

    def _place(self) -> tuple[int, int, int]:
        end = self.offset_bits + self.width_bits
        last = (end + 7) // 8
        return self.offset_bits // 8, last, last * 8 - end


@dataclass(frozen=True)
class Struct:
    """One format: a fixed number of bytes and its fields in the order of the manual.

    `fields` has the named ones; `reserved` the others, which are zero in everything packed.
    """

    name: str
    bits: int
    fields: Mapping[str, Field]
    reserved: tuple[Field, ...] = ()
    source: str = ""

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.bits // 8

    def pack(self, /, **values: Any) -> builtins.bytes:
        """Return the format's bytes with these fields set and all others zero.

        Numbers are integers, byte strings bytes of the exact length, nested formats dicts (or their packed bytes).
        Raises ArgumentError for an unknown name and a value that does not fit.
        """
        buffer = bytearray(self.bytes)
        self.update(buffer, values)
        return bytes(buffer)

    def update(self, buffer: bytearray | memoryview, values: Mapping[str, Any]) -> None:
        """Set these fields in `buffer` (the format's size) and leave all other bits as they are."""
        self._check_length(buffer)
        for name, value in values.items():
            self._store(buffer, self._field(name), value)

    def unpack(self, data: Buffer) -> dict[str, Any]:
        """Return all named fields: numbers (enum members where the value is known), bytes, nested dicts."""
        self._check_length(data)
        return {name: self._load(data, field) for name, field in self.fields.items()}

    def get(self, data: Buffer, path: str) -> Any:
        """Return one field; a dotted path reaches into nested formats: "qpc.primary_address_path.rlid"."""
        self._check_length(data)
        owner, field, start = self._find(path)
        return owner._load(data[start : start + owner.bytes], field)

    def set(self, buffer: bytearray | memoryview, path: str, value: Any) -> None:
        """Set one field by path and leave all other bits as they are."""
        self._check_length(buffer)
        owner, field, start = self._find(path)
        part = bytearray(buffer[start : start + owner.bytes])
        owner._store(part, field, value)
        buffer[start : start + owner.bytes] = part

    def offset(self, path: str) -> int:
        """Bit offset of a field given by path, from the start of this format."""
        _, field, start = self._find(path)
        return start * 8 + field.offset_bits

    def dump(self, data: Buffer, indent: int = 0, *, zeros: bool = True, keep: str = "") -> str:
        """Text for people: each dword in hex, the fields in it, names of values, the declaration's comments.

        `zeros=False` leaves out fields that are zero, except those in the dword of the field `keep`. Reserved bits
        show only when set.
        """
        self._check_length(data)
        lines = [" " * indent + f"{self.name}, {self.bytes} bytes"]
        last = -1
        kept = self.fields[keep].offset_bits // 32 * 4 if keep else -1
        for offset, width, text, nothing in self._rows(data, 0, 0):
            dword = offset // 32 * 4
            if nothing and not zeros and dword != kept:
                continue
            first = (f"+0x{dword:02x}", bytes(data[dword : dword + 4]).hex(" ")) if dword != last else ("", "")
            lines.append(" " * indent + f"  {first[0]:<7}{first[1]:<11}  {text}")
            last = dword
            if width == 64:
                last = dword + 4
                lines.append(" " * indent + f"  +0x{last:02x}  {bytes(data[last : last + 4]).hex(' ')}")
        return "\n".join(line.rstrip() for line in lines)

    # ----- inside

    def _rows(self, data: Buffer, start: int, depth: int) -> Iterator[tuple[int, int, str, bool]]:
        # data: the outermost format's bytes; start: this format's first byte in them. Of each row: place, width, text,
        # and whether there is nothing to see.
        mine = data[start : start + self.bytes]
        pad = "  " * depth
        for field in sorted((*self.fields.values(), *self.reserved), key=lambda f: f.offset_bits):
            offset = start * 8 + field.offset_bits
            if field.struct is not None:
                inner = list(field.struct._rows(data, offset // 8, depth + 1))
                yield offset, 0, f"{pad}{field.name}:", all(row[3] for row in inner)
                yield from inner
                continue
            value = self._load(mine, field)
            reserved = field.name not in self.fields
            nothing = not any(value) if field.count_bytes else not value
            if nothing and reserved:
                continue
            words = "reserved bits are set" if reserved else field.comment
            text = f"{pad}{field.name} = {value_text(field, value)}" + (f"  ({words})" if words else "")
            yield offset, field.width_bits, text, nothing

    def _field(self, name: str) -> Field:
        field = self.fields.get(name)
        if field is None:
            near = difflib.get_close_matches(name, self.fields, 3)
            advice = f"{', '.join(near)}" if near else f"one of: {', '.join(self.fields)}"
            raise ArgumentError(f"format {self.name} has no field {name!r}", advice)
        return field

    def _find(self, path: str) -> tuple[Struct, Field, int]:
        owner, start = self, 0
        *parents, name = path.split(".")
        for parent in parents:
            field = owner._field(parent)
            if field.struct is None:
                raise ArgumentError(f"field {parent} of {owner.name} is no nested format, so {path!r} names nothing")
            owner, start = field.struct, start + field.offset_bits // 8
        return owner, owner._field(name), start

    def _load(self, data: Buffer, field: Field) -> Any:
        start = field.offset_bits // 8
        if field.struct is not None:
            return field.struct.unpack(data[start : start + field.struct.bytes])
        if field.count_bytes:
            return bytes(data[start : start + field.count_bytes])
        return field.named(field.read(data))

    def _store(self, buffer: bytearray | memoryview, field: Field, value: Any) -> None:
        start = field.offset_bits // 8
        if field.struct is not None and isinstance(value, Mapping):
            part = bytearray(buffer[start : start + field.struct.bytes])
            field.struct.update(part, value)
            buffer[start : start + field.struct.bytes] = part
        elif not field.is_number:
            size = field.width_bits // 8
            if not isinstance(value, Buffer) or memoryview(value).nbytes != size:
                what = f"{len(value)} bytes" if isinstance(value, Buffer) else repr(value)
                kind = f"a dict or {size} bytes" if field.struct is not None else f"exactly {size} bytes"
                raise ArgumentError(f"{self.name}.{field.name} takes {kind}, not {what}")
            buffer[start : start + size] = bytes(value)
        else:
            field.write(buffer, self._checked(field, value))

    def _checked(self, field: Field, value: Any) -> int:
        limit = (1 << field.width_bits) - 1
        allowed = f"0..{limit:#x} ({field.width_bits} bits)"
        try:
            number = operator.index(value)
        except TypeError:
            raise ArgumentError(f"{self.name}.{field.name} takes a whole number {allowed}, not {value!r}") from None
        if not 0 <= number <= limit:
            raise ArgumentError(f"{self.name}.{field.name} = {number} ({number:#x}) is outside {allowed}")
        return number

    def _check_length(self, data: Buffer) -> None:
        size = memoryview(data).nbytes
        if size != self.bytes:
            raise ArgumentError(
                f"format {self.name} has {self.bytes} bytes, the buffer {size}",
                f"pass exactly the format's bytes, for example data[:{self.bytes}]" if size > self.bytes else "",
            )


def value_text(field: Field, value: Any) -> str:
    """A field's value for people: the name of a known one, else hex and decimal."""
    if isinstance(value, bytes):
        return value.hex(" ") if len(value) <= 32 else f"{value[:32].hex(' ')} … {len(value)} bytes"
    if isinstance(value, IntEnum):
        return f"{value.value:#x} {value.name}"
    if field.enum is not None:
        return f"{value:#x} (unknown)"
    return f"{value}" if value < 10 else f"{value:#x} ({value})" if field.width_bits <= 24 else f"{value:#x}"
