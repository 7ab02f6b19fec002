# SPDX-License-Identifier: Apache-2.0
"""Runs a program on the software NIC with a trace of all its processes: `python -m gda trace -- PROGRAM`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from gda.errors import ArgumentError
from gda.tools.trace.recording import Trace, read_directory

__all__ = ["checked_outputs", "run_traced", "show"]


def checked_outputs(names: Iterable[str]) -> list[Path]:
    """Files to write, refused before the program has run in vain."""
    outputs = [Path(name) for name in names]
    for path in outputs:
        if path.suffix not in (".html", ".json"):
            raise ArgumentError(f"--out {path}: a trace is written as .json or .html", "choose one of the two")
        if not path.absolute().parent.is_dir():
            raise ArgumentError(f"--out {path}: there is no directory {path.parent}", "make it first")
    return outputs


def show(trace: Trace, outputs: Iterable[Path]) -> None:
    """Print the stages; write the files."""
    console = Console()
    trace.print(console)
    for path in outputs:
        trace.save(path)
        console.print(f"wrote {path}", soft_wrap=True)


def run_traced(
    command: Sequence[str], environment: Mapping[str, str], outputs: Sequence[Path], *, kernels: bool = True
) -> int:
    """Run a program to its end, then show what it and its children left; its exit status.

    The environment puts it on the software NIC (gda.sim.environment_of). A program that is ended by a signal, also by
    Ctrl-C, has its trace shown all the same.
    """
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="gda-trace-", dir=memory) as where:
        own = {"GDA_TRACE": where, "GDA_TRACE_KERNELS": "auto" if kernels else "off"}
        process = subprocess.Popen(command, env={**environment, **own})
        try:
            status = process.wait()
        except KeyboardInterrupt:
            status = process.wait()
        show(read_directory(where), outputs)
    return status if status >= 0 else 128 - status
