# SPDX-License-Identifier: Apache-2.0
"""Times of puts posted by a kernel: `python -m gda bench`. Each figure is a median of one run on this machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from gda.nic import Nic
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.bench.sides import KERNELS, KernelSide, summary

__all__ = ["Latency", "Rate", "bench", "measure_latency", "measure_rate"]

DEPTH = 128  # of the ring: what a queue pair has by default
WARM_ROUNDS = 20


@dataclass(frozen=True)
class Latency:
    """Put-to-completion times of one size, in nanoseconds."""

    bytes: int
    median_ns: float
    fastest_ns: float
    p99_ns: float
    count: int


@dataclass(frozen=True)
class Rate:
    """Puts per second and bytes per second with `in_flight` puts between waits."""

    bytes: int
    in_flight: int
    per_second: float
    bytes_per_second: float


def _times(side: KernelSide, size: int, rounds: int, burst: int) -> np.ndarray:
    """Nanoseconds of each round, after a warm-up."""
    side.rounds(size, WARM_ROUNDS, burst)
    return side.rounds(size, rounds, burst)


def measure_latency(
    nic: Nic, sizes: Iterable[int], placement: str = "host", queues: str = "host", rounds: int = 500
) -> list[Latency]:
    """One put in flight: time from gda_put to the end of gda_wait on the kernel's clock, by size in bytes."""
    sizes = list(sizes)
    rows = []
    with closing(KernelSide(nic, max(sizes), placement, queues, DEPTH)) as side:
        for size in sizes:
            count = max(50, min(rounds, (1 << 27) // max(size, 1)))
            _, median_ns, p99_ns, fastest_ns = summary(_times(side, size, count, 1))
            rows.append(Latency(size, median_ns, fastest_ns, p99_ns, count))
    return rows


def measure_rate(
    nic: Nic, sizes: Iterable[int], in_flight: int = 32, placement: str = "host", queues: str = "host"
) -> list[Rate]:
    """`in_flight` puts, then a wait: median rate by size in bytes."""
    sizes = list(sizes)
    rows = []
    with closing(KernelSide(nic, max(sizes), placement, queues, DEPTH)) as side:
        for size in sizes:
            count = max(20, min(500, (1 << 28) // max(size * in_flight, 1)))
            seconds = float(np.median(_times(side, size, count, in_flight))) / 1e9
            rows.append(Rate(size, in_flight, in_flight / seconds, size * in_flight / seconds))
    return rows


def bench(placement: str = "host", queues: str = "host", as_json: bool = False) -> None:
    """Print latency, message rate and bandwidth on this machine's NIC."""
    with open_nic() as nic:
        latency = measure_latency(nic, (8, 64, 512, 4096, 65536, 1 << 20), placement, queues)
        rate = measure_rate(nic, (8, 4096, 65536, 1 << 20), 32, placement, queues)
        where = Kernel(KERNELS).where
        if as_json:
            result = {
                "nic": nic.description,
                "kernels": where,
                "machine": platform.machine(),
                "placement": placement,
                "queues": queues,
                "latency": [asdict(row) for row in latency],
                "rate": [asdict(row) for row in rate],
            }
            print(json.dumps(result, indent=1))
            return
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"{nic.name}: {nic.description}; kernels run on {where}; payload in {placement} memory")
        table = Table("size", "median", "fastest", "p99", title="one put in flight", title_justify="left")
        for row in latency:
            table.add_row(
                f"{row.bytes} B", *(f"{t / 1000:.2f} us" for t in (row.median_ns, row.fastest_ns, row.p99_ns))
            )
        console.print(table)
        table = Table("size", "puts/s", "bandwidth", title="32 puts in flight", title_justify="left")
        for flow in rate:
            table.add_row(
                f"{flow.bytes} B", f"{flow.per_second / 1e6:.3f} M", f"{flow.bytes_per_second / 1e9:.2f} GB/s"
            )
        console.print(table)
