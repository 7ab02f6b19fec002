# SPDX-License-Identifier: Apache-2.0
"""The four tests of a format: golden bytes to fields and back, one by one and all at once."""

from __future__ import annotations

from .golden import Record, paths

POISON = 0xA5


def deconstruct(record: Record) -> None:
    """Golden bytes -> each field by itself; those that were not set are zero."""
    for path, field in paths(record.struct):
        expected = record.values.get(path, bytes(field.count_bytes) if field.count_bytes else 0)
        assert record.struct.get(record.data, path) == expected, path


def construct(record: Record) -> None:
    """Each field by itself -> golden bytes, onto poison: a bit that no field owns stays as it was."""
    buffer = bytearray([POISON]) * record.struct.bytes
    owned = 0
    for path, field in paths(record.struct):
        record.struct.set(buffer, path, record.values.get(path, bytes(field.count_bytes) if field.count_bytes else 0))
        end = record.struct.offset(path) + field.width_bits
        owned |= ((1 << field.width_bits) - 1) << (record.struct.bits - end)
    poison = int.from_bytes(bytes([POISON]) * record.struct.bytes, "big")
    golden = int.from_bytes(record.data, "big")
    assert golden & ~owned == 0, "the golden bytes have bits that no field of ours owns"
    assert int.from_bytes(buffer, "big") == golden | (poison & ~owned)


def parse(record: Record) -> None:
    """Golden bytes -> all fields."""
    assert record.struct.unpack(record.data) == record.nested()


def emit(record: Record) -> None:
    """All fields -> golden bytes; leaving out those that are zero makes no difference."""
    assert record.struct.pack(**record.nested()) == record.data
    top = {path: value for path, value in record.values.items() if "." not in path}
    inner = {name: value for name, value in record.nested().items() if isinstance(value, dict)}
    assert record.struct.pack(**top, **inner) == record.data


QUAD = (deconstruct, construct, parse, emit)
