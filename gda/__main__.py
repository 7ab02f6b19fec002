# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m gda COMMAND`. `python -m gda --help` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gda.commands import bench, demo, doctor, inspect, launch, live, pcap, profile, record, sim, trace
from gda.errors import GdaError

COMMANDS = (demo, doctor, launch, inspect, live, profile, trace, pcap, bench, record, sim)  # in the order of --help


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gda",
        description="GPU-initiated RDMA: a kernel posts work requests, rings the doorbell and reads completions.",
        epilog="Start with `python -m gda demo`. Environment variables: docs/environment.md.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands.add_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what it says, 1 with a message on stderr otherwise."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except GdaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head` has seen enough; nothing more may be written, also not at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
