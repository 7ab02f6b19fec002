# SPDX-License-Identifier: Apache-2.0
"""Collectives by kernels of a GPU over its own memory: two ranks, threads of one process with a stream each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gda.comm import Team
from tests.comm.collectives.content import content
from tests.comm.conftest import teams

pytestmark = pytest.mark.gpu

BYTES = [1, 4095, 300_000]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_TARGET", "gpu")


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    cupy: Any = importlib.import_module("cupy")
    return [cupy.zeros(shape, np.uint8) for shape in shapes]


def both(work: Callable[[Team], None]) -> None:
    teams(2, work)


def here(array: Any) -> Any:
    """On the CPU, when all that the GPU does to it is done."""
    return array.get()


@pytest.mark.parametrize("placement", ["host", "gpu"])
def test_barrier(placement: str) -> None:
    def work(team: Team) -> None:
        barrier = team.device_barrier(placement=placement)
        for _ in range(5):
            barrier.arrive(deadline_s=10)

    both(work)


@pytest.mark.parametrize("algorithm", ["tree", "chain"])
def test_broadcast(algorithm: str) -> None:
    def work(team: Team) -> None:
        (memory,) = arrays((BYTES[-1],))
        give = team.broadcast(memory, algorithm=algorithm, channels=2)
        for seed, bytes in enumerate(BYTES):
            root = seed % 2
            memory.fill(team.rank)
            if team.rank == root:
                memory.set(content(BYTES[-1], seed))
            team.barrier()
            give(root, bytes=bytes, deadline_s=10)
            assert (here(memory)[:bytes] == content(BYTES[-1], seed)[:bytes]).all()

    both(work)


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("placement", ["host", "gpu"])
def test_all_gather(algorithm: str, placement: str) -> None:
    def work(team: Team) -> None:
        (pieces,) = arrays((2, BYTES[-1]))
        gather = team.all_gather(pieces, algorithm=algorithm, placement=placement)
        for seed, bytes in enumerate(BYTES):
            pieces[team.rank].set(content(BYTES[-1], seed, team.rank))
            team.barrier()
            gather(bytes=bytes, deadline_s=10)
            for rank in range(2):
                assert (here(pieces)[rank, :bytes] == content(BYTES[-1], seed, rank)[:bytes]).all()

    both(work)


def test_all_to_all() -> None:
    def work(team: Team) -> None:
        source, target = arrays((2, BYTES[-1]), (2, BYTES[-1]))
        exchange = team.all_to_all(source, target, channels=2)
        for seed, bytes in enumerate(BYTES):
            for peer in range(2):
                source[peer].set(content(BYTES[-1], seed, team.rank, peer))
            team.barrier()
            exchange(bytes=bytes, deadline_s=10)
            for rank in range(2):
                assert (here(target)[rank, :bytes] == content(BYTES[-1], seed, rank, team.rank)[:bytes]).all()

    both(work)


def test_all_to_all_of_rows() -> None:
    def work(team: Team) -> None:
        source, target, back = arrays((10, 512), (20, 512), (10, 512))
        source.set(content(5120, team.rank).reshape(10, 512))
        rows = team.all_to_all_v(source, target, back, channels=2)
        team.barrier()
        for counts in ([[0, 10], [3, 4]], [[0, 0], [0, 0]], [[5, 5], [5, 5]]):
            came = rows.dispatch(counts[team.rank], deadline_s=10)
            assert [one.count for one in came] == [counts[rank][team.rank] for rank in range(2)]
            for rank, one in enumerate(came):
                sent = content(5120, rank).reshape(10, 512)[one.origin : one.origin + one.count]
                assert (here(target)[one.start : one.start + one.count] == sent).all()
            team.barrier()  # nobody synchronizes with the GPU while a rank's kernel waits for another rank
            rows.combine(deadline_s=10)
            moved = sum(counts[team.rank])
            assert (here(back)[:moved] == here(source)[:moved]).all()
            team.barrier()

    both(work)
