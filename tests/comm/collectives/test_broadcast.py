# SPDX-License-Identifier: Apache-2.0
"""Broadcast for 1 to 9 ranks, from every root, by tree and by chain, against NumPy."""

from __future__ import annotations

import random
import time
from itertools import cycle

import numpy as np
import pytest

import gda
from gda.comm import Team
from gda.comm.collectives.broadcast import CHUNK_BYTES, Broadcast, chain, is_chain, tree
from gda.comm.collectives.collective import play
from gda.errors import ArgumentError, OutOfBoundsError
from gda.sim import faults
from tests.comm.collectives.content import content, sparse
from tests.comm.conftest import teams

SIZES = [0, 1, 2, 7, 128, 1000, 4095, 65537]
MOST = 70_000


@pytest.mark.parametrize("size", range(1, 18))
def test_the_steps_reach_all(size: int) -> None:
    for root in range(size):
        for steps in (tree(size, root, 10, 3), chain(size, root, 10, 4, 3)):
            memory = [np.full(16, rank, np.uint8) for rank in range(size)]
            play(steps, memory, memory)
            for rank, one in enumerate(memory):
                assert (one[3:13] == root).all() and (one[:3] == rank).all() and (one[13:] == rank).all()
        assert max((one.step + 1 for one in tree(size, root, 10)), default=0) == (size - 1).bit_length()
        assert len(tree(size, root, 10)) == size - 1  # each gets the bytes once
        sent = [sum(t.bytes for t in chain(size, root, 10, 4) if t.sender == rank) for rank in range(size)]
        assert max(sent) == (10 if size > 1 else 0)


def test_offsets_of_more_than_four_gib(nothing_left) -> None:
    bytes = (6 << 30) + 5
    steps = [one for one in chain(3, 1, bytes, 1 << 30) if one.sender == 2]
    assert [one.source_offset >> 30 for one in steps] == list(range(7))
    assert sum(one.bytes for one in steps) == bytes and steps[-1].bytes == 5

    def work(team: Team) -> None:
        memory = sparse(bytes)
        memory[6 << 30 :] = 10 + team.rank
        team.broadcast(memory)(1, offset=bytes - 4, bytes=4, deadline_s=30)
        assert memory[6 << 30 :].tolist() == [10 + team.rank, 11, 11, 11, 11]

    teams(3, work)


def test_the_device_chooses_as_the_model(nothing_left) -> None:
    kernel = gda.Kernel(
        "#include <gda/collectives/broadcast.h>\n"
        "GDA_KERNEL(ask)(uint32_t size, uint64_t bytes, uint64_t* out) {\n"
        "    out[0] = gda::broadcast_by_chain(size, bytes, gda::BROADCAST_CHUNK); out[1] = gda::BROADCAST_CHUNK; }\n",
        target="host",
    )
    for size in (1, 2, 3, 4, 5, 8, 9, 64):
        for bytes in (0, 1, CHUNK_BYTES, 383 << 10, 400 << 10, 1 << 20, 4 << 20, 6 << 30, 2**64 - 1):
            out = np.zeros(2, np.uint64)
            kernel.ask[1, 1](size, bytes, out)
            assert out.tolist() == [is_chain(size, bytes), CHUNK_BYTES]
    assert is_chain(8, 4 << 20) and not is_chain(8, 1000) and not is_chain(2, 4 << 20)


@pytest.mark.parametrize("algorithm", ["tree", "chain"])
@pytest.mark.parametrize("size", range(1, 10))
def test_every_rank_gets_the_bytes_of_every_root(nothing_left, size: int, algorithm: str) -> None:
    def work(team: Team) -> None:
        memory = np.zeros(MOST, np.uint8)
        give = team.broadcast(memory, algorithm=algorithm, chunk_bytes=10_000, channels=1 + size % 2, start=2**64 - 3)
        for seed, bytes in zip(range(max(8, size)), cycle(SIZES), strict=False):
            root = seed % size
            memory[:] = content(MOST, seed) if team.rank == root else team.rank
            give(root, offset=5, bytes=bytes, deadline_s=30)
            assert (memory[5 : 5 + bytes] == content(MOST, seed)[5 : 5 + bytes]).all()
            if team.rank != root:
                assert (memory[:5] == team.rank).all() and (memory[5 + bytes :] == team.rank).all()

    teams(size, work)


def test_four_mib_by_size(nothing_left) -> None:
    def work(team: Team) -> None:
        memory = content(4 << 20, team.rank).view(np.float64)
        give = team.broadcast(memory, channels=2)
        for root in range(3):
            give(root, deadline_s=30)
            assert (memory.view(np.uint8) == content(4 << 20, 0)).all()

    teams(3, work)


@pytest.mark.parametrize("algorithm", ["tree", "chain"])
def test_a_network_that_loses_packets(nothing_left, algorithm: str) -> None:
    def work(team: Team) -> None:
        memory = np.zeros(300_000, np.uint8)
        give = team.broadcast(memory, algorithm=algorithm)
        for root in range(5):
            memory[:] = content(300_000, root) if team.rank == root else 0
            give(root, deadline_s=30)
            assert (memory == content(300_000, root)).all()

    with faults("drop=1%,seed=5"):
        teams(5, work)


@pytest.mark.parametrize("algorithm", ["tree", "chain"])
def test_nothing_is_overwritten_while_a_slow_rank_reads(nothing_left, algorithm: str) -> None:
    """Roots that change and nothing between calls: a rank that is ahead by one waits for those behind."""

    def work(team: Team) -> None:
        chance, memory = random.Random(team.rank), np.zeros(500, np.uint8)
        give = team.broadcast(memory, algorithm=algorithm, chunk_bytes=100)
        for count in range(20):
            root = count * 3 % team.size
            if team.rank == root:
                memory[:] = count
            give(root, deadline_s=30)
            for _ in range(2):
                assert (memory == count).all()
                time.sleep(chance.random() / 1000)

    teams(4, work)


def test_a_block_of_another_kernel_calls_it(nothing_left) -> None:
    kernel = gda.Kernel(
        "#include <gda/collectives/broadcast.h>\n"
        "GDA_KERNEL(own)(gda_team team, gda_window data, gda_window signals, uint32_t* seen, gda_status* status) {\n"
        "    volatile uint8_t* mine = reinterpret_cast<uint8_t*>(data.mine.addr);\n"
        "    if (team.rank == 2) mine[threadIdx.x] = static_cast<uint8_t>(7 * threadIdx.x);\n"
        "    gda_report(status, gda_broadcast_block(team, data, 0, 64, 2u, signals, GDA_S(20)));\n"
        "    seen[threadIdx.x] = mine[threadIdx.x];\n}\n",
        target="host",
    )

    def work(team: Team) -> list[int]:
        give, seen = team.broadcast(64), np.zeros(64, np.uint32)
        kernel.own[1, 64](team, give.window, give.signals, seen)
        give(2, deadline_s=20)  # and by Python, on the same words
        return seen.tolist()

    assert teams(3, work) == 3 * [[7 * i % 256 for i in range(64)]]


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        window = team.window(64)
        give = Broadcast(team, window)
        with pytest.raises(OutOfBoundsError):
            give(0, offset=60, bytes=5)
        with pytest.raises(ArgumentError, match="rank 2"):
            give(2)
        with pytest.raises(ArgumentError, match="algorithm"):
            team.broadcast(64, algorithm="ring")
        with pytest.raises(ArgumentError, match="chunk_bytes"):
            team.broadcast(64, chunk_bytes=0)
        give(1, deadline_s=20)  # nothing was begun by what was refused
        give.close()
        assert not window.closed  # it was the caller's

    teams(2, work)
