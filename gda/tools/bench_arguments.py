# SPDX-License-Identifier: Apache-2.0
"""The arguments of `python -m gda bench` and its commands.

What measures is imported when it is asked for: the command line must come up without libibverbs, and at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add_bench", "run_bench"]

Add = Callable[..., argparse.ArgumentParser]


def add_bench(commands: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare `bench`; `commands` is add_parser of the command line."""
    bench = commands(
        "bench",
        help="what a kernel's puts cost: an overview, or post, latency, rate, bandwidth, cpu",
        description="Without a command: puts posted by one kernel thread, time from put to completion by size, "
        "messages per second with several in flight, bandwidth of large writes. Medians of one run.",
        epilog="Each command explains what it measures: python -m gda bench post --help",
    )
    _placement(bench)
    bench.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    of = bench.add_subparsers(dest="measure", metavar="COMMAND")
    _post(of.add_parser)


def _placement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--placement", choices=("host", "gpu"), default="host", help="where the payload lies")
    parser.add_argument("--queues", choices=("host", "gpu"), default="host", help="where the queues lie")


def _outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    parser.add_argument("--plot", metavar="FILE.png", help="draw them (needs the extra `plot`: matplotlib)")


def _post(add: Add) -> None:
    post = add(
        "post",
        help="what posting alone costs, without any NIC",
        description="Posts 64-byte puts into rings that are deep enough never to fill; no NIC reads them. So it is the "
        "device library alone that is measured: checks, a slot, the work request, record, barriers, doorbell. Twelve "
        "rows differ in who posts: one thread, a warp, a block, the whole GPU; to queues of their own or to one. On a "
        "GPU rings and records lie in its memory, the doorbell's page in pinned host memory, as with a card. On a CPU "
        "the rows have fewer threads, which one or two cores play: they show that the command works, not what a GPU "
        "does.",
        epilog="One thread alone is a time for each put, all else is puts a second of all threads together: read a row "
        "against the same row of another stack (--beside), not against the next row. The columns without record are of "
        "queue pairs that need none (a capability of the card). example: python -m gda bench post --unchecked --json "
        "post.json --plot post.png",
    )
    post.add_argument("--launches", type=int, default=9, metavar="N", help="launches whose median counts (default 9)")
    post.add_argument(
        "--unchecked", action="store_true",
        help="measure also with all checks left out at compile time (GDA_UNCHECKED): handle, bounds, earlier errors, "
        "room in the ring",
    )  # fmt: skip
    post.add_argument("--row", action="append", metavar="NAME", help="only this row, as --json names it; repeatable")
    post.add_argument("--beside", metavar="FILE", help="another stack's figures, JSON as of --json, shown beside these")
    _outputs(post)


def run_bench(options: argparse.Namespace) -> None:
    """Run what `add_bench` has parsed."""
    if options.measure is None:
        from gda.tools.bench.overview import bench

        bench(placement=options.placement, queues=options.queues, as_json=options.json)
        return
    from gda.tools.bench import report

    getattr(report, options.measure)(options)
