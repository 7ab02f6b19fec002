# SPDX-License-Identifier: Apache-2.0
"""`record`, `load` and the Trace that they give. Used through gda.tools.trace."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gda import attach, config, notes
from gda.errors import ArgumentError
from gda.tools.trace.events import EVENT, Actor, Array
from gda.tools.trace.gather import Gathered, gather_directory, gather_process
from gda.tools.trace.puts import follow
from gda.tools.trace.statistics import Stage, print_table, stages

__all__ = ["Trace", "load", "read_directory", "record"]

_KEY = "gda"  # in a Chrome trace: what load() reads
_MOST_SKIPPED = 1 << 15


class Trace:
    """Events of one recording; empty until it has ended.

    `events`: structured array in the order of time: time_ns, kind (`formats.trace_kind`), actor, lane, qpn, index,
    bytes, aux, opcode, flags, text, put. `puts`: a row for each request with the moment of each stage, -1 where nothing
    was noted. `actors`: who noted, how many of its older events were lost. `texts`: what events of Python are called.
    """

    def __init__(self) -> None:
        self.events: Array = np.zeros(0, EVENT)
        self.puts: Array = follow(self.events)
        self.actors: list[Actor] = []
        self.texts: list[str] = []

    def take(self, found: Gathered, *, since_ns: int = 0) -> Trace:
        """Take in what was gathered, from a moment on."""
        self.events, self.actors, self.texts = found.events(), found.actors, found.texts
        self.events = self.events[self.events["time_ns"] >= since_ns]
        self.puts = follow(self.events)
        return self

    @property
    def lost(self) -> int:
        """Events that newer ones have overwritten: rings keep the newest."""
        return sum(actor.lost for actor in self.actors)

    def stages(self) -> list[Stage]:
        """How long each stage took: p50_ns, p99_ns, histogram()."""
        return stages(self.puts)

    def print(self, console: Console | None = None) -> None:
        """Print the stages as a table, and what is missing."""
        console = console or Console()
        print_table(self.puts, console)
        for actor in self.actors:
            if actor.lost:
                console.print(f"{actor.name} of process {actor.pid}: {actor.lost} older events were overwritten")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a timeline: .html to look at with a browser, .json for Perfetto and for `load`."""
        path = Path(path)
        if path.suffix == ".json":
            from gda.tools.trace.chrome import chrome

            path.write_text(json.dumps({**chrome(self), _KEY: self._content()}))
        elif path.suffix == ".html":
            from gda.tools.trace.page import page

            path.write_text(page(self))
        else:
            raise ArgumentError(f"{path}: a trace is saved as .json or .html", "choose one of the two")

    def _content(self) -> dict[str, Any]:
        return {
            "events": base64.b64encode(self.events.tobytes()).decode(),
            "actors": [vars(actor) for actor in self.actors],
            "texts": self.texts,
        }

    def _restore(self, content: dict[str, Any]) -> Trace:
        self.events = np.frombuffer(base64.b64decode(content["events"]), EVENT).copy()
        self.actors = [Actor(**actor) for actor in content["actors"]]
        self.texts = content["texts"]
        self.puts = follow(self.events)
        return self


@contextmanager
def record(*, every: int = 1, log_events: int = 17) -> Iterator[Trace]:
    """Record a trace of this process inside the `with`; the Trace is filled in at its end.

    Kernels are traced that are compiled inside, or with trace=True; of the software NIC the newest 2^log_events events
    are kept. `every` (a power of two): only each so many-th request of a queue, which costs less. Where GDA_TRACE has
    the whole process recorded (`python -m gda trace`), the Trace is this part of it, with every request.
    """
    if every < 1 or every & (every - 1) or every > _MOST_SKIPPED:
        raise ArgumentError(f"every={every} is no power of two up to {_MOST_SKIPPED}", "1, 2, 4, 8 ...")
    trace = Trace()
    under_way = notes.active()
    if under_way is not None:
        if not config.get("GDA_TRACE"):
            raise ArgumentError("a trace is being recorded already", "leave the other record() first")
        began_ns = time.monotonic_ns()  # by the environment: its own part of that trace
        yield trace
        nic = attach.loaded()
        if nic is not None:
            nic.synchronize_trace()
        trace.take(gather_process(under_way, os.getpid(), " ".join(sys.argv)), since_ns=began_ns)
        return
    directory = tempfile.mkdtemp(prefix="gda-trace-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    try:
        nic = attach.loaded()
        if nic is not None:
            nic.set_trace(directory, log_events=log_events, skip=every - 1)
        taken = notes.begin(directory, every - 1)
        try:
            yield trace
        finally:
            notes.end()
            nic = attach.loaded()
            if nic is not None:
                nic.set_trace("")
            trace.take(gather_process(taken, os.getpid(), " ".join(sys.argv)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def read_directory(directory: str | os.PathLike[str]) -> Trace:
    """What processes with GDA_TRACE left there, as one trace; also while they run, of their NICs."""
    return Trace().take(gather_directory(Path(directory)))


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that was saved as .json. Raises ArgumentError for anything else."""
    try:
        content = json.loads(Path(path).read_text())[_KEY]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{os.fspath(path)} is no trace: {error!r}", "python -m gda trace --out FILE.json -- PROGRAM writes one"
        ) from error
    return Trace()._restore(content)
