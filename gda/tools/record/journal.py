# SPDX-License-Identifier: Apache-2.0
"""What a record holds: capabilities, commands, steps with their work requests and completions. Used by sequence.py.

A record is JSON. Bytes are hex; fields have the PRM's names and are numbers, or hex where they are bytes; numbers
beyond 2^53 are safe in Python's JSON and in the hex beside them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gda import formats
from gda.errors import CommandError, CompletionError, DeviceStatusError, GdaError
from gda.formats.meaning import cqe_opcode_meaning
from gda.nic import QueuePair

__all__ = ["SCHEMA", "Journal", "fields_of"]

SCHEMA = 1  # grows when a field changes its meaning


def fields_of(format: str, data: bytes) -> dict[str, Any]:
    """The fields of a format as JSON takes them; nothing for bytes that are too short."""
    layout = formats.structs[format]
    return _plain(layout.unpack(data[: layout.bytes])) if len(data) >= layout.bytes else {}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return int(value)


class Journal:
    """A record under way: `data` is what will be written."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {"schema": SCHEMA, "nic": {}, "capabilities": {}, "commands": [], "steps": []}
        self._step: dict[str, Any] | None = None

    def command(self, name: str, body: bytes, answer: bytes, ns: int) -> None:
        """One firmware command; what gda.nic.command.observed calls."""
        out = fields_of(f"{name}_out", answer)
        capability = out.pop("capability", None)  # decoded under "capabilities"
        self.data["commands"].append(
            {
                "step": self._step["name"] if self._step else "open", "name": name,
                "in": body.hex(), "in_fields": fields_of(f"{name}_in", body),
                "out": answer.hex() if capability is None else answer[:16].hex(), "out_fields": out, "ns": ns,
            }
        )  # fmt: skip

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """What happens inside belongs to this step; a GdaError is written down and ends it."""
        step: dict[str, Any] = {"name": name, "outcome": "ok", "requests": [], "completions": [], "receives": []}
        self._step = step
        self.data["steps"].append(step)
        start = time.perf_counter_ns()
        try:
            yield step
        except GdaError as error:
            step["outcome"] = type(error).__name__
            step["error"] = _error(error)
        finally:
            step["ns"] = time.perf_counter_ns() - start
            self._step = None

    @staticmethod
    def request(step: dict[str, Any], queue: QueuePair, index: int) -> None:
        """A work request, read back from its slot."""
        wqe = queue.read_wqe(index)
        parts = [
            {"format": part.format.name, "fields": _plain(part.format.unpack(part.data))}
            for part in formats.wqe_parts(wqe)
            if isinstance(part.format, formats.Struct)
        ]
        step["requests"].append({"index": index, "hex": wqe.hex(), "parts": parts})

    @staticmethod
    def completion(step: dict[str, Any], cqe: bytes, slot: int, *, of_receive: bool = False) -> None:
        """A completion entry, good or bad; an empty one is written down as such."""
        fields = fields_of("cqe64", cqe)
        opcode = cqe_opcode_meaning(fields["opcode"]).name
        entry: dict[str, Any] = {"slot": slot, "kind": opcode, "hex": cqe.hex()}
        if opcode in {"MLX5_CQE_REQ_ERR", "MLX5_CQE_RESP_ERR"}:
            entry["fields"] = fields_of("err_cqe", cqe)
        elif opcode != "MLX5_CQE_INVALID":
            entry["fields"] = fields
        step["receives" if of_receive else "completions"].append(entry)


def _error(error: GdaError) -> dict[str, Any]:
    said: dict[str, Any] = {"text": str(error)}
    if isinstance(error, CompletionError):
        said |= {"syndrome": error.syndrome, "vendor_syndrome": error.vendor_syndrome, "wqe_index": error.wqe_index}
    elif isinstance(error, CommandError):
        said |= {"command": error.command, "status": error.status, "syndrome": error.syndrome}
    if isinstance(error, DeviceStatusError):
        said["operation"] = error.operation
    return said
