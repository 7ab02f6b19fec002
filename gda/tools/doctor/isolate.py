# SPDX-License-Identifier: Apache-2.0
"""Runs probes, each in a process of its own with a deadline: one that hangs or crashes is named, the others go on.

Used by examine.py. A driver that hangs in the kernel cannot be killed: such a process is left behind, not waited for.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

from gda.errors import GdaError
from gda.tools.doctor.line import Line, Probe, Status, unknown
from gda.tools.doctor.machine import Machine

__all__ = ["run_all", "run_here"]

_AT_A_TIME = 4


@dataclass
class _Running:
    index: int
    process: int
    pipe: IO[bytes]
    end: float
    data: bytearray = field(default_factory=bytearray)


def run_all(probes: Sequence[Probe], machine: Machine, seconds: float, overall_seconds: float) -> list[Line]:
    """Lines of all probes in their order. `seconds` is the deadline of each, `overall_seconds` of all together."""
    answers: dict[int, list[Line]] = {}
    waiting = list(range(len(probes)))[::-1]
    running: dict[int, _Running] = {}
    selector = selectors.DefaultSelector()
    last = time.monotonic() + overall_seconds
    while waiting or running:
        while waiting and len(running) < _AT_A_TIME and time.monotonic() < last:
            index = waiting.pop()
            child = _start(index, probes[index], machine, min(time.monotonic() + seconds, last))
            running[index] = child
            selector.register(child.pipe, selectors.EVENT_READ, child)
        now = time.monotonic()
        if now >= last:
            for index in waiting:
                answers[index] = [_late(f"not tried: {overall_seconds:g} s for all probes were over")]
            waiting = []
        ended = []
        nearest = min((child.end for child in running.values()), default=now)
        for key, _ in selector.select(max(0.0, nearest - now)):
            child = key.data
            piece = os.read(child.pipe.fileno(), 65536)
            child.data += piece
            if not piece:
                ended.append(child)
        for child in ended:
            selector.unregister(child.pipe)
            del running[child.index]
            answers[child.index] = _answer(child)
        for child in [c for c in running.values() if time.monotonic() >= c.end]:
            selector.unregister(child.pipe)
            del running[child.index]
            answers[child.index] = [_late(f"no answer within {seconds:g} s")]
            _abandon(child)
    return [_named(line, probe) for index, probe in enumerate(probes) for line in answers[index]]


def run_here(probes: Sequence[Probe], machine: Machine) -> list[Line]:
    """The same in this process and without deadlines: for machines that are played."""
    return [_named(line, probe) for probe in probes for line in _looked(probe, machine)]


def _named(line: Line, probe: Probe) -> Line:
    line.group, line.name = line.group or probe.group, line.name or probe.name
    return line


def _start(index: int, probe: Probe, machine: Machine, end: float) -> _Running:
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():  # other threads hold nothing that a probe needs
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reader)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # libraries speak on stderr, and nobody here can answer
                os.dup2(silent, stream)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(_looked(probe, machine), pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    return _Running(index, process, os.fdopen(reader, "rb"), end)


def _looked(probe: Probe, machine: Machine) -> list[Line]:
    try:
        found = probe.look(machine)
    except GdaError as error:
        return [unknown(error.args[0].splitlines()[0], "Looking at it failed.", error.advice or "see docs/errors.md")]
    except PermissionError as error:
        return [unknown(f"{error.filename} may not be read", "This user may not look there.", "ask as root")]
    except Exception as error:  # a machine that nobody has seen yet
        what = f"{type(error).__name__}: {error}"
        return [unknown(what, "The probe itself failed.", "please report this line with --json")]
    return [found] if isinstance(found, Line) else list(found)


def _answer(child: _Running) -> list[Line]:
    child.pipe.close()
    _, status = os.waitpid(child.process, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return [
            Line(
                Status.PROBLEM, f"crashed ({name})", "The library or driver behind it ended the process.",
                "look at dmesg; a library and a driver of different releases do this",
            )
        ]  # fmt: skip
    lines: list[Line] = pickle.loads(bytes(child.data)) if child.data else []
    return lines or [unknown("no answer", "The probe ended without a word.", "please report this with --json")]


def _late(what: str) -> Line:
    return Line(
        Status.UNKNOWN, what, "A driver or a file of /sys hangs; programs that go there will hang as well.",
        "look at dmesg, and give it more time with --seconds",
    )  # fmt: skip


def _abandon(child: _Running) -> None:
    child.pipe.close()
    try:
        os.kill(child.process, signal.SIGKILL)
        end = time.monotonic() + 0.2  # an ordinary process is gone at once; one that hangs in the kernel stays
        while os.waitpid(child.process, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            time.sleep(0.005)
    except (ProcessLookupError, ChildProcessError):
        pass
