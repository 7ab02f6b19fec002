# SPDX-License-Identifier: Apache-2.0
"""`python -m gda sim run`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    sim = command(
        "sim",
        help="run any program on the software ConnectX",
        description="Runs an unmodified program with the software ConnectX behind its libibverbs.",
        epilog="example: python -m gda sim run -- ibv_devinfo -v",
    )
    actions = sim.add_subparsers(dest="action", required=True, metavar="ACTION")
    program = actions.add_parser("run", help="run a program: python -m gda sim run -- PROGRAM ARGUMENTS")
    program.set_defaults(run=run)
    program.add_argument("--nics", type=int, metavar="N", help="how many NICs the program sees (default 1, at most 8)")
    program.add_argument("--ports", type=int, metavar="N", help="how many ports each NIC has (default 1, at most 4)")
    program.add_argument(
        "--address", metavar="A[,B]", help="addresses of this host on which to reach others, UDP port 4791"
    )
    program.add_argument("--faults", metavar="SPEC", help='faults of the network, such as "drop=5%%,seed=7"')
    program.add_argument(
        "--pcap", "--capture", dest="capture", metavar="FILE", help="write every packet to this pcapng file"
    )
    program.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")


def run(options: argparse.Namespace) -> int:
    """Run the program; its exit status."""
    from gda.sim import run as run_program

    program = [a for i, a in enumerate(options.program) if i or a != "--"]
    return run_program(
        program, nics=options.nics, ports=options.ports, address=options.address, faults=options.faults,
        capture=options.capture,
    )  # fmt: skip
