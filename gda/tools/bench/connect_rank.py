# SPDX-License-Identifier: Apache-2.0
"""One rank of `python -m gda bench connect`: it joins a team, has a signal go round, and tells what it saw.

A thread that connect_cost.py starts calls take_part(); with --processes that starts `python -m
gda.tools.bench.connect_rank DEPTH DEADLINE`, which goes through all ways and, as rank 0, prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gda
from gda import config
from gda.comm import Bootstrap, Team, rendezvous, threads
from gda.comm.bootstrap import Carrier
from gda.nic import Nic
from gda.once import once
from gda.tools.bench.cpu_time import NIC_THREAD, by_thread, clock_of

__all__ = ["NEIGHBOURS", "WAYS", "Moment", "Share", "take_part"]


@dataclass(frozen=True)
class Moment:
    """What clocks say, in seconds: the host's, and those of CPU time of the process and its software NIC's thread."""

    host_s: float
    cpu_s: float
    nic_s: float


@dataclass(frozen=True)
class Share:
    """What one rank saw, from the begin of gda.init() until it was connected."""

    begin: Moment
    end: Moment
    make_s: float  # its thread's CPU time
    connect_s: float
    signal_s: float  # until the signal of the rank before this one was there, the kernels for it loaded
    queue_pairs: int
    queue_bytes: int
    resident_before: int  # bytes of its process
    resident_after: int

    def to_bytes(self) -> bytes:
        """For the other ranks."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Share:
        """From what was JSON."""
        return cls(**{**told, "begin": Moment(**told["begin"]), "end": Moment(**told["end"])})


NEIGHBOURS = "on demand, its neighbours"
# How a rank connects; None: gda.init() does it.
WAYS: dict[str, Callable[[Team], None] | None] = {
    "all": None,
    "on demand, all": lambda team: team.connect(),
    NEIGHBOURS: lambda team: team.connect([(team.rank + 1) % team.size, (team.rank - 1) % team.size]),
}


def take_part(nic: Nic, control: Bootstrap, carrier: Carrier, way: str, depth: int) -> list[Share]:
    """Join the team that `carrier` makes; what all ranks saw.

    `control` is of the same ranks, beside that team, and its deadline counts.
    """
    connect, deadline_s = WAYS[way], control.deadline_s
    control.barrier()
    resident_before = _resident_bytes()
    begin = _now()
    with gda.init(
        carrier, nic=nic, depth=depth, deadline_s=deadline_s, connect="all" if connect is None else "on_demand"
    ) as team:
        if connect is not None:
            connect(team)
        end = _now()
        control.barrier()
        resident_after, cpu = _resident_bytes(), team.cpu_seconds
        share = Share(
            begin, end, cpu["make queue pairs"], cpu["connect"], _signal_round(team, deadline_s),
            sum(map(len, team.queues)), team.memory_bytes_per_connection, resident_before, resident_after,
        )  # fmt: skip
        return [Share.of(json.loads(one)) for one in control.allgather(share.to_bytes())]


def _signal_round(team: Team, deadline_s: float) -> float:
    """Each rank signals the next one: seconds of this one. So what was measured is a team that works."""
    begin = time.perf_counter()
    with team.signals(1) as signals:
        signals.signal((team.rank + 1) % team.size, 0, deadline_s=deadline_s)
        signals.wait_next(0, peer=(team.rank - 1) % team.size, deadline_s=deadline_s)
        seconds = time.perf_counter() - begin
        team.barrier()
    return seconds


def _now() -> Moment:
    nic_ns = sum(map(time.clock_gettime_ns, _nic_clocks()))
    return Moment(time.perf_counter(), time.process_time(), nic_ns / 1e9)


@once
def _nic_clocks() -> list[int]:
    """Of the threads of this process's software NICs, which are there as long as it is."""
    return [clock_of(number) for number, (name, _) in by_thread().items() if name == NIC_THREAD]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _process(depth: int, deadline_s: float) -> list[list[Share]]:
    """What all ranks saw, by way: this process is one of them."""
    control = Bootstrap(rendezvous.from_environment(deadline_s), deadline_s=deadline_s)
    place, shares = config.get("GDA_RENDEZVOUS"), []
    with gda.open() as nic:
        alone = Bootstrap(threads(1)[0])
        take_part(nic, alone, threads(1)[0], "all", depth)  # what is loaded and made once
        alone.close()
        for number, way in enumerate(WAYS):
            carrier = rendezvous.carrier(control.rank, control.size, f"{place}/{number}", deadline_s)
            shares.append(take_part(nic, control, carrier, way, depth))
        control.barrier()  # nobody closes its NIC while others still connect
    control.close()
    return shares if control.rank == 0 else []


if __name__ == "__main__":
    found = _process(int(sys.argv[1]), float(sys.argv[2]))
    if found:
        print(json.dumps([[asdict(one) for one in shares] for shares in found]))
