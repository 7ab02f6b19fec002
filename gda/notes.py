# SPDX-License-Identifier: Apache-2.0
"""What Python does with a NIC, noted while a trace is recorded: register, connect, launch, wait.

Called by gda.nic and gda.run, which note; by gda.tools.trace, which begins and ends and reads. Off, a note is one
comparison. With GDA_TRACE the process notes from its beginning and leaves what it noted in that directory at its end,
beside the rings of its NICs (sim/engine/trace.h). Document: docs/trace.md.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gda import config, formats

__all__ = ["Notes", "Ring", "Traced", "active", "add_kernels", "begin", "end", "kernels_are_traced", "launched", "note"]


class Traced(Protocol):
    """Compiled kernels that leave a ring of events."""

    clock: str  # "ticks" or "gpu"

    def trace(self) -> bytes:
        """Header and events (cuda/gda/trace_ring.h)."""
        ...

    def start_trace(self, skip: int) -> tuple[int, int]:
        """Empty it; a moment of its clock and the monotonic one."""
        ...

    def moment(self) -> tuple[int, int]:
        """The same moment now."""
        ...


@dataclass
class Ring:
    """What the kernels of one module left, and moments: its clock, and the monotonic one in nanoseconds."""

    name: str
    clock: str
    moments: list[tuple[int, int]]
    data: bytes


@dataclass
class Notes:
    """One recording of this process."""

    directory: str
    skip: int
    began_ns: int = field(default_factory=time.monotonic_ns)
    python: list[tuple[int, str, dict[str, int], str]] = field(default_factory=list)  # ns, kind, values, text
    launches: int = 0

    def rings(self) -> list[Ring]:
        """What traced kernels have left so far."""
        return [ring for ring in map(_read, _kernels) if len(ring.data) > TRACE_RING_BYTES]

    def write(self) -> Path:
        """Leave everything in the directory, for another process to read."""
        rings = [{**vars(ring), "data": base64.b64encode(ring.data).decode()} for ring in self.rings()]
        content = {"pid": os.getpid(), "program": " ".join(sys.argv), "python": self.python, "kernels": rings}
        path = Path(self.directory) / f"python-{os.getpid()}.json"
        path.write_text(json.dumps(content))
        return path


TRACE_RING_BYTES = int(formats.TRACE_RING_BYTES)
_active: Notes | None = None
# Traced modules with their names and first moments.
_kernels: dict[Traced, tuple[str, tuple[int, int]]] = {}


def _read(module: Traced) -> Ring:
    name, first = _kernels[module]
    return Ring(name, module.clock, [first, module.moment()], module.trace())


def active() -> Notes | None:
    """The recording under way."""
    return _active


def launched(name: str, grid: tuple[int, ...], block: tuple[int, ...]) -> int:
    """Note a launch; its number, 0 when nothing is recorded."""
    if _active is None:
        return 0
    _active.launches += 1
    note("LAUNCH", f"{name}[{_shape(grid)}, {_shape(block)}]", index=_active.launches)
    return _active.launches


def _shape(three: tuple[int, ...]) -> str:
    return str(three[0]) if three[1:] == (1, 1) else str(three)


def note(kind: str, text: str = "", **values: int) -> None:
    """Note an event: a name of enum trace_kind without its prefix, what it is called, and qpn, index, bytes, lane."""
    if _active is not None:
        values.setdefault("lane", threading.get_native_id())
        _active.python.append((time.monotonic_ns(), kind, values, text))


def kernels_are_traced() -> bool:
    """Whether kernels that are compiled now, and say nothing themselves, are to be traced."""
    wanted = config.get("GDA_TRACE_KERNELS")
    return wanted == "on" or (wanted == "auto" and _active is not None)


def add_kernels(module: Traced, name: str) -> None:
    """Kernels of this module leave a ring of events, from now on.

    Modules are kept alive while a trace is recorded: a program may drop its Kernel before the trace is read.
    """
    _kernels[module] = (name, module.start_trace(_active.skip if _active else 0))


def begin(directory: str = "", skip: int = 0) -> Notes:
    """Note from now on; the rings of kernels begin anew."""
    global _active
    for module, (name, _) in _kernels.items():
        _kernels[module] = (name, module.start_trace(skip))
    _active = Notes(directory, skip)
    return _active


def end() -> None:
    """Note nothing more."""
    global _active
    _active = None


def _leave_it() -> None:
    if _active is None:
        return
    try:
        _active.write()
    except OSError as error:  # at the end of a process there is nobody to catch it
        print(f"GDA_TRACE: what Python and its kernels did is lost: {error}", file=sys.stderr)
        end()


def _leave_it_at_the_end() -> None:
    """Also of processes that multiprocessing starts: they end without atexit."""
    from multiprocessing import util

    util.Finalize(None, _leave_it, exitpriority=0)


def _begin_by_environment() -> None:
    from multiprocessing import util

    begin(config.get("GDA_TRACE"))
    atexit.register(_leave_it)
    _leave_it_at_the_end()
    util.register_after_fork(_leave_it_at_the_end, lambda again: again())
    os.register_at_fork(after_in_child=lambda: begin(config.get("GDA_TRACE")) and None)


if config.get("GDA_TRACE"):
    _begin_by_environment()
