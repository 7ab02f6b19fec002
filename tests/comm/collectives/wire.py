# SPDX-License-Identifier: Apache-2.0
"""Run by test_wire.py in a process with eight NICs, one a rank: payload bytes that each has sent in a collective.

A line of JSON for each: name, ranks, and the bytes of each rank.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import gda
from gda.comm import Team, threads
from tests.comm.conftest import whole_world

BYTES = 50_000  # of a piece, or of a broadcast

class Rows:
    """Rank r sends BYTES * (r + 1) rows of one byte to each."""

    def __init__(self, team: Team) -> None:
        most = BYTES * team.size * team.size
        self.both = team.all_to_all_v(most, most, most, row_bytes=1, back_row_bytes=1)
        self.counts = [BYTES * (team.rank + 1)] * team.size

    def dispatch(self) -> None:
        self.both.dispatch(self.counts)

    def there_and_back(self) -> None:
        self.dispatch()
        self.both.combine()


COLLECTIVES: dict[str, Callable[[Team], Callable[[], object]]] = {
    "broadcast by tree": lambda team: team.broadcast(BYTES, algorithm="tree"),
    "broadcast by chain": lambda team: team.broadcast(BYTES, algorithm="chain", chunk_bytes=12_000),
    "all-gather by ring": lambda team: team.all_gather(team.size * BYTES, algorithm="ring"),
    "all-gather direct": lambda team: team.all_gather(team.size * BYTES, algorithm="direct"),
    "all-to-all": lambda team: team.all_to_all(team.size * BYTES, team.size * BYTES),
    "rows to ranks": lambda team: Rows(team).dispatch,
    "rows and back": lambda team: Rows(team).there_and_back,
}


def measure(size: int) -> None:
    carriers = threads(size)

    def work(rank: int) -> dict[str, int]:
        sent = {}
        with gda.open(f"mlx5_{rank}") as nic, gda.init(carriers[rank], nic=nic, deadline_s=30) as team:
            for name, make in COLLECTIVES.items():
                call = make(team)
                team.barrier()
                before = nic.counters()["bytes_sent"]
                team.barrier()
                call()
                team.barrier()
                sent[name] = nic.counters()["bytes_sent"] - before
            team.barrier()
        return sent

    answers = whole_world(size, work)
    for name in COLLECTIVES:
        print(json.dumps([name, size, [one[name] for one in answers]]))


if __name__ == "__main__":
    for ranks in (1, 2, 5, 8):
        measure(ranks)
