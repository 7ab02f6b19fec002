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
