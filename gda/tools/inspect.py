# SPDX-License-Identifier: Apache-2.0
"""Shows what lies in memory or stood in a log: queues, work requests, completions, records, commands, packets, handles.

Called by people (`gda.inspect(object)`, `python -m gda inspect`) and by the demo. Reads only what the object's owner
allows, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gda import formats
from gda.errors import ArgumentError
from gda.formats import Part
from gda.nic import Memory, Nic, QueuePair
from gda.tools.hexdump import Dump, read_hex
from gda.tools.kinds import decode_as, guess, parts_as

__all__ = ["differences", "hex_lines", "inspect"]

BASIC_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)


def hex_lines(data: bytes, indent: str = "  ", base: int = 0) -> str:
    """Hex dump, 16 bytes a line, offsets from `base`, as hardware manuals print it (big-endian dwords)."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        words = " ".join(row[i : i + 4].hex() for i in range(0, len(row), 4))
        lines.append(f"{indent}{base + at:04x}: {words}")
    return "\n".join(lines)


def inspect(thing: object, other: object = None, *, kind: str = "", command: str = "") -> str:
    """Text about a Nic, Memory, QueuePair, about bytes, or about the hex in a piece of a log (a str).

    Bytes are taken for what they look like, and the first line says for what; `kind` says what they are: "wqe", "cqe",
    "record", "doorbell", "command", "answer" (`command` names whose), "packet", "handle", or the name of a format.
    With `other`, of the same kind: only the fields that differ. Raises ArgumentError for what is nothing of these.
    """
    if other is not None:
        return differences(thing, other, kind=kind, command=command)
    if isinstance(thing, QueuePair):
        return _queue_pair(thing)
    if isinstance(thing, Memory):
        return (
            f"memory region: {thing.bytes} bytes at 0x{thing.address:x}, lkey 0x{thing.lkey:x}, "
            f"rkey 0x{thing.rkey:x}, {'GPU' if thing.is_gpu else 'host'} memory"
        )
    if isinstance(thing, Nic):
        return f"{thing.name}: {thing.description}"
    dump = _dump(thing)
    kind, why = _kind(dump, kind)
    first = f"{len(dump.data)} bytes{' of ' + dump.manner if dump.manner else ''}, taken for {kind}: {why}"
    return "\n".join([first, hex_lines(dump.data), decode_as(kind, dump.data, command)])


def differences(one: object, other: object, *, kind: str = "", command: str = "") -> str:
    """The fields in which two of a kind differ, each with its meaning; or that there are none."""
    if isinstance(one, QueuePair) and isinstance(other, QueuePair):
        return _of_queue_pairs(one, other)
    if isinstance(one, QueuePair) or isinstance(other, QueuePair):
        raise ArgumentError(f"{type(one).__name__} and {type(other).__name__} are not of a kind", "give two of a kind")
    dumps = _dump(one), _dump(other)
    kind, why = _kind(dumps[0], kind)
    sides = [parts_as(kind, dump.data, command) for dump in dumps]
    lines = list(_different_parts(*sides))
    first = f"two of {kind} ({why}): {_count(lines)}"
    return "\n".join([first, *lines])


def _count(lines: list[str]) -> str:
    count = sum(" -> " in line for line in lines)
    return "no difference" if not lines else f"{count} field{'s differ' if count != 1 else ' differs'}"


def _dump(thing: object) -> Dump:
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return Dump(bytes(thing))
    if isinstance(thing, str):
        return read_hex(thing)
    raise ArgumentError(
        f"cannot inspect {type(thing).__name__}",
        "give a Nic, a Memory, a QueuePair, bytes, or a str with the hex of a log",
    )


def _kind(dump: Dump, wanted: str) -> tuple[str, str]:
    """What the bytes are and why; the caller's word before the log's, that before a guess."""
    if wanted:
        return wanted, "as asked for"
    if dump.kind:
        return dump.kind, dump.why
    found = guess(dump.data)
    also = f" (could also be: {', '.join(found.also)}; --as says so)" if found.also else ""
    return found.kind, found.why + also


def _different_parts(one: list[Part], other: list[Part]) -> list[str]:
    lines = []
    for number in range(max(len(one), len(other))):
        if number >= len(one) or number >= len(other):
            part, side = (one[number], "first") if number < len(one) else (other[number], "second")
            lines.append(f"  {part.name}: only in the {side}: {part.data[:32].hex(' ', 4) or part.note}")
            continue
        first, second = one[number], other[number]
        if first.name != second.name or first.format is not second.format:
            lines.append(f"  part {number}: {first.name} -> {second.name}")
            continue
        before, after = first.values(), second.values()
        for path, (value, text, comment) in before.items():
            changed = after[path]
            if value != changed[0]:
                name = f"{first.name}.{path}" if path else first.name
                lines.append(f"  {name}: {text} -> {changed[1]}" + (f"  ({comment})" if comment else ""))
    return lines


def _of_queue_pairs(one: QueuePair, other: QueuePair) -> str:
    lines = []
    pairs = (
        ("state", {"": one.state}, {"": other.state}),
        ("doorbell record", {"": one.read_record()}, {"": other.read_record()}),
        ("handle", one.read_handle(), other.read_handle()),
        ("context", one.context(), other.context()),
    )
    for name, first, second in pairs:
        before, after = dict(_flat(first, name)), dict(_flat(second, name))
        changed = [path for path in before if before[path] != after.get(path)]
        lines += [f"  {path}: {_shown(before[path])} -> {_shown(after.get(path))}" for path in changed]
    return "\n".join([f"queue pairs 0x{one.qpn:x} and 0x{other.qpn:x}: {_count(lines)}", *lines])


def _flat(values: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        path = f"{prefix}.{name}" if name else prefix
        found += _flat(value, path) if isinstance(value, Mapping) else [(path, value)]
    return found


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value[:32].hex(" ", 4) + (" ..." if len(value) > 32 else "")
    if isinstance(value, int) and not isinstance(value, bool):
        return getattr(value, "name", "") or (f"{value:#x}" if value > 9 else str(value))
    return str(value)


def _queue_pair(queue: QueuePair) -> str:
    handle = queue.read_handle()
    depth = 1 << int(handle["log_sq_size"])
    reserved, done = int(handle["reserved"]), int(handle["done"])
    lines = [
        f"queue pair 0x{queue.qpn:x}: {queue.state}, {depth} basic blocks",
        f"  indices: reserved {reserved}, ready {int(handle['ready'])}, done {done}",
    ]
    record = queue.read_record()
    if record is not None:
        lines.append(f"  doorbell record: send counter {record}")
    if handle["error"]:
        lines.append(f"  first error: {formats.decode_status(int(handle['error']))['text']}")
    if reserved:
        last = reserved - 1
        wqe = queue.read_wqe(last)
        lines += [f"  last work request, index {last}, slot {last % depth}:", hex_lines(wqe, "    ")]
        lines += ["    " + line for line in formats.decode_wqe(wqe).splitlines()]
    cqe = queue.read_cqe()
    lines += ["  completion entry 0:", hex_lines(cqe, "    ")]
    lines += ["    " + line for line in formats.decode_cqe(cqe).splitlines()]
    return "\n".join(lines)
