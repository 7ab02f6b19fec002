# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench exchanges`: time of a call by size and ranks, which are threads of this process with one NIC.

A call is a launch from Python; calls follow each other without a barrier. Document: docs/programs.md, "Collectives".
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Protocol

import gda
from gda.comm import Team, threads
from gda.comm.bootstrap import Carrier
from gda.tools.bench import show
from gda.tools.bench.present import size_text

__all__ = ["CallTime", "exchanges", "measure_exchanges"]

SIZES = (8, 4 << 10, 64 << 10, 1 << 20)  # bytes of a piece; of a broadcast, all of it
_FEWEST, _MOST = 5, 2000  # calls whose median counts
_DEADLINE_S = 30.0


class _Call(Protocol):
    def __call__(self, *, deadline_s: float) -> None: ...


# How each is made for a piece of so many bytes.
_MAKERS: dict[str, Callable[[Team, int], _Call]] = {
    "broadcast, tree": lambda team, bytes: team.broadcast(bytes, algorithm="tree"),
    "broadcast, chain": lambda team, bytes: team.broadcast(bytes, algorithm="chain"),
    "all-gather, ring": lambda team, bytes: team.all_gather(team.size * bytes, algorithm="ring"),
    "all-gather, direct": lambda team, bytes: team.all_gather(team.size * bytes, algorithm="direct"),
    "all-to-all": lambda team, bytes: team.all_to_all(team.size * bytes, team.size * bytes),
}


@dataclass(frozen=True)
class CallTime:
    """One figure: `seconds` is the median of rank 0's calls."""

    collective: str
    ranks: int
    bytes: int
    calls: int
    seconds: float


def measure_exchanges(ranks: Sequence[int], sizes: Sequence[int] = SIZES, seconds: float = 0.2) -> list[CallTime]:
    """Times of a call, on rank 0, for each number of ranks, collective and size; about `seconds` each."""
    found = []
    for size in ranks:
        carriers = threads(size)

        def work(rank: int, carriers: list[Carrier] = carriers) -> list[CallTime]:
            with gda.init(carriers[rank]) as team:
                times = [_measure(team, name, bytes, seconds) for name in _MAKERS for bytes in sizes]
                team.barrier()
                return times

        with ThreadPoolExecutor(size) as pool:
            every = list(pool.map(work, range(size)))  # all of them: another rank may have failed
        found += every[0]
    return found


def _measure(team: Team, name: str, bytes: int, seconds: float) -> CallTime:
    call = _MAKERS[name](team, bytes)
    begin = time.perf_counter()
    for _ in range(2):
        call(deadline_s=_DEADLINE_S)
    each = (time.perf_counter() - begin) / 2
    # The same number of calls on all ranks: rank 0's.
    told = team.bootstrap.allgather(str(min(_MOST, max(_FEWEST, int(seconds / each)))).encode())[0]
    taken = []
    for _ in range(int(told)):
        begin = time.perf_counter()
        call(deadline_s=_DEADLINE_S)
        taken.append(time.perf_counter() - begin)
    return CallTime(name, team.size, bytes, len(taken), statistics.median(taken))


def exchanges(options: argparse.Namespace) -> None:
    """`bench exchanges`."""
    show.check_outputs(options.json, None)
    show.check_seconds(options.seconds)
    ranks = show.ranks_of(options.ranks, 64)
    times = measure_exchanges(ranks, seconds=options.seconds)
    with gda.open() as nic:
        where = gda.Kernel("#include <gda/kernels/barrier.h>\n").where
        show.print_heading(f"a call, launched from Python; ranks are threads here; {nic.description}; {where}")
    for size in ranks:
        rows = []
        for name in _MAKERS:
            mine = {one.bytes: one for one in times if one.collective == name and one.ranks == size}
            rows.append([name, *(show.time_text(mine[bytes].seconds * 1e9) for bytes in SIZES)])
        show.print_table(f"{size} ranks, by bytes of a piece", ["", *map(size_text, SIZES)], rows)
    if options.json:
        show.write_json(options.json, "bench exchanges", where, {"rows": [asdict(one) for one in times]})
