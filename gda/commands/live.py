# SPDX-License-Identifier: Apache-2.0
"""`python -m gda live`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    live = command(
        "live",
        help="what the queue pairs of a running or hung program do, and why it does not go on",
        description="Looks at a process of the same user, without its help and without disturbing it: indices, rings "
        "around the producer, doorbell records, states of both ends, completions, counters, the NIC's complaints, and "
        "likely causes. Works for programs of gda, and for any program on the software NIC.",
        epilog="Without PID it lists the processes that can be looked at. example: python -m gda live --watch 4711",
    )
    live.set_defaults(run=run)
    live.add_argument("pid", nargs="?", type=int, metavar="PID", help="the process")
    live.add_argument(
        "--watch", nargs="?", type=float, const=1.0, metavar="SECONDS", help="look again, every second by default"
    )
    live.add_argument("--causes", action="store_true", help="print the likely causes only")
    live.add_argument(
        "--stuck", type=float, default=0.0, metavar="SECONDS",
        help="look when one of its kernels has been running for so long, a minute from now at the latest",
    )  # fmt: skip
    live.add_argument("--times", type=int, default=0, metavar="N", help="how often --watch looks")


def run(options: argparse.Namespace) -> int:
    """Show it; 0."""
    from gda.tools.causes import causes
    from gda.tools.live import live, wait_for_kernel
    from gda.tools.live_text import causes_text
    from gda.tools.outside import processes

    if options.pid is None:
        found = processes()
        print("\n".join(f"{one.pid}: {one.command}" for one in found) or "no process of this user uses gda or its NIC")
        return 0
    count = 0
    if options.stuck:
        wait_for_kernel(options.pid, options.stuck)
    try:
        while True:
            seen = live(options.pid)
            print(causes_text(causes(seen)) if options.causes else seen, flush=True)
            count += 1
            if options.watch is None or count == options.times:
                return 0
            time.sleep(options.watch)
            print("\n" + ("\033[2J\033[H" if sys.stdout.isatty() else "---"))
    except KeyboardInterrupt:
        return 0
