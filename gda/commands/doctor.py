# SPDX-License-Identifier: Apache-2.0
"""`python -m gda doctor`."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    doctor = command(
        "doctor",
        help="what this machine can do, why not, and what to do next",
        description="Looks at libraries, kernel, network cards, GPUs and the way between them, and tries what can be "
        "tried without leaving anything behind. Needs no root and no card, changes nothing. docs/doctor.md.",
    )
    doctor.set_defaults(run=run)
    doctor.add_argument("--json", action="store_true", help="for programs: every line with its facts")
    doctor.add_argument("--seconds", type=float, default=10.0, help="the longest that one line may take (default 10)")
    doctor.add_argument("--width", type=int, metavar="N", help="columns (default: the terminal's, 80 in a pipe)")
    doctor.add_argument("--svg", metavar="FILE", help="also write what is shown as a picture")


def run(options: argparse.Namespace) -> int:
    """Show the lines; 0, whatever they say."""
    sys.dont_write_bytecode = True  # it changes nothing
    from rich.console import Console

    from gda.tools.doctor.examine import examine
    from gda.tools.doctor.show import picture, show

    report = examine(seconds=options.seconds)
    if options.json:
        print(json.dumps(report.to_json(), indent=1))
        return 0
    file = None if sys.stdout.isatty() else _Trimmed(sys.stdout)
    console = Console(highlight=False, width=options.width, record=options.svg is not None, file=file)
    show(report, console)
    if options.svg:
        Path(options.svg).write_text(picture(console))
    return 0


class _Trimmed(io.StringIO):
    """A pipe that gets no spaces at the ends of lines."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file
        self._line = ""

    def write(self, text: str) -> int:
        """Write whole lines."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._file.write(line.rstrip(" ") + "\n")
        return len(text)
