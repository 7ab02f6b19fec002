# SPDX-License-Identifier: Apache-2.0
"""What connecting costs by the number of ranks, and by how they connect. Used by connect.py.

Ranks are threads of this process on its one NIC, or processes of this host. Document: docs/programs.md, "Team".
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from gda.comm import Bootstrap, threads
from gda.nic import Nic
from gda.nic import open as open_nic
from gda.tools.bench.connect_rank import NEIGHBOURS, WAYS, Share, take_part
from gda.tools.bench.processes import as_ranks

__all__ = ["Connecting", "Law", "fit", "measure_connecting"]

_MOST_ROUNDS = 50
_ENOUGH = 64  # queue pairs of all ranks: what fewer take is lost in what was there before


@dataclass(frozen=True)
class Connecting:
    """One number of ranks, connected in one way: the round whose CPU time is the median of `rounds`.

    Times of a rank are CPU time, which does not grow while it waits for others or for a core: `rank_s` is all of it,
    make_s, connect_s, exchange_s (all else) and nic_s are its parts.
    """

    way: str
    ranks: int
    queue_pairs: int  # of a rank
    rounds: int
    passed_s: float  # from the first rank's begin to the last one's end
    rank_s: float
    make_s: float
    connect_s: float
    exchange_s: float
    nic_s: float  # the software NIC's thread
    signal_s: float  # afterwards: until each rank had a signal of the one before it
    queue_bytes: int  # of a queue pair: its rings, records, handle
    all_bytes: int | None  # of a queue pair: what the process, NIC and all, has grown by; None: not looked at

    @property
    def each_s(self) -> float:
        """Of a queue pair."""
        return self.rank_s / self.queue_pairs


@dataclass(frozen=True)
class Law:
    """A line through what a rank costs: `base_s`, and `each_s` for each rank of its team."""

    base_s: float
    each_s: float
    off: float  # how far the farthest point is from it, as a part of the line's value

    def at(self, ranks: float) -> float:
        """Seconds."""
        return self.base_s + self.each_s * ranks


def fit(points: Sequence[tuple[float, float]]) -> Law | None:
    """The line nearest to (ranks, seconds), distances as parts of each; None for fewer than two places."""
    if len({x for x, _ in points}) < 2:
        return None
    weights = [1 / y**2 for _, y in points]
    total = math.fsum(weights)
    mean_x = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    rise = math.fsum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    each = rise / math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    base = mean_y - each * mean_x
    return Law(base, each, max(abs(base + each * x - y) / y for x, y in points))


def measure_connecting(
    ranks: Sequence[int], *, depth: int = 16, seconds: float = 0.5, processes: bool = False
) -> tuple[list[Connecting], list[str]]:
    """Every way with so many ranks; threads repeat it for about `seconds`, processes do it once.

    Also answers what could not be measured here, and why.
    """
    sizes = sorted(set(ranks))  # ascending: memory of a small team may be that of a larger one before it
    if processes:
        return [row for size in sizes for row in _by_processes(size, depth)], []
    rows, missing = [], []
    with open_nic() as nic:
        for way in WAYS:  # what is loaded and made once
            _round(nic, 2, way, depth)
        base = _round(nic, 1, "all", depth)[0].resident_before
        for way in WAYS:
            for size in sizes:
                meet = {"all": 0, NEIGHBOURS: 2}.get(way, size)
                with _descriptors(size, meet) as why, _no_garbage_collected():
                    if why:
                        missing.append(f"{way}, {size} ranks: {why}")
                        continue
                    rounds = _rounds(nic, size, way, depth, seconds)
                    made = [_row(way, shares, len(rounds), base) for shares in rounds]
                    rows.append(sorted(made, key=lambda row: row.rank_s)[(len(made) - 1) // 2])
    return rows, missing


def _deadline_s(size: int) -> float:
    """For one that takes a quarter of a second a queue pair and rank: bounded, however busy the machine is."""
    return 30.0 + 4.0 * size


# ------------------------------------------------------------------------------------------------------------- threads
def _rounds(nic: Nic, size: int, way: str, depth: int, seconds: float) -> list[list[Share]]:
    """What the ranks saw, each time."""
    rounds: list[list[Share]] = []
    end = time.perf_counter() + seconds
    while not rounds or (time.perf_counter() < end and len(rounds) < _MOST_ROUNDS):
        rounds.append(_round(nic, size, way, depth))
    return rounds


def _round(nic: Nic, size: int, way: str, depth: int) -> list[Share]:
    """A team of so many threads is made and closed; what its ranks saw."""
    carriers, controls = threads(size), threads(size)

    def rank(number: int) -> list[Share]:
        control = Bootstrap(controls[number], deadline_s=_deadline_s(size))
        try:
            return take_part(nic, control, carriers[number], way, depth)
        finally:
            control.close()

    with ThreadPoolExecutor(size) as pool:
        every = list(pool.map(rank, range(size)))  # all of them: another rank may have failed
    return every[0]


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Python's collector looks at all objects of a process now and then: here of all ranks, elsewhere of one."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _descriptors(size: int, meet: int) -> Iterator[str]:
    """In the `with` this process may have as many descriptors as so many ranks need; why not, or empty.

    On demand a rank meets its peers, `meet` of them, each at a TCP connection, both ends of which are of this process.
    """
    needed = size * (meet + 8) + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        yield ""
    elif needed > hard != resource.RLIM_INFINITY:
        yield f"in one process they may need {needed:,} descriptors, and it may have {hard:,} (ulimit -Hn); --processes"
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        try:
            yield ""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ----------------------------------------------------------------------------------------------------------- processes
def _by_processes(size: int, depth: int) -> list[Connecting]:
    """Each has a NIC of its own."""
    told = as_ranks(size, "gda.tools.bench.connect_rank", str(depth), str(_deadline_s(size)))
    return [_row(way, [Share.of(one) for one in found], 1) for way, found in zip(WAYS, told, strict=True)]


def _row(way: str, shares: Sequence[Share], rounds: int, base: int | None = None) -> Connecting:
    """Of one round. `base`: the ranks share a process, which had so many bytes before; None: each is one."""
    size, first = len(shares), shares[0]
    if base is None:
        cpu = math.fsum(one.end.cpu_s - one.begin.cpu_s for one in shares)
        nic_cpu = math.fsum(one.end.nic_s - one.begin.nic_s for one in shares)
        grown = sum(one.resident_after - one.resident_before for one in shares)
    else:
        cpu = max(one.end.cpu_s for one in shares) - min(one.begin.cpu_s for one in shares)
        nic_cpu = max(one.end.nic_s for one in shares) - min(one.begin.nic_s for one in shares)
        grown = max(one.resident_after for one in shares) - base
    pairs = sum(one.queue_pairs for one in shares)
    make, connect = math.fsum(one.make_s for one in shares), math.fsum(one.connect_s for one in shares)
    passed = max(one.end.host_s for one in shares) - min(one.begin.host_s for one in shares)
    return Connecting(
        way, size, first.queue_pairs, rounds, passed, cpu / size, make / size, connect / size,
        max(0.0, cpu - nic_cpu - make - connect) / size, nic_cpu / size, max(one.signal_s for one in shares),
        first.queue_bytes, grown // pairs if way == "all" and pairs >= _ENOUGH else None,
    )  # fmt: skip
