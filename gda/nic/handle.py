# SPDX-License-Identifier: Apache-2.0
"""The device handle of a queue pair: struct gda_queue of cuda/gda/handle.h, in memory that kernels reach.

Used by queue.py. The constant part is written here; the counters behind it belong to the kernels while one runs. A
handle that was not placed by name follows the target: for GPU kernels it moves to GPU memory, where atomics are
cheap, for CPU kernels to host memory; nothing runs on it at that moment.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gda import config, formats
from gda.errors import ArgumentError, GdaError
from gda.formats.fields import Buffer
from gda.nic.gpu import Gpu
from gda.nic.placement import Slab, left_to_graphs, make_slab

__all__ = ["Addresses", "Handle", "leave_count", "window"]

_COUNTERS = ("reserved", "ready", "done", "error", "cq_consumed", "rung", "deferred", "silent", "flashes")
_RECEIVE_COUNTERS = ("cq_base", "reserved", "ready", "received")
_WORD_SLOTS, _PARKED = 32, 1 << 63  # cuda/gda/token.h


def window(position: int) -> bytes:
    """The window of a shared queue on which nothing is under way: the token is parked at index `position`."""
    words = [0] * (formats.layouts["gda_queue"].members["window"].bytes // 8)
    words[position // _WORD_SLOTS % len(words)] = _PARKED | position % _WORD_SLOTS << 32
    return b"".join(word.to_bytes(8, "little") for word in words)


def leave_count(handle: Handle, posting: str) -> None:
    """Called at the end of a queue pair with GDA_PROFILE: how much kernels of any kind have posted to it."""
    try:
        blocks = int(handle.read()["reserved"])
    except GdaError:  # a kernel left the GPU's context unusable
        return
    with Path(f"{config.get('GDA_PROFILE')}.{os.getpid()}.queues").open("a") as told:
        told.write(f"queue {posting} {blocks}\n")


@dataclass(frozen=True)
class Addresses:
    """The addresses in a handle, as one target's code reaches them; 0 where it cannot, or where there is none."""

    sq: int
    doorbell: int
    record: int
    cq_ring: int
    cq_record: int
    rq: int = 0
    receive_record: int = 0
    receive_cq_ring: int = 0
    receive_cq_record: int = 0


class Handle:
    """A gda_queue in memory. `constants` are the queue pair's members but for addresses, and under "receive" those of
    its receive queue; `addresses` give them by target.
    """

    def __init__(
        self, constants: dict[str, Any], addresses: Callable[[str], Addresses], kind: str, fixed: bool, gpu: Gpu | None
    ) -> None:
        self._layout = formats.layouts["gda_queue"]
        self._constants = constants
        self._addresses = addresses
        self._fixed = fixed
        self._gpu = gpu
        self._slab = make_slab(kind, self._layout.bytes, gpu)
        self._target = "gpu" if kind == "gpu" else "host"
        self._stays_for: weakref.WeakSet[object] = weakref.WeakSet()
        self._write(dict.fromkeys(_COUNTERS, 0), dict.fromkeys(_RECEIVE_COUNTERS, 0), window(0))

    @property
    def slab(self) -> Slab:
        """Where it lies now."""
        return self._slab

    @property
    def bytes(self) -> int:
        """Size of the struct."""
        return self._layout.bytes

    def read(self) -> dict[str, Any]:
        """The queue pair's members as they are in memory now; its receive queue's under "receive"."""
        values = self._layout.unpack(self._slab.read(0, self._layout.bytes))
        return {**values["qp"], "window": values["window"], "receive": values["receive"]}

    def update(self, *, flags: int | None = None, receive: dict[str, int] | None = None, **counters: int) -> None:
        """Change flags, counters of the queue pair, or those of its receive queue; no kernel may be using them.

        A new `ready` says that nothing is under way: all before it is written.
        """
        if flags is not None:
            self._constants = self._constants | {"flags": flags}
        values = self.read()
        if "ready" in counters:
            values["window"] = window(counters["ready"])
        values["receive"] |= receive or {}
        self._write_again(values | counters)

    def address(self, target: str) -> int:
        """Where a kernel on `target` finds it; moves it there if it may."""
        kind = "gpu" if target == "gpu" and self._gpu is not None else "host"
        if target == "host" and self._slab.kind == "gpu" and self._fixed:
            raise ArgumentError(
                "the queue pair's handle lies in GPU memory, which code on the CPU cannot reach",
                'leave "handle" out of placement: it then follows the target',
            )
        if (kind != self._slab.kind and not self._fixed) or target != self._target:
            if self._stays_for:
                raise ArgumentError(
                    f"the queue pair's handle is for kernels on the {self._target}, where one that was captured into a "
                    f"graph uses it: it cannot be for the {target} now",
                    "use another queue pair, or drop the captured Launch and its graph",
                )
            values = self.read()
            if kind != self._slab.kind and not self._fixed:
                old, self._slab = self._slab, make_slab(kind, self._layout.bytes, self._gpu)
                old.close()
            self._target = target
            self._write_again(values)
        return self._slab.gpu_address if target == "gpu" else self._slab.address

    def stay(self, holder: object) -> None:
        """Remain where it is as long as `holder` lives: a graph has the address."""
        self._stays_for.add(holder)

    def close(self) -> None:
        """Overwrite it, so that a kernel that still uses it is refused, and give the memory back.

        Where a graph has its address nothing else may lie there: that memory stays as it is.
        """
        self._slab.fill(0, self._layout.bytes, 0)
        if self._stays_for:
            left_to_graphs.append(self._slab)
        else:
            self._slab.close()

    def _write_again(self, values: dict[str, Any]) -> None:
        receive = values["receive"]
        self._write(
            {name: values[name] for name in _COUNTERS},
            {name: receive[name] for name in _RECEIVE_COUNTERS},
            values["window"],
        )

    def _write(self, counters: dict[str, int], receive_counters: dict[str, int], window: Buffer) -> None:
        at = self._addresses(self._target)
        constants = dict(self._constants)
        receive = dict(constants.pop("receive"))
        cq = dict(constants.pop("cq")) | {"ring": at.cq_ring, "record": at.cq_record}
        receive_cq = dict(receive.pop("cq")) | {"ring": at.receive_cq_ring, "record": at.receive_cq_record}
        data = self._layout.pack(
            qp={**constants, "sq": at.sq, "doorbell": at.doorbell, "record": at.record, "cq": cq, **counters},
            window=window,
            receive={**receive, "ring": at.rq, "record": at.receive_record, "cq": receive_cq, **receive_counters},
        )
        self._slab.write(0, data)
