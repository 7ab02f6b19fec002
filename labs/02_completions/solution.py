# SPDX-License-Identifier: Apache-2.0
"""One right answer. Look here last."""

from __future__ import annotations


def is_there(entry: bytes, consumed: int, entries: int) -> bool:
    """Whether the NIC has written completion number `consumed` (from 0, for ever) of a ring of so many entries."""
    lap = consumed // entries & 1
    return entry[63] >> 4 != 0xF and entry[63] & 1 == lap


def read(entry: bytes) -> tuple[int, int]:
    """(index of the request modulo 2^16, syndrome) of an entry that is there; syndrome 0: the request is done."""
    syndrome = entry[55] if entry[63] >> 4 == 0xD else 0
    return int.from_bytes(entry[60:62], "big"), syndrome


def done_after(done: int, counter: int) -> int:
    """How many requests are done, when `done` were and a completion names `counter` (an index modulo 2^16)."""
    return done + (counter + 1 - done) % 0x10000


def consumer_record(consumed: int) -> bytes:
    """4 bytes for the NIC: so many entries have been read since the queue was made."""
    return (consumed % (1 << 24)).to_bytes(4, "big")
