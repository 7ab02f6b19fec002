# SPDX-License-Identifier: Apache-2.0
"""Teams whose queue pairs the proxy serves, on a network that loses packets: windows, signals, barriers; and mixed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda import attach
from gda.comm import Team

from .conftest import teams

BYTES = 40_000


@pytest.fixture(autouse=True)
def proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_POSTING", "proxy")


@pytest.fixture
def lossy() -> Iterator[None]:
    software = attach.software_nic()
    software.set_faults("drop=5%,seed=11")
    try:
        yield
    finally:
        software.set_faults("")


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_arrive_in_spite_of_loss(lossy: None, nothing_left: None, size: int) -> None:
    def work(team: Team) -> bool:
        assert team.nic.posting == "proxy" and any(t.name == "gda proxy" for t in threading.enumerate())
        array = np.zeros(size * BYTES, np.uint8)
        own = slice(team.rank * BYTES, (team.rank + 1) * BYTES)
        array[own] = np.random.default_rng(team.rank).integers(0, 256, BYTES, np.uint8)
        with team.window(array) as window, team.signals(1) as signals, team.device_barrier() as barrier:
            for peer in range(size):
                signals.put_signal(peer, 0, window[own], window[own], deadline_s=30)
            signals.wait(0, size, deadline_s=30)
            barrier.arrive(deadline_s=30)
            expected = [np.random.default_rng(rank).integers(0, 256, BYTES, np.uint8) for rank in range(size)]
            return bool(np.array_equal(array, np.concatenate(expected)))

    assert teams(size, work) == [True] * size


def test_a_proxied_rank_and_a_direct_one_are_a_team(nothing_left: None) -> None:
    def work(team: Team) -> list[int]:
        array = np.full(16, team.rank, np.uint64)
        with team.window(array) as window, team.device_barrier() as barrier:
            barrier.arrive(deadline_s=30)
            window.put(1 - team.rank, window[:8], window[8:])
            barrier.arrive(deadline_s=30)
            return [int(team.nic.posting == "proxy"), *(int(value) for value in array[:2])]

    carriers = gda.comm.threads(2)
    answers: list[list[int]] = [[], []]

    def rank(number: int) -> None:
        posting = ("proxy", "direct")[number]
        with gda.open(posting=posting) as nic, gda.init(carriers[number], nic=nic, deadline_s=30) as team:
            answers[number] = work(team)
            team.barrier()

    ranks = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(60)
    assert answers == [[1, 1, 1], [0, 0, 0]]
