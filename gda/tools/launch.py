# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a program on this host, passes on what they print, and ends all when one fails.

Called by `python -m gda launch`. Document: docs/programs.md, "Starting a program".
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from gda import config
from gda.errors import ArgumentError
from gda.locks import Lock

__all__ = ["launch"]

_LOOK_S = 0.02
_TERM_S = 2.0  # between the request to end and the end


def launch(ranks: int, program: Sequence[str], *, grace_s: float = 5.0) -> int:
    """Run `ranks` processes of a Python program; the exit status of the first that failed, 128 + N for signal N.

    After a failure the others have `grace_s` seconds to find out and end by themselves; then they are ended.
    """
    if ranks < 1:
        raise ArgumentError(f"{ranks} processes", "python -m gda launch -n 4 PROGRAM: at least 1")
    if not program:
        raise ArgumentError("no program to launch", "python -m gda launch -n 4 PROGRAM ARGUMENTS")
    if not program[0].startswith("-") and not Path(program[0]).exists():
        raise ArgumentError(
            f"there is no file {program[0]!r} to launch",
            f"name the Python program itself, without python in front: python -m gda launch -n {ranks} program.py; a "
            "module: ... -- -m MODULE",
        )
    with tempfile.TemporaryDirectory(prefix="gda-launch-") as directory, _noted_signals() as signals:
        processes: list[subprocess.Popen[bytes]] = []
        readers: list[threading.Thread] = []
        lock = Lock()
        try:
            for rank in range(ranks):
                processes.append(_start(rank, ranks, program, directory))
                for stream, out in ((processes[rank].stdout, sys.stdout), (processes[rank].stderr, sys.stderr)):
                    readers.append(threading.Thread(target=_pass_on, args=(rank, stream, out, lock), daemon=True))
                    readers[-1].start()
            status = _wait(processes, grace_s, signals)
        finally:
            _end(processes)
            for reader in readers:  # a grandchild may hold the pipe: what the ranks wrote has come by then
                reader.join(timeout=1.0)
    return status


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """SIGTERM is noted, and ends this process with its ranks, wherever it comes between two steps of it."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGTERM, before)


def _start(rank: int, ranks: int, program: Sequence[str], directory: str) -> subprocess.Popen[bytes]:
    # A session of its own: whatever a rank starts is ended with it.
    return subprocess.Popen(
        [sys.executable, "-u", *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=config.environment_of_rank(rank, ranks, directory), start_new_session=True,
    )  # fmt: skip


def _pass_on(rank: int, stream: IO[bytes], out: IO[str], lock: Lock) -> None:
    """Whole lines, with the rank in front, as they come."""
    for line in iter(stream.readline, b""):
        with lock, contextlib.suppress(BrokenPipeError, ValueError):
            out.write(f"[{rank}] {line.decode(errors='replace').rstrip(chr(10))}\n")
            out.flush()


def _wait(processes: Sequence[subprocess.Popen[bytes]], grace_s: float, signals: Sequence[int]) -> int:
    """Until all have ended, or the grace after the first failure is over, or a signal came."""
    failed, give_up_at = 0, 0.0
    while not signals:
        codes = [process.poll() for process in processes]
        bad = [(rank, code) for rank, code in enumerate(codes) if code]
        if bad and not failed:
            rank, code = bad[0]
            failed, give_up_at = code if code > 0 else 128 - code, time.monotonic() + grace_s
            what = f"exit status {code}" if code > 0 else f"signal {-code} ({signal.Signals(-code).name})"
            print(f"gda launch: rank {rank} (process {processes[rank].pid}) ended with {what}", file=sys.stderr)
        if all(code is not None for code in codes) or (failed and time.monotonic() >= give_up_at):
            return failed
        time.sleep(_LOOK_S)
    return 128 + signals[0]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End those that still run, and what they started."""
    left = [(rank, process) for rank, process in enumerate(processes) if process.poll() is None]
    if left:
        print(f"gda launch: ending rank {', '.join(str(rank) for rank, _ in left)}", file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _, process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        end = time.monotonic() + _TERM_S
        for _, process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        left = [one for one in left if one[1].poll() is None]
