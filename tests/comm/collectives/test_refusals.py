# SPDX-License-Identifier: Apache-2.0
"""What a collective cannot be made of is refused before anything moves, on all ranks, by an error of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gda.comm import Team
from gda.errors import ArgumentError
from tests.comm.conftest import teams


def read_only(array: Any, is_so: bool = True) -> Any:
    array.flags.writeable = not is_so
    return array


@pytest.mark.parametrize("make", [
    lambda team, array: team.all_reduce(array), lambda team, array: team.reduce_scatter(array),
    lambda team, array: team.all_gather(array), lambda team, array: team.all_to_all(array.copy(), array),
    lambda team, array: team.all_to_all_v(array.copy(), array),
    lambda team, array: team.all_to_all_v(array.copy(), np.zeros((6, 8)), array),
    lambda team, array: team.broadcast(array)(root=2),
], ids=["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_v", "back", "broadcast"])  # fmt: skip
def test_a_read_only_array_of_one_rank_is_refused_on_all(nothing_left, make: Callable[[Team, Any], Any]) -> None:
    """An all-reduce had written to it, immutable bytes too; the others had failed in the middle of a call."""

    def work(team: Team) -> None:
        array = read_only(np.full((3, 8), team.rank, np.float64), team.rank == 1)
        with pytest.raises(ArgumentError, match=r"of rank 1 \(.*\) is not to be written"):
            make(team, array)
        assert (array == team.rank).all()

    teams(3, work)


def test_a_read_only_array_may_be_what_is_sent(nothing_left) -> None:
    def work(team: Team) -> None:
        rows, arrived = read_only(np.full((2, 8), team.rank)), np.zeros((2, 8), int)
        team.all_to_all(rows, arrived)(deadline_s=30)
        assert (arrived == np.arange(2)[:, None]).all()
        given = read_only(np.full(8, 1 + team.rank), team.rank == 1)
        team.broadcast(given)(root=1, deadline_s=30)
        assert (given == 2).all()

    teams(2, work)


COLLECTIVE_REFUSALS: list[tuple[Callable[[Team, Any], Any], str]] = [
    (lambda team, array: team.all_reduce(array, threads="many"), "threads='many' is not a whole number from 1 to 512"),
    (lambda team, array: team.all_reduce(array, slot_bytes=1.5), "slot_bytes=1.5"),
    (lambda team, array: team.broadcast(array, start="0"), "start='0'"),
    (lambda team, array: team.broadcast(array, channels="2"), "channels='2'"),
    (lambda team, array: team.broadcast(array)(deadline_s=None), "deadline_s=None is not a positive time"),
    (lambda team, array: team.broadcast(array)(deadline_s="5"), "deadline_s='5'"),
    (lambda team, array: team.broadcast(array)(deadline_s=float("inf")), "deadline_s=inf"),
    (lambda team, array: team.broadcast(array)(bytes="8"), "bytes='8'"),
    (lambda team, array: team.all_to_all_v(array, array.copy()).dispatch([0.5, 1]), r"counts\[0\]=0.5"),
    (lambda team, array: team.all_to_all_v(array, array.copy()).dispatch(2), "counts=2 is not a list"),
    (lambda team, array: team.all_to_all_v(array, array.copy()).dispatch("12"), r"counts\[0\]='1'"),
    (lambda team, array: team.device_barrier().arrive(deadline_s="now"), "deadline_s='now'"),
]


def test_numbers_that_are_none(nothing_left) -> None:
    """Some had ended in errors of Python's own, some had been cut to a whole number."""

    def work(team: Team) -> None:
        for call, words in COLLECTIVE_REFUSALS:
            with pytest.raises(ArgumentError, match=words):
                call(team, np.zeros((2, 4)))

    teams(2, work)


def test_rows_are_not_sent_from_where_others_arrive(nothing_left) -> None:
    """They had arrived changed, or not, by who was faster."""

    def work(team: Team) -> None:
        rows, back = np.zeros((8, 4)), np.zeros((8, 4))
        with pytest.raises(ArgumentError, match="source and target overlap"):
            team.all_to_all_v(rows, rows)
        with pytest.raises(ArgumentError, match="source and target overlap"):
            team.all_to_all_v(rows[:5], rows[4:])
        with pytest.raises(ArgumentError, match="results and the window for the way back overlap"):
            team.all_to_all_v(back, rows, rows)
        moe = team.all_to_all_v(rows[:4], rows[4:], rows[:4])  # rows come back to where they were
        moe.dispatch([1, 1], deadline_s=30)
        moe.combine(deadline_s=30)

    teams(2, work)


def test_nothing_is_as_good_as_something(nothing_left) -> None:
    """Empty arrays had been refused where a number of bytes could be nought: a rank may have no tokens."""

    def work(team: Team) -> None:
        nothing = np.zeros((2, 0), np.float32)
        team.broadcast(nothing)(root=1, deadline_s=30)
        team.all_gather(nothing)(deadline_s=30)
        team.all_to_all(nothing, nothing.copy())(deadline_s=30)
        team.all_reduce(nothing)(deadline_s=30)
        team.reduce_scatter(nothing)(deadline_s=30)
        tokens = np.full((4 * team.rank, 8), 7, np.int16)  # rank 0 has none
        arrived = np.zeros((4, 8), np.int16)
        moe = team.all_to_all_v(tokens, arrived)
        came = moe.dispatch([0, 0] if team.rank == 0 else [3, 1], deadline_s=30)
        assert [rows.count for rows in came] == [0, 3 if team.rank == 0 else 1]
        assert (arrived == 7).sum() == 8 * (3 if team.rank == 0 else 1)
        window = team.window(nothing)
        assert window.bytes == 0 and window[0] == window.part() and team.window(0).bytes == 0
        window.put(1 - team.rank)
        signals = team.signals(1)
        signals.put_signal(1 - team.rank, 0, window.part())
        signals.wait(0, 1, deadline_s=30)
        assert team.window(np.int64(16)).bytes == 16  # a number, not an array of one
        team.barrier()

    teams(2, work)


def test_rows_of_a_fortran_array_are_not_in_one_piece(nothing_left) -> None:
    """They had been moved as if they were: each rank had pieces of all rows, without a word."""

    def work(team: Team) -> None:
        columns, rows = np.zeros((2, 8), order="F"), np.zeros((2, 8))
        calls: list[Callable[[], Any]] = [
            lambda: team.all_gather(columns), lambda: team.all_to_all(columns, rows),
            lambda: team.all_to_all(rows, columns), lambda: team.all_to_all_v(columns, rows),
            lambda: team.all_to_all_v(rows, columns), lambda: team.all_to_all_v(rows, rows.copy(), columns),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(ArgumentError, match=r"shape \(2, 8\) in Fortran order"):
                call()
        mine = columns if team.rank else rows
        for make in (team.all_reduce, team.broadcast):
            with pytest.raises(ArgumentError, match="in Fortran's that of rank 1, in C's the others"):
                make(mine)
        columns[:] = 1 + team.rank
        team.all_reduce(columns)(deadline_s=30)  # element by element, whatever the order, if it is the same
        assert (columns == 3).all()
        pieces = np.zeros((8, 2), order="F")  # a column is a piece
        pieces[:, team.rank] = 1 + team.rank
        team.all_gather(pieces.T)(deadline_s=30)
        assert (pieces == [1, 2]).all()
        team.all_gather(np.zeros((2, 1), order="F"))(deadline_s=30)

    teams(2, work)
