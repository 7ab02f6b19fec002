# SPDX-License-Identifier: Apache-2.0
"""`python -m gda trace`: record a program, show a recording."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    trace = command(
        "trace",
        help="what every party did, as one timeline: python -m gda trace --out put.html -- PROGRAM",
        description="Runs a program on the software ConnectX and records what its kernels, its NICs and gda itself do, "
        "of all processes that it starts; then prints how long each stage of its requests took. `trace show FILE.json` "
        "does so again from a file.",
        epilog="examples: python -m gda trace --out put.html -- python examples/03_your_kernel.py; "
        "python -m gda trace --out put.json -- ib_write_bw; python -m gda trace show put.json --out put.html",
    )
    trace.set_defaults(run=run)
    _outputs(trace)
    trace.add_argument("--no-kernels", action="store_true", help="trace kernels only where they ask for it")
    trace.add_argument(
        "program", nargs=argparse.REMAINDER, help="-- PROGRAM ARGUMENTS, or: show FILE.json [--out FILE]"
    )


def _outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="FILE", action="append", default=[],
        help="also write a timeline: FILE.html to look at with a browser, FILE.json for Perfetto; repeatable",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Record or show; the program's exit status, else 0."""
    from gda.tools.trace import load
    from gda.tools.trace.program import checked_outputs, run_traced, show

    words = list(options.program)
    if words[:1] == ["show"]:
        parser = argparse.ArgumentParser(prog="python -m gda trace show", description="Shows a recording.")
        parser.add_argument("file", type=Path, help="a trace that was written as .json")
        _outputs(parser)
        shown = parser.parse_args(words[1:])
        outputs = checked_outputs([*options.out, *shown.out])
        show(load(shown.file), outputs)
        return 0
    from gda.sim import environment_of, program_of

    outputs = checked_outputs(options.out)
    return run_traced(program_of(words, "trace"), environment_of(), outputs, kernels=not options.no_kernels)
