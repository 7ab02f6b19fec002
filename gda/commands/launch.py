# SPDX-License-Identifier: Apache-2.0
"""`python -m gda launch`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    launch = command(
        "launch",
        help="start a program of several processes on this host",
        description="Starts N processes of a Python program that find each other by gda.init(). What they print has "
        "their rank in front. The exit status is that of the first that fails; the others are ended then.",
        epilog="example: python -m gda launch -n 4 examples/12_ranks.py",
    )
    launch.set_defaults(run=run)
    launch.add_argument("-n", "--ranks", type=int, required=True, metavar="N", help="how many processes")
    launch.add_argument(
        "--grace", type=float, default=5.0, metavar="SECONDS",
        help="how long the others may go on when one has failed, before they are killed (default 5)",
    )  # fmt: skip
    launch.add_argument("program", nargs=argparse.REMAINDER, help="the Python program and its arguments")


def run(options: argparse.Namespace) -> int:
    """Run the program; the exit status of the first process that failed, else 0."""
    from gda.tools.launch import launch

    program = [a for i, a in enumerate(options.program) if i or a != "--"]
    return launch(options.ranks, program, grace_s=options.grace)
