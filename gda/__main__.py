# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m gda COMMAND`. `python -m gda --help` lists the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gda.errors import GdaError
from gda.tools.bench_arguments import add_bench, run_bench


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gda",
        description="GPU-initiated RDMA: a kernel posts work requests, rings the doorbell and reads completions.",
        epilog="Start with `python -m gda demo`. Environment variables: docs/environment.md.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="one put from a kernel to its completion, each step shown",
        description="Runs one RDMA write posted by a kernel and shows every step: the NIC, where the queues lie, the "
        "work request, the doorbell, the completion and the data. Uses a real ConnectX and a GPU where there are any, "
        "else the software ConnectX and the CPU.",
    )
    demo.add_argument("--bytes", type=int, default=1024, help="size of the first put (default 1024)")
    demo.add_argument("--placement", choices=("host", "gpu"), default="host", help="where the payload lies")
    demo.add_argument("--queues", choices=("host", "gpu"), default="host", help="where the queues lie")

    add_bench(commands.add_parser)

    sim = commands.add_parser(
        "sim",
        help="run any program on the software ConnectX",
        description="Runs an unmodified program with the software ConnectX behind its libibverbs.",
        epilog="example: python -m gda sim run -- ibv_devinfo -v",
    )
    actions = sim.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run a program: python -m gda sim run -- PROGRAM ARGUMENTS")
    run.add_argument("--nics", type=int, metavar="N", help="how many NICs the program sees (default 1, at most 8)")
    run.add_argument("--ports", type=int, metavar="N", help="how many ports each NIC has (default 1, at most 4)")
    run.add_argument(
        "--address", metavar="A[,B]", help="addresses of this host on which to reach others, UDP port 4791"
    )
    run.add_argument("--faults", metavar="SPEC", help='faults of the network, such as "drop=5%%,seed=7"')
    run.add_argument("--capture", metavar="FILE", help="write every packet to this pcapng file")
    run.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what it says, 1 with a message on stderr otherwise."""
    options = _parser().parse_args(argv)
    try:
        if options.command == "demo":
            from gda.tools.demo import demo

            demo(bytes=options.bytes, placement=options.placement, queues=options.queues)
            return 0
        if options.command == "bench":
            run_bench(options)
            return 0
        from gda.sim import run

        program = [a for i, a in enumerate(options.program) if i or a != "--"]
        return run(
            program, nics=options.nics, ports=options.ports, address=options.address, faults=options.faults,
            capture=options.capture,
        )  # fmt: skip
    except GdaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
