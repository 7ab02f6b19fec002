# SPDX-License-Identifier: Apache-2.0
"""`python -m gda demo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    demo = command(
        "demo",
        help="one put from a kernel to its completion, each step shown",
        description="Runs one RDMA write posted by a kernel and shows every step: the NIC, where the queues lie, the "
        "work request, the doorbell, the completion and the data. Uses a real ConnectX and a GPU where there are any, "
        "else the software ConnectX and the CPU.",
    )
    demo.set_defaults(run=run)
    demo.add_argument("--bytes", type=int, default=1024, help="size of the first put (default 1024)")
    demo.add_argument("--placement", choices=("host", "gpu"), default="host", help="where the payload lies")
    demo.add_argument("--queues", choices=("host", "gpu"), default="host", help="where the queues lie")


def run(options: argparse.Namespace) -> int:
    """Show the steps; 0."""
    from gda.tools.demo import demo

    demo(bytes=options.bytes, placement=options.placement, queues=options.queues)
    return 0
