# SPDX-License-Identifier: Apache-2.0
"""The records that ranks exchange, and what is checked of each before a byte of it is believed.

Made and read by bootstrap.py and the carriers of rendezvous.py. A record says of which world it is, who sent it and in
which phase (how many exchanges came before) and by which call: one that is cut, late, sent twice, of another call or of
another program is an error with rank and phase. Document: docs/programs.md, "Finding each other".
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from gda.errors import BootstrapError

__all__ = [
    "ANSWER", "CALL_BYTES", "DATA", "FAILURE", "HEADER_BYTES", "NO_WORLD", "Record", "check", "length_of", "read",
]  # fmt: skip

DATA, ANSWER, FAILURE = 1, 2, 3  # of one rank; of all ranks, from rank 0; why rank 0 has given up
NO_WORLD = bytes(16)  # before rank 0 has named it
_MAGIC = b"gdx2"
CALL_BYTES = 16
# Magic, kind, world, rank, size, phase, call, bytes of payload; a checksum behind it.
_HEADER = struct.Struct(f">4sI16sIII{CALL_BYTES}sQ")
HEADER_BYTES = _HEADER.size
_KINDS = {DATA: "a record", ANSWER: "an answer", FAILURE: "a failure"}
_MOST_BYTES = 1 << 32  # what no record of ours reaches: a longer one is no record


@dataclass(frozen=True)
class Record:
    """What one rank says in one phase."""

    kind: int
    world: bytes
    rank: int
    size: int
    phase: int
    payload: bytes
    call: str = ""  # which one made this exchange, in 16 bytes of ASCII

    def to_bytes(self) -> bytes:
        """Header, payload, checksum of both."""
        call = self.call.encode("ascii")
        body = _HEADER.pack(_MAGIC, self.kind, self.world, self.rank, self.size, self.phase, call, len(self.payload))
        body += self.payload
        return body + zlib.crc32(body).to_bytes(4, "big")


def length_of(header: bytes, phase: int, sender: str) -> int:
    """How many bytes follow this header. Raises BootstrapError unless it is the start of a record."""
    magic, *_, length = _HEADER.unpack(header)
    if magic != _MAGIC or length > _MOST_BYTES:
        raise BootstrapError(
            f"phase {phase}: what came from {sender} is no record of this library (it starts with {header[:4]!r})",
            phase=phase, advice="something else uses this place, or another version of gda: take another one",
        )  # fmt: skip
    return int(length) + 4


def read(data: bytes, phase: int, sender: str) -> Record:
    """The record that these bytes are. Raises BootstrapError when they are cut, changed or something else."""
    if len(data) >= HEADER_BYTES and data[:4] == _MAGIC:
        expected = HEADER_BYTES + length_of(data[:HEADER_BYTES], phase, sender)
    elif data[:4] == _MAGIC[: len(data)]:
        expected = HEADER_BYTES + 4
    else:
        expected = length_of(data[:HEADER_BYTES].ljust(HEADER_BYTES), phase, sender)
    if len(data) != expected:
        what = "is cut" if len(data) < expected else "has more behind it"
        raise BootstrapError(
            f"phase {phase}: the record of {sender} {what}: {len(data)} bytes of {expected}", phase=phase,
            advice="its sender ended while it wrote, or the file system is full",
        )  # fmt: skip
    if zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
        raise BootstrapError(
            f"phase {phase}: the record of {sender} was changed on the way (its checksum is wrong)", phase=phase,
            advice="run the program again",
        )  # fmt: skip
    _, kind, world, rank, size, number, call, _ = _HEADER.unpack(data[:HEADER_BYTES])
    return Record(kind, world, rank, size, number, data[HEADER_BYTES:-4], call.rstrip(b"\0").decode("ascii", "replace"))


def check(record: Record, *, kind: int, world: bytes, rank: int, size: int, phase: int, call: str = "") -> None:
    """Raise BootstrapError unless it is the record expected now: this kind, of this rank, world, size, phase, call."""

    def refuse(why: str, advice: str) -> BootstrapError:
        return BootstrapError(f"phase {phase}, rank {rank}: {why}", rank=rank, phase=phase, advice=advice)

    if record.size != size:
        raise refuse(
            f"it believes in a world of {record.size} ranks, here there are {size}",
            "start all processes with the same number of ranks (GDA_SIZE, or the launcher's -n)",
        )
    if record.rank != rank:
        raise refuse(f"the record there is of rank {record.rank}", "give each process a rank of its own (GDA_RANK)")
    if record.world != world:
        raise refuse(
            f"a record of another world ({record.world.hex()[:8]}, ours is {world.hex()[:8]})",
            "another program uses the same meeting place, or left something there: take an empty one",
        )
    if record.phase != phase:
        when = "a late or repeated" if record.phase < phase else "an early"
        raise refuse(
            f"{when} record, of phase {record.phase}",
            "every rank must make the same calls in the same order: init, windows, barriers, close",
        )
    if record.kind != kind:
        raise refuse(f"{_KINDS.get(record.kind, 'something')} where {_KINDS[kind]} is due", "use one version of gda")
    if record.call != call:
        raise refuse(
            f"it makes another call ({record.call or 'an exchange'}) than this rank ({call or 'an exchange'})",
            "every rank must make the same calls in the same order, also behind one that raised an error on some ranks",
        )
