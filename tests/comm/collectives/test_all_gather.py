# SPDX-License-Identifier: Apache-2.0
"""All-gather for 1 to 9 ranks, by ring and direct, against NumPy."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

import gda
from gda.comm import Team
from gda.comm.collectives.all_gather import DIRECT_BYTES, direct, is_direct, ring
from gda.comm.collectives.collective import play
from gda.errors import ArgumentError, OutOfBoundsError
from gda.sim import faults
from tests.comm.collectives.content import content, sparse
from tests.comm.conftest import teams

PIECE = 9001
SIZES = [0, 1, 7, 128, 1000, 4095, PIECE]


@pytest.mark.parametrize("size", range(1, 18))
def test_the_steps_bring_all_pieces(size: int) -> None:
    for steps in (ring(size, 3, 4), direct(size, 3, 4)):
        memory = [np.full(4 * size, 100 + rank, np.uint8) for rank in range(size)]
        play(steps, memory, memory)
        for rank, one in enumerate(memory):
            pieces = one.reshape(size, 4)
            assert (pieces[:, :3] == 100 + np.arange(size)[:, None]).all() and (pieces[:, 3] == 100 + rank).all()
        for rank in range(size):  # the least that a rank can send
            assert sum(one.bytes for one in steps if one.sender == rank) == 3 * (size - 1)


def test_offsets_of_more_than_four_gib() -> None:
    piece = (3 << 30) + 1
    assert {one.target_offset for one in ring(5, piece)} == {rank * piece for rank in range(5)}
    assert {one.target_offset for one in direct(5, piece)} == {rank * piece for rank in range(5)}


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_the_device_reaches_behind_four_gib(nothing_left, algorithm: str) -> None:
    def work(team: Team) -> None:
        memory = sparse(3 * (3 << 30))  # touched only where bytes move
        gather = team.all_gather(memory, algorithm=algorithm)
        memory[team.rank * gather.piece_bytes :][:5] = 1 + team.rank
        gather(bytes=5, deadline_s=30)
        assert [memory[rank * (3 << 30) + 4] for rank in range(3)] == [1, 2, 3] and memory[(6 << 30) + 5] == 0

    teams(3, work)


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("size", range(1, 10))
def test_every_rank_has_all_pieces(nothing_left, size: int, algorithm: str) -> None:
    def work(team: Team) -> None:
        pieces = np.zeros((size, PIECE), np.uint8)
        gather = team.all_gather(pieces, algorithm=algorithm, channels=1 + size % 2, start=2**64 - 5)
        for seed, bytes in enumerate(SIZES):
            pieces[:] = 7
            pieces[team.rank] = content(PIECE, seed, team.rank)
            gather(bytes=bytes, deadline_s=30)
            for rank in range(size):
                if rank != team.rank:
                    assert (pieces[rank, :bytes] == content(PIECE, seed, rank)[:bytes]).all()
                    assert (pieces[rank, bytes:] == 7).all()

    teams(size, work)


@pytest.mark.parametrize(("size", "piece", "channels"), [(3, 4 << 20, 2), (4, 20_000, 3)])
def test_large_pieces_and_small_by_size(nothing_left, size: int, piece: int, channels: int) -> None:
    def work(team: Team) -> None:
        pieces = np.zeros((size, piece // 8), np.float64)
        gather = team.all_gather(pieces, channels=channels)
        pieces[team.rank] = team.rank + 0.5
        gather(deadline_s=60)
        assert (pieces == np.arange(size)[:, None] + 0.5).all()

    teams(size, work)


def test_the_device_chooses_as_the_model(nothing_left) -> None:
    kernel = gda.Kernel(
        "#include <gda/collectives/all_gather.h>\n"
        "GDA_KERNEL(ask)(uint64_t* out) { out[0] = gda::ALL_GATHER_DIRECT; }\n",
        target="host",
    )
    out = np.zeros(1, np.uint64)
    kernel.ask[1, 1](out)
    assert out[0] == DIRECT_BYTES and is_direct(DIRECT_BYTES) and not is_direct(DIRECT_BYTES + 1)


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_a_network_that_loses_packets(nothing_left, algorithm: str) -> None:
    def work(team: Team) -> None:
        pieces = np.zeros((team.size, 100_000), np.uint8)
        gather = team.all_gather(pieces, algorithm=algorithm)
        for seed in range(3):
            pieces[team.rank] = content(100_000, seed, team.rank)
            gather(deadline_s=30)
            for rank in range(team.size):
                assert (pieces[rank] == content(100_000, seed, rank)).all()

    with faults("drop=1%,seed=6"):
        teams(4, work)


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_nothing_is_overwritten_while_a_slow_rank_reads(nothing_left, algorithm: str) -> None:
    def work(team: Team) -> None:
        chance, pieces = random.Random(team.rank), np.zeros((team.size, 300), np.uint8)
        gather = team.all_gather(pieces, algorithm=algorithm)
        for count in range(12):
            pieces[team.rank] = 16 * count + team.rank
            gather(deadline_s=30)
            for _ in range(2):
                assert (pieces == 16 * count + np.arange(team.size)[:, None]).all()
                time.sleep(chance.random() / 1000)

    teams(4, work)


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        gather = team.all_gather(64)
        with pytest.raises(OutOfBoundsError, match="33 bytes of each piece: one has 32"):
            gather(bytes=33)
        with pytest.raises(ArgumentError, match="algorithm"):
            team.all_gather(64, algorithm="tree")
        with pytest.raises(ArgumentError, match="65 bytes are not 2 pieces"):
            team.all_gather(65)
        gather(deadline_s=20)

    teams(2, work)
