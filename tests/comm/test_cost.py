# SPDX-License-Identifier: Apache-2.0
"""What connecting costs grows with the peers of a rank and with nothing else; figures: `gda bench connect`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gda
from gda import attach
from gda.comm import Team, threads
from tests.comm.conftest import whole_world


def cost(size: int) -> tuple[int, int, int]:
    """Objects in the NIC for all ranks of a team, exchanges of a rank, bytes of a connection."""
    carriers, software = threads(size), attach.software_nic()

    def rank(number: int) -> tuple[int, int, int]:
        with gda.init(carriers[number], nic=nic, deadline_s=30, depth=16) as team:
            team.barrier()
            seen = software.objects() - before, team.bootstrap.phase, team.memory_bytes_per_connection
            team.barrier()
            return seen

    with gda.open() as nic:
        before = software.objects()
        (answer,) = set(whole_world(size, rank))
    return answer


def test_a_connection_costs_the_same_however_many_there_are(nothing_left) -> None:
    costs = {size: cost(size) for size in (2, 4, 8)}
    each = costs[2][0] / 4  # two queue pairs may share a doorbell page
    assert {size: objects for size, (objects, _, _) in costs.items()} == {size: size**2 * each for size in costs}
    assert len({rest for _, *numbers in costs.values() for rest in [tuple(numbers)]}) == 1


def test_on_demand_costs_what_is_asked_for(nothing_left) -> None:
    carriers, software = threads(6), attach.software_nic()

    def rank(number: int) -> int:
        with gda.init(carriers[number], nic=nic, deadline_s=30, depth=16, connect="on_demand") as team:
            ring(team)
            team.barrier()
            seen = software.objects() - before
            team.barrier()
            return seen

    def ring(team: Team) -> None:
        team.connect([(team.rank + 1) % 6, (team.rank - 1) % 6])

    each = cost(2)[0] / 4
    with gda.open() as nic:
        before = software.objects()
        assert set(whole_world(6, rank)) == {6 * 3 * each}


def test_twelve_processes_on_few_cores(tmp_path: Path) -> None:
    """Each has a NIC of its own, whose thread sleeps while there is nothing to do: they do not starve one another.

    They connect in every way, and each time a signal goes round.
    """
    file = tmp_path / "connect.json"
    command = [sys.executable, "-m", "gda", "bench", "connect", "--ranks", "12", "--processes", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    data = json.loads(file.read_text())
    assert [(row["ranks"], row["queue_pairs"]) for row in data["rows"]] == [(12, 12), (12, 12), (12, 3)]
    assert data["ranks_are"] == "processes" and all(0 < row["signal_s"] < 150 for row in data["rows"])
    assert all(0 < row["make_s"] + row["connect_s"] < row["rank_s"] for row in data["rows"])
