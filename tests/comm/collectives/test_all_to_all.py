# SPDX-License-Identifier: Apache-2.0
"""All-to-all for 1 to 9 ranks against NumPy: the transpose of a matrix of pieces."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from gda.comm import Team
from gda.comm.collectives.all_to_all import rotated
from gda.comm.collectives.collective import play
from gda.errors import ArgumentError, OutOfBoundsError
from gda.sim import faults
from tests.comm.collectives.content import content, sparse
from tests.comm.conftest import teams

PIECE = 5003
SIZES = [0, 1, 7, 128, 1000, 4095, PIECE]


@pytest.mark.parametrize("size", range(1, 18))
def test_the_steps_transpose(size: int) -> None:
    sources = [np.repeat((np.arange(size) + 14 * rank).astype(np.uint8), 4) for rank in range(size)]
    targets = [np.zeros(4 * size, np.uint8) for _ in range(size)]
    play(rotated(size, 3, 4), sources, targets)
    for rank, one in enumerate(targets):
        expected = (rank + 14 * np.arange(size)).astype(np.uint8)
        assert (one.reshape(size, 4)[:, :3] == expected[:, None]).all() and (one.reshape(size, 4)[:, 3] == 0).all()
    for step in range(size):  # at no time do two put to the same one
        assert sorted(t.receiver for t in rotated(size, 3) if t.step == step) == list(range(size))


def test_offsets_of_more_than_four_gib(nothing_left) -> None:
    piece = (3 << 30) + 1
    assert {one.source_offset for one in rotated(5, piece)} == {rank * piece for rank in range(5)}

    def work(team: Team) -> None:
        source, target = sparse(3 * (3 << 30)), sparse(3 * (3 << 30))
        exchange = team.all_to_all(source, target)
        for peer in range(3):
            source[peer * (3 << 30) :][:5] = 10 * team.rank + peer
        exchange(bytes=5, deadline_s=30)
        assert [target[rank * (3 << 30) + 4] for rank in range(3)] == [10 * rank + team.rank for rank in range(3)]

    teams(3, work)


@pytest.mark.parametrize("size", range(1, 10))
def test_every_rank_has_its_pieces(nothing_left, size: int) -> None:
    def work(team: Team) -> None:
        source, target = np.zeros((size, PIECE), np.uint8), np.zeros((size, PIECE), np.uint8)
        exchange = team.all_to_all(source, target, channels=1 + size % 2, start=2**64 - 3)
        for seed, bytes in enumerate(SIZES):
            for peer in range(size):
                source[peer] = content(PIECE, seed, team.rank, peer)
            target[:] = 7
            exchange(bytes=bytes, deadline_s=30)
            for rank in range(size):
                assert (target[rank, :bytes] == content(PIECE, seed, rank, team.rank)[:bytes]).all()
                assert (target[rank, bytes:] == 7).all()

    teams(size, work)


def test_four_mib(nothing_left) -> None:
    def work(team: Team) -> None:
        source, target = content(4 << 20, team.rank).view(np.float32), np.zeros(1 << 20, np.float32)
        team.all_to_all(source, target, channels=2)(deadline_s=60)
        expected = [content(4 << 20, rank).reshape(4, -1)[team.rank] for rank in range(4)]
        assert (target.view(np.uint8) == np.concatenate(expected)).all()

    teams(4, work)


def test_a_network_that_loses_packets(nothing_left) -> None:
    def work(team: Team) -> None:
        source, target = np.zeros((4, 50_000), np.uint8), np.zeros((4, 50_000), np.uint8)
        exchange = team.all_to_all(source, target)
        for seed in range(3):
            for peer in range(4):
                source[peer] = content(50_000, seed, team.rank, peer)
            exchange(deadline_s=30)
            for rank in range(4):
                assert (target[rank] == content(50_000, seed, rank, team.rank)).all()

    with faults("drop=1%,seed=7"):
        teams(4, work)


def test_nothing_is_overwritten_while_a_slow_rank_reads(nothing_left) -> None:
    def work(team: Team) -> None:
        chance = random.Random(team.rank)
        source, target = np.zeros((team.size, 300), np.uint8), np.zeros((team.size, 300), np.uint8)
        exchange = team.all_to_all(source, target)
        for count in range(12):
            source[:] = 16 * count + team.rank
            exchange(deadline_s=30)
            source[:] = 255  # it may change at once
            for _ in range(2):
                assert (target == 16 * count + np.arange(team.size)[:, None]).all()
                time.sleep(chance.random() / 1000)

    teams(4, work)


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        memory = np.zeros(128, np.uint8)
        with pytest.raises(ArgumentError, match="overlap"):
            team.all_to_all(memory[:64], memory[32:96])
        with pytest.raises(ArgumentError, match="a source of 32 bytes, a target of 64"):
            team.all_to_all(32, 64)
        exchange = team.all_to_all(memory[:64], memory[64:])
        with pytest.raises(OutOfBoundsError):
            exchange(bytes=33)
        exchange(deadline_s=20)

    teams(2, work)
