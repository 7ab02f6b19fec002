# SPDX-License-Identifier: Apache-2.0
"""`python -m gda profile`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    profile = command(
        "profile",
        help="what a program sends and waits for, and whether GPU initiation would help it",
        description="Runs an unmodified program, on the software ConnectX or on the card of this machine: messages by "
        "operation and size, doorbells a message, time waiting, CPU time by thread, and a verdict with its reasons: "
        "yes, no or undecided. What is not seen is said (docs/profile.md).",
        epilog="example: python -m gda profile -- python examples/01_first_put.py",
    )
    profile.set_defaults(run=run)
    profile.add_argument(
        "--on", choices=("software", "card"), default="software", help="the NIC that it runs on (default: software)"
    )
    profile.add_argument("--json", metavar="FILE", help="write everything to this file too, as JSON; - instead of text")
    profile.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")


def run(options: argparse.Namespace) -> int:
    """Run it and show what was seen; the program's exit status."""
    from gda.sim import preload_libraries
    from gda.tools.profile import as_json, profile, profile_text

    preload = preload_libraries() if options.on == "software" else []
    seen, judged = profile(options.program, options.on, preload)
    if options.json:
        text = json.dumps(as_json(seen, judged), indent=1)
        if options.json == "-":
            print(text)
            return seen.status
        Path(options.json).write_text(text + "\n")
    print(profile_text(seen, judged))
    return seen.status if seen.status >= 0 else 1
