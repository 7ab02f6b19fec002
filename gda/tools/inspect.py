# SPDX-License-Identifier: Apache-2.0
"""Shows what lies in memory: queues, work requests, completions, doorbell records, regions, raw bytes.

Called by people (`gda.inspect(object)`) and by the demo. Reads only what the object's owner allows, changes nothing.
"""

from __future__ import annotations

from gda import formats
from gda.errors import ArgumentError
from gda.nic import Memory, Nic, QueuePair

__all__ = ["hex_lines", "inspect"]

BASIC_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)


def hex_lines(data: bytes, indent: str = "  ", base: int = 0) -> str:
    """Hex dump, 16 bytes a line, offsets from `base`, as hardware manuals print it (big-endian dwords)."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        words = " ".join(row[i : i + 4].hex() for i in range(0, len(row), 4))
        lines.append(f"{indent}{base + at:04x}: {words}")
    return "\n".join(lines)


def inspect(thing: object) -> str:
    """Text about a Nic, Memory, QueuePair, or bytes (64: a WQE basic block; a CQE says `inspect_cqe`).

    Raises ArgumentError for anything else.
    """
    if isinstance(thing, QueuePair):
        return _queue_pair(thing)
    if isinstance(thing, Memory):
        return (
            f"memory region: {thing.bytes} bytes at 0x{thing.address:x}, lkey 0x{thing.lkey:x}, "
            f"rkey 0x{thing.rkey:x}, {'GPU' if thing.is_gpu else 'host'} memory"
        )
    if isinstance(thing, Nic):
        return f"{thing.name}: {thing.description}"
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return formats.decode_wqe(bytes(thing))
    raise ArgumentError(
        f"cannot inspect {type(thing).__name__}", "give a Nic, a Memory, a QueuePair, or the bytes of a work request"
    )


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
