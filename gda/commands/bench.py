# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench` and its commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["add", "run"]

Add = Callable[..., argparse.ArgumentParser]


def add(command: Add) -> None:
    """Declare the command: its arguments and what runs it."""
    bench = command(
        "bench",
        help="what a kernel's puts cost: an overview, or post, latency, rate, bandwidth, cpu, collectives, exchanges, "
        "connect",
        description="Without a command: puts posted by one kernel thread, time from put to completion by size, "
        "messages per second with several in flight, bandwidth of large writes. Medians of one run.",
        epilog="Each command explains what it measures: python -m gda bench post --help",
    )
    bench.set_defaults(run=run)
    _placement(bench)
    bench.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    of = bench.add_subparsers(dest="measure", metavar="COMMAND")
    _post(of.add_parser)
    for name, (short, description, epilog) in _TRANSFERS.items():
        _transfer(of.add_parser(name, help=short, description=description + _SIDES, epilog=epilog))
    _collectives(of.add_parser)
    _exchanges(of.add_parser)
    _connect(of.add_parser)


_SIDES = (
    "The same puts are posted by a kernel and by the CPU (a prepared batch of gda.HostQueuePair, from Python), first "
    "alone, then beside a matrix product that keeps the kernel's processor busy: CuPy's on a GPU, NumPy's on a CPU. "
    "Without a card the NIC is the software ConnectX: the figures are then of this machine's memory and processors."
)
_TRANSFERS = {
    "latency": (
        "one put: who triggers it (CPU, proxy, stream, kernel), its steps, and by size",
        "Three questions. Who triggers: the time from the moment at which a kernel decides to send eight bytes to the "
        "moment at which a kernel knows that they are there, by one clock, when the kernel ends and Python posts (a "
        "request built, or prepared before); when the kernel asks a CPU proxy (compiled code) through a word in host "
        "memory; when the stream rings for a prepared request; when the kernel rings for one; when it does it all, on "
        "a queue that all may share or on its own. Then bursts to addresses that the kernel has computed. Steps: "
        "what of a kernel's put is building, barriers, doorbell, NIC, looking for the completion. By size: from before "
        "the post to after its completion was read. ",
        "For one small message the CPU's way is often the faster: a kernel pays for fences and for reading over the "
        "bus. What posting itself takes of it stands below the table. "
        "example: python -m gda bench latency --json latency.json --plot latency.png",
    ),
    "rate": (
        "puts a second by blocks, threads, queues, size, puts a doorbell, puts in flight",
        "Puts a second, one thing changed at a time: blocks, threads of a block, queues that they share, bytes, "
        "puts a doorbell (GDA_MORE), puts in flight. By kernels, and by the CPU those of one thread. ",
        "Drawn beside: the NIC alone (prepared requests, of which one doorbell tells: nobody has to post), a CPU proxy "
        "that a warp asks for 64 puts at a time, and the link or one copy where bytes are many. Below the tables: "
        "posting alone (bench post). example: python -m gda bench rate --plot rate.png",
    ),
    "bandwidth": (
        "bytes a second, by size",
        "Bytes a second with 32 puts in flight, by size of a put. ",
        "The ceiling is the link of a card, or one copy of the bytes where the NIC is software. "
        "example: python -m gda bench bandwidth --placement gpu --plot bandwidth.png",
    ),
    "cpu": (
        "what puts take of the CPU, of the GPU, and of a matrix product beside them",
        "CPU time and multiprocessor time of puts with 32 in flight, for a million puts and for a GB, by a kernel, by "
        "the CPU and by a CPU proxy; CPU time by thread; and how much slower they make the product. ",
        "Nothing is free: a kernel that posts and waits holds a block on a multiprocessor, which stands in a column of "
        "its own; Python's wait for the kernel's end is in the CPU time. The software NIC's own thread is counted "
        "apart, since a card does its work. example: python -m gda bench cpu --json cpu.json",
    ),
}  # fmt: skip


def _placement(parser: argparse.ArgumentParser, default: str = "host") -> None:
    parser.add_argument("--placement", choices=("host", "gpu"), default=default, help="where the payload lies")
    parser.add_argument("--queues", choices=("host", "gpu"), default=default, help="where the kernel's queues lie")


def _seconds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=0.2, metavar="S", help="how long to measure each figure at least (default 0.2)"
    )


def _transfer(parser: argparse.ArgumentParser) -> None:
    _placement(parser, argparse.SUPPRESS)  # what stands before the command counts too
    _seconds(parser)
    parser.add_argument("--idle", action="store_true", help="leave the matrix product out")
    _outputs(parser)


def _collectives(command: Add) -> None:
    parser = command(
        "collectives",
        help="all-reduce by algorithm, protocol and size, and mpi4py's beside it",
        description="2 and 4 processes of this host add arrays of 8 bytes to 4 MiB (float32, in place): by recursive "
        "doubling and by a ring, with each of the three protocols (docs/protocols.md), many calls in one launch and a "
        "launch for each; and mpi4py's Allreduce, if it and mpirun are there. Kernels run on the CPU. With --placement "
        "gpu the arrays lie in GPU memory and kernels run there; ranks are threads then, and there is no mpi4py.",
        epilog="Processes that outnumber the cores take turns, which the medians show and the fastest calls do not. "
        "mpi4py goes through memory that they share, the device all-reduce through work requests of a NIC that is "
        "software. example: python -m gda bench collectives --json collectives.json --plot collectives.png",
    )
    _placement(parser, argparse.SUPPRESS)
    _seconds(parser)
    _outputs(parser)


def _outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    parser.add_argument("--plot", metavar="FILE.png", help="draw them (needs the extra `plot`: matplotlib)")


def _post(command: Add) -> None:
    post = command(
        "post",
        help="what posting alone costs, without any NIC",
        description="Posts 64-byte puts into rings that are deep enough never to fill; no NIC reads them. So it is the "
        "device library alone that is measured: checks, a slot, the work request, record, barriers, doorbell. Twelve "
        "rows differ in who posts: one thread, a warp, a block, the whole GPU; to queues of their own or to one. On a "
        "GPU rings and records lie in its memory, the doorbell's page in pinned host memory, as with a card. On a CPU "
        "the rows have fewer threads, which one or two cores play: they show that the command works, not what a GPU "
        "does. Then fences, atomics, doorbells and records of each put, counted in launches of their own.",
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
    post.add_argument(
        "--second-lap", action="store_true",
        help="with rings that have been round once: all that they hold is complete, but the posts have to find it out",
    )  # fmt: skip
    post.add_argument(
        "--doorbell", action="append", choices=("record", "no-record", "doorbell-first", "blueflame", "cpu"),
        metavar="MODE", help="a way to tell the NIC (docs/doorbells.md: %(choices)s); repeatable, default: record and "
        "no-record. With cpu only the asking is measured: no thread takes it",
    )  # fmt: skip
    post.add_argument("--row", action="append", metavar="NAME", help="only this row, as --json names it; repeatable")
    post.add_argument("--beside", metavar="FILE", help="another stack's figures, JSON as of --json, shown beside these")
    _outputs(post)


def _exchanges(command: Add) -> None:
    parser = command(
        "exchanges",
        help="broadcast, all-gather and all-to-all by algorithm, size and number of ranks",
        description="Median time of a call on rank 0. Ranks are threads of this process and share its NIC: what shows "
        "is the way of each algorithm (how often a byte is sent, how many steps follow each other), not a network. "
        "A call is a launch from Python: for few bytes that is most of it.",
        epilog="example: python -m gda bench exchanges --ranks 2,4,8 --json exchanges.json",
    )
    parser.add_argument("--ranks", default="2,4", metavar="N,...", help="how many ranks (default 2,4)")
    _seconds(parser)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")


def _connect(command: Add) -> None:
    parser = command(
        "connect",
        help="what connecting costs a rank and a queue pair, by the number of ranks, as a table and a curve",
        description="What gda.init() takes until a rank is connected: to make its queue pairs, to exchange their "
        "addresses, to connect; and what memory. A rank has a queue pair to each rank, so its time should be a line "
        "over their number, and the time and memory of a queue pair the same however many there are: the fitted line "
        'stands below each table. Three ways: connect="all"; on demand, and then to all; on demand to the two ranks '
        "beside it, which hardly grows with their number. Afterwards a signal goes round.",
        epilog="Times are CPU time, which does not grow while a rank waits for others or for a core. Ranks are threads "
        "of this process, on one NIC; with --processes each is a process with a NIC of its own. "
        "example: python -m gda bench connect --ranks 2,4,8,16,32,64 --json connect.json --plot connect.png",
    )
    parser.add_argument(
        "--ranks", default="2,4,8,16,32,64", metavar="N,...", help="how many ranks (default %(default)s)"
    )
    parser.add_argument("--processes", action="store_true", help="ranks are processes, which connect once each way")
    parser.add_argument(
        "--depth", type=int, default=16, metavar="N", help="work requests of a queue pair's ring (default %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.5, metavar="S",
        help="repeat each number of ranks for so long, once at least; the median counts (default %(default)s)",
    )  # fmt: skip
    _outputs(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and show; 0."""
    if options.measure is None:
        from gda.tools.bench.overview import bench

        bench(placement=options.placement, queues=options.queues, as_json=options.json)
        return 0
    if options.measure == "exchanges":
        from gda.tools.bench.exchanges import exchanges

        exchanges(options)
        return 0
    if options.measure == "connect":
        from gda.tools.bench.connect import connect

        connect(options)
        return 0
    from gda.tools.bench import report

    getattr(report, options.measure)(options)
    return 0
