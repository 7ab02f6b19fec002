# SPDX-License-Identifier: Apache-2.0
"""Runs probes, each in a process of its own with a deadline: one that hangs or crashes is named, the others go on.

Used by examine.py. A driver that hangs in the kernel cannot be killed: such a process is left behind, not waited for.
Every other one is waited for, however long it takes on a busy machine to get a core to end on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gda.errors import GdaError
from gda.tools.doctor.line import Line, Probe, Status, unknown
from gda.tools.doctor.machine import Machine

__all__ = ["run_all", "run_here"]

_AT_A_TIME = 4
_HANGS_S = 0.2  # in the kernel, without a break: longer than a sound driver takes to let a process end
_ENDS_S = 30.0  # for what ends to get a core


@dataclass
class _Running:
    index: int
    process: int
    pipe: IO[bytes]
    end: float
    data: bytearray = field(default_factory=bytearray)


@dataclass
class _State:
    answers: dict[int, list[Line]] = field(default_factory=dict)
    running: dict[int, _Running] = field(default_factory=dict)
    killed: list[int] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)


def run_all(probes: Sequence[Probe], machine: Machine, seconds: float, overall_seconds: float) -> list[Line]:
    """Lines of all probes in their order. `seconds` is the deadline of each, `overall_seconds` of all together."""
    state = _State()
    try:
        with state.selector:
            _run(probes, machine, seconds, overall_seconds, state)
    finally:  # Ctrl-C, too
        _reap([*state.killed, *(_kill(child) for child in state.running.values())])
    return [_named(line, probe) for index, probe in enumerate(probes) for line in state.answers[index]]


def _run(probes: Sequence[Probe], machine: Machine, seconds: float, overall_seconds: float, state: _State) -> None:
    answers, running, selector = state.answers, state.running, state.selector
    waiting = list(range(len(probes)))[::-1]
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
        nearest = min((child.end for child in running.values()), default=now)
        spoke = []
        for key, _ in selector.select(max(0.0, nearest - now)):
            child = key.data
            spoke.append(child.index)
            piece = os.read(child.pipe.fileno(), 65536)
            child.data += piece
            if not piece:
                selector.unregister(child.pipe)
                del running[child.index]
                answers[child.index] = _answer(child)
        now = time.monotonic()
        # One that has just spoken was not late: this process was, and the rest of the answer is on its way.
        for child in [c for c in running.values() if now >= c.end and c.index not in spoke]:
            selector.unregister(child.pipe)
            del running[child.index]
            answers[child.index] = [_late(f"no answer within {seconds:g} s")]
            state.killed.append(_kill(child))


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
    status = _reap([child.process]).get(child.process)
    if status is not None and os.WIFSIGNALED(status):
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


def _kill(child: _Running) -> int:
    child.pipe.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.process, signal.SIGKILL)
    return child.process


def _reap(processes: Iterable[int]) -> dict[int, int]:
    """Wait for processes that end; how each did, by its number. One that hangs in the kernel is left, and absent."""
    left, ends = dict.fromkeys(processes, 0.0), time.monotonic() + _ENDS_S
    found: dict[int, int] = {}
    while left:
        for process, since in list(left.items()):
            try:
                gone, status = os.waitpid(process, os.WNOHANG)
            except ChildProcessError:  # the program reaps all its children itself
                del left[process]
                continue
            now = time.monotonic()
            if gone:
                found[process] = status
                del left[process]
            elif not _is_in_kernel(process):
                left[process] = 0.0
            else:
                left[process] = since or now
            if process in left and (now > ends or (left[process] and now > left[process] + _HANGS_S)):
                del left[process]
        if left:
            time.sleep(0.001)
    return found


def _is_in_kernel(process: int) -> bool:
    """Whether it waits there for what no signal ends (state D)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    except OSError:
        return False
