# SPDX-License-Identifier: Apache-2.0
"""Rows to ranks by counts that only the sender knows, and back, for 1 to 9 ranks, against NumPy."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

import gda
from gda.comm import Team
from gda.comm.collectives.all_to_all_v import Rows, back, dispatch, places
from gda.comm.collectives.collective import play
from gda.errors import ArgumentError, BootstrapError, OutOfBoundsError
from gda.sim import faults
from tests.comm.collectives.content import content, sparse
from tests.comm.conftest import teams, world

ROW = 24  # bytes
MOST = 90  # rows of a source


def some_counts(size: int, seed: int) -> list[list[int]]:
    """Rows from each to each; many are none, and one rank in some seeds gets none or sends none."""
    chance = np.random.default_rng(seed)
    counts = chance.integers(0, MOST // size + 1, (size, size)) * chance.integers(0, 2, (size, size))
    if seed % 3 == 0:
        counts[:, seed % size] = 0
    if seed % 4 == 1:
        counts[seed % size] = 0
    return counts.tolist()


def starts_of(counts: list[int], gap: int) -> list[int]:
    """In the order of ranks, with gaps."""
    return [sum(counts[:peer]) + gap * peer for peer in range(len(counts))]


def expected(counts: list[list[int]], starts: list[list[int]], sources: list[np.ndarray], rank: int) -> np.ndarray:
    pieces = [sources[r][starts[r][rank] : starts[r][rank] + counts[r][rank]] for r in range(len(counts))]
    return np.concatenate(pieces)


@pytest.mark.parametrize("size", range(1, 12))
def test_the_steps_bring_rows_and_bring_them_back(size: int) -> None:
    counts = some_counts(size, size)
    starts = [starts_of(one, 2) for one in counts]
    sources = [content((MOST + 2 * size) * 3, rank).reshape(-1, 3) for rank in range(size)]
    targets = [np.zeros(MOST * size * 3, np.uint8) for _ in range(size)]
    play(dispatch(counts, starts, 3), [one.reshape(-1) for one in sources], targets)
    for rank in range(size):
        rows = expected(counts, starts, sources, rank)
        assert (targets[rank].reshape(-1, 3)[: len(rows)] == rows).all()
        assert places(counts)[rank] == [sum(counts[r][rank] for r in range(peer)) for peer in range(size)]
    returned = [np.zeros(one.size, np.uint8) for one in sources]
    play(back(counts, starts, 3), targets, returned)
    for rank in range(size):
        for start, count in zip(starts[rank], counts[rank], strict=True):
            assert (returned[rank].reshape(-1, 3)[start : start + count] == sources[rank][start : start + count]).all()


def test_offsets_of_more_than_four_gib(nothing_left) -> None:
    steps = dispatch([[0, 1 << 20]] * 2, [[0, 3 << 20], [0, 0]], 7168)
    assert [one.source_offset for one in steps if one.receiver == 1] == [0, 3 * 7168 << 20]
    assert [one.target_offset for one in steps if one.receiver == 1] == [7168 << 20, 0]

    def work(team: Team) -> None:
        source, target = sparse(5 << 30), np.zeros((6, 2), np.uint8)
        source[-2:] = 7 + team.rank
        both = team.all_to_all_v(source, target, source, row_bytes=2, back_row_bytes=2)
        last = (5 << 29) - 1
        assert both.dispatch([1, 1, 0], [last] * 3, deadline_s=30)[2].count == (team.rank < 2)
        if team.rank < 2:
            assert target[:3].tolist() == [[7, 7], [8, 8], [9, 9]]
            target[:3] += 10
        both.combine(deadline_s=30)
        assert source[-2:].tolist() == [17 + team.rank] * 2

    teams(3, work)


@pytest.mark.parametrize("size", range(1, 10))
def test_rows_come_and_go_back(nothing_left, size: int) -> None:
    def work(team: Team) -> None:
        source, returned = np.zeros((MOST + 2 * size, ROW), np.uint8), np.zeros((MOST + 2 * size, 8), np.uint8)
        target, results = np.zeros((MOST * size, ROW), np.uint8), np.zeros((MOST * size, 8), np.uint8)
        both = team.all_to_all_v(source, target, returned, results=results, channels=1 + size % 2, start=2**64 - 5)
        assert (both.row_bytes, both.back_row_bytes) == (ROW, 8)
        for seed in range(6):
            counts = some_counts(size, seed)
            starts = [starts_of(one, 2) for one in counts]
            sources = [content(source.size, seed, rank).reshape(source.shape) for rank in range(size)]
            source[:], target[:], returned[:] = sources[team.rank], 7, 7
            rows = both.dispatch(counts[team.rank], starts[team.rank], deadline_s=30)
            came = expected(counts, starts, sources, team.rank)
            assert rows == [
                Rows(counts[r][team.rank], places(counts)[team.rank][r], starts[r][team.rank]) for r in range(size)
            ]
            assert (target[: len(came)] == came).all() and (target[len(came) :] == 7).all()
            results[: len(came)] = came[:, :8] ^ 255
            both.combine(deadline_s=30)
            wanted = np.full(returned.shape, 7, np.uint8)
            for start, count in zip(starts[team.rank], counts[team.rank], strict=True):
                wanted[start : start + count] = source[start : start + count, :8] ^ 255
            assert (returned == wanted).all()

    teams(size, work)


def test_four_mib_and_a_network_that_loses_packets(nothing_left) -> None:
    """All of two sources to one rank, whose target they fill; only it knows how many come when they are there."""

    def work(team: Team) -> None:
        source, target = content(2 << 20, team.rank).reshape(-1, 1024), np.zeros((4096, 1024), np.uint8)
        both = team.all_to_all_v(source, target, np.zeros_like(source), channels=2)
        rows = both.dispatch([0, 2048, 0] if team.rank != 1 else [0, 0, 0], deadline_s=60)
        assert [one.count for one in rows] == ([2048, 0, 2048] if team.rank == 1 else [0, 0, 0])
        if team.rank == 1:
            assert (target.reshape(2, -1) == np.stack([content(2 << 20, 0), content(2 << 20, 2)])).all()
        both.combine(deadline_s=60)
        assert team.rank == 1 or both.back.memory.read(0, 2 << 20) == source.tobytes()

    with faults("drop=1%,seed=8"):
        teams(3, work)


def test_nothing_is_overwritten_while_a_slow_rank_reads(nothing_left) -> None:
    """Dispatches one after the other, with counts that change, and nothing between them."""

    def work(team: Team) -> None:
        chance, size = random.Random(team.rank), team.size
        source, target = np.zeros((40, 8), np.uint8), np.zeros((40 * size, 8), np.uint8)
        both = team.all_to_all_v(source, target)
        for count in range(12):
            source[:] = 16 * count + team.rank
            rows = both.dispatch([(count + team.rank + peer) % 5 for peer in range(size)], deadline_s=30)
            source[:] = 255  # it may change at once
            for _ in range(2):
                assert both.rows() == rows
                assert [one.count for one in rows] == [(count + team.rank + peer) % 5 for peer in range(size)]
                for peer, one in enumerate(rows):
                    assert (target[one.start : one.start + one.count] == 16 * count + peer).all()
                time.sleep(chance.random() / 1000)

    teams(4, work)


def test_too_little_room_is_told_to_those_concerned_and_the_next_call_is_good(nothing_left) -> None:
    def work(team: Team) -> None:
        source, target = np.full((10, 4), team.rank, np.uint8), np.full((8, 4), 9, np.uint8)
        both = team.all_to_all_v(source, target, source)
        with pytest.raises(OutOfBoundsError, match=r"rank 2 .* has no room") as caught:
            both.dispatch([1, 2, 3], deadline_s=20)  # three ranks send three rows to rank 2: nine
        assert caught.value.rank == 2
        assert [one.count for one in both.rows()] == ([0, 0, 0] if team.rank == 2 else [1 + team.rank] * 3)
        assert (target == 9).all() == (team.rank == 2)
        both.dispatch([1, 1, 2], deadline_s=20)
        both.combine(deadline_s=20)

    teams(3, work)


def test_rows_that_a_source_does_not_have(nothing_left) -> None:
    def work(team: Team) -> None:
        source, target = np.full((4, 4), team.rank, np.uint8), np.full((20, 4), 9, np.uint8)
        both = team.all_to_all_v(source, target)
        for counts, starts in (([2, 3], None), ([1, 0], [4, 0]), ([2**63 - 1, 0], [0, 0])):
            with pytest.raises(OutOfBoundsError) as caught:
                both.dispatch(*((counts, starts) if team.rank == 0 else ([1, 1], None)), deadline_s=20)
            assert caught.value.rank == 0
            assert [one.count for one in both.rows()] == [0, 1]
        assert both.dispatch([2, 2], deadline_s=20)[0] == Rows(2, 0, 2 * team.rank)

    teams(2, work)


def test_a_kernel_that_counts_and_sends_itself(nothing_left) -> None:
    """Counts are made on the device, and no process knows them before the rows are there."""
    kernel = gda.Kernel(
        "#include <gda/collectives/all_to_all_v.h>\n"
        "GDA_KERNEL(route)(gda_team team, gda_window target, gda_mr source, gda_mr asked, gda_window signals,\n"
        "                  uint64_t* came, gda_status* status) {\n"
        "    uint64_t* counts = reinterpret_cast<uint64_t*>(asked.addr);\n"
        "    if (threadIdx.x < team.size) {\n"
        "        counts[threadIdx.x] = threadIdx.x + team.rank;\n"
        "        counts[team.size + threadIdx.x] = 5 * threadIdx.x;\n    }\n"
        "    gda_report(status, gda_all_to_all_v_block(team, target, source, counts, counts + team.size,\n"
        "                                              uint64_t(8), signals, GDA_S(20)));\n"
        "    if (threadIdx.x < team.size) came[threadIdx.x] = gda_rows_from(team, signals, threadIdx.x)->count;\n"
        "    if (threadIdx.x == 0) came[team.size] = gda_rows_from(team, signals, team.size) == nullptr;\n}\n",
        target="host",
    )

    def work(team: Team) -> None:
        source, target, came = np.arange(15) + 100 * team.rank, np.zeros(30, np.int64), np.zeros(4, np.uint64)
        both = team.all_to_all_v(source, target, row_bytes=8)
        kernel.route[1, 32](team, both.target, both.source, both.asked, both.signals, came)
        assert came.tolist() == [team.rank, team.rank + 1, team.rank + 2, 1]
        wanted = [100 * r + 5 * team.rank + i for r in range(3) for i in range(team.rank + r)]
        assert target[: len(wanted)].tolist() == wanted
        both.dispatch_asked(deadline_s=20)  # the counts lie there still
        assert [one.count for one in both.rows()] == came.tolist()[:3]

    teams(3, work)


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        rows = np.zeros((8, 4), np.uint8)
        with pytest.raises(ArgumentError, match="row_bytes"):
            team.all_to_all_v(64, 64)
        with pytest.raises(ArgumentError, match="rows have 4, 8"):
            team.all_to_all_v(rows, np.zeros((4, 8), np.uint8))
        with pytest.raises(ArgumentError, match="back has 4 rows of 4 bytes, source 8 of 4"):
            team.all_to_all_v(rows, rows.copy(), np.zeros((4, 4), np.uint8))
        both = team.all_to_all_v(rows, rows.copy())
        for counts in ([1], [1, -1], [1, 2**64], [1, 2, 3]):
            with pytest.raises(ArgumentError, match="counts"):
                both.dispatch(counts)
        with pytest.raises(ArgumentError, match="back"):
            both.combine()
        both.dispatch([0, 0], deadline_s=20)

    teams(2, work)


def test_rows_of_two_lengths_are_refused_on_all_ranks(nothing_left) -> None:
    def work(rank: int) -> object:
        with gda.init(carriers[rank], deadline_s=30) as team:
            return team.all_to_all_v(64, 64, row_bytes=4 + rank)

    carriers = gda.comm.threads(2)
    answers = world(2, work)
    assert all(isinstance(one, BootstrapError) and one.rank == 1 - rank for rank, one in enumerate(answers))
