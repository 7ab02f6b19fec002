# SPDX-License-Identifier: Apache-2.0
"""What teams, windows and signals are called with: NumPy's numbers serve, others are refused by this package's errors.

Python's own had come through for many (OverflowError of a NumPy integer, TypeError of a time that is none).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gda
from gda.comm import Bootstrap, Team, Window, threads
from gda.comm.arguments import one_of, seconds, whole, wholes
from gda.comm.signal import Signals
from gda.errors import ArgumentError, DeadlineError, OutOfBoundsError, UnavailableError
from tests.comm.conftest import teams

Call = Callable[[Team, Window, Signals], Any]


def test_numpys_numbers_serve(nothing_left) -> None:
    def work(team: Team) -> None:
        rank, other = np.int64(team.rank), np.uint8(1 - team.rank)
        window, signals = team.window(np.zeros(8, np.int64)), team.signals(np.int32(4))
        team.barrier()
        window.put(other, window.part(np.int64(8), np.int64(8)), window[rank])
        window.get(other, window[np.int64(0)], queue=np.int64(3))
        signals.signal(other, np.int64(2), np.int64(-1), "set")
        assert signals.wait(np.uint16(2), np.int64(-1), "==", peer=other, deadline_s=np.float32(20)) == 2**64 - 1
        signals.put_signal(other, np.int64(1), window[0], value=np.uint64(7))
        assert signals.wait_next(np.int64(1), np.uint64(7), deadline_s=20) == 7
        signals.fetch_add(other, np.int64(3), np.int64(-2))
        signals.wait(3, 2**64 - 2, "==", deadline_s=20)
        assert team.checked_rank(other) == int(other)
        team.connect([other])
        team.barrier()

    teams(2, work)
    assert len(threads(np.int64(2))) == 2
    with gda.init(queues_per_peer=np.int64(2)) as team:
        assert len(team.queues[0]) == 2


REFUSED: list[tuple[Call, str]] = [
    (lambda team, window, signals: window.put(0, 5), "int is no part of a window"),
    (lambda team, window, signals: window.put(0, window[0], np.zeros(1)), "ndarray is no part .*nic.register"),
    (lambda team, window, signals: window.get(0, window[0], np.zeros(1)), "ndarray is no part"),
    (lambda team, window, signals: signals.put_signal(0, 0, 5), "int is no part"),
    (lambda team, window, signals: signals.put_signal(0, 0, window[0], b"x" * 8), "bytes is no part"),
    (lambda team, window, signals: window.part("0"), "offset='0' is not a whole number"),
    (lambda team, window, signals: window.part(0.0, 8), "offset=0.0"),
    (lambda team, window, signals: window.part(0, 8.0), "bytes=8.0"),
    (lambda team, window, signals: window.part(0, 8, 2.0, 8), "count=2.0"),
    (lambda team, window, signals: window.part(0, 8, 0), "count=0 is not a whole number from 1 on"),
    (lambda team, window, signals: window[::0], "no slice of whole numbers, with a step from 1 on"),
    (lambda team, window, signals: window[0:1.5], "no slice of whole numbers"),
    (lambda team, window, signals: window[::"2"], "no slice of whole numbers"),
    (lambda team, window, signals: window.put(0, queue=-1), "queue=-1 is not a whole number from 0"),
    (lambda team, window, signals: window.put(0, queue="a"), "queue='a'"),
    (lambda team, window, signals: window.get(0, deadline_s=None), "deadline_s=None is not a time in seconds"),
    (lambda team, window, signals: window.put(0, deadline_s=float("nan")), "deadline_s=nan"),
    (lambda team, window, signals: signals.signal(0, 0, 1.5), "value=1.5"),
    (lambda team, window, signals: signals.signal(0, 0, "x"), "value='x'"),
    (lambda team, window, signals: signals.signal(0, 0, deadline_s=float("inf")), "deadline_s=inf"),
    (lambda team, window, signals: signals.signal(0, 0, deadline_s=-1), "deadline_s=-1"),
    (lambda team, window, signals: signals.signal(0, 0, deadline_s="1"), "deadline_s='1'"),
    (lambda team, window, signals: signals.fetch_add(0, 0, 0.5), "value=0.5"),
    (lambda team, window, signals: signals.wait(0, "x"), "value='x'"),
    (lambda team, window, signals: signals.wait(0, 1, deadline_s=True), "deadline_s=True"),
    (lambda team, window, signals: signals.wait_next(0, 0.5), "step=0.5"),
    (lambda team, window, signals: signals.wait_next(0, -1), "step=-1 is not a whole number from 0 on"),
    (lambda team, window, signals: signals.wait(0, 1, [">="]), r"until=\['>='\] is not one of >=, =="),
    (lambda team, window, signals: signals.signal(0, 0, 1, {}), r"operation=\{\} is not one of"),
    (lambda team, window, signals: team.broadcast(64, algorithm=["tree"]), r"algorithm=\['tree'\] is not one of auto"),
    (lambda team, window, signals: team.all_gather(64, algorithm={}), r"algorithm=\{\} is not one of auto, ring"),
    (lambda team, window, signals: team.all_reduce(np.zeros(1), []), r"op=\[\] is not one of sum, prod"),
    (lambda team, window, signals: team.signals(0), "count=0 is not a whole number from 1 on"),
    (lambda team, window, signals: team.signals(1, start=0.5), "start=0.5"),
    (lambda team, window, signals: team.barrier(deadline_s="x"), "deadline_s='x'"),
    (lambda team, window, signals: team.bootstrap.allgather("text"), "str where bytes are exchanged"),
    (lambda team, window, signals: team.bootstrap.allgather(5), "int where bytes are exchanged"),
    (lambda team, window, signals: team.connect(0), r"peers=0 is not a list of ranks\n  try: peers=\[0\]"),
    (lambda team, window, signals: team.without(0), "lost=0 is not a list of ranks"),
    (lambda team, window, signals: team.window(1 << 62), "cannot allocate 4611686018427387904 bytes"),
    (lambda team, window, signals: team.window(1 << 70), "cannot allocate 1180591620717411303424 bytes"),
    (lambda team, window, signals: team.window(np.zeros(3, "M8[s]")), "cannot be registered"),
]


def test_what_is_none_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        window, signals = team.window(np.zeros(4)), team.signals(2)
        for call, words in REFUSED:
            with pytest.raises(gda.GdaError, match=re.compile(words, re.S)) as caught:
                call(team, window, signals)
            assert isinstance(caught.value, ArgumentError | UnavailableError), words
        with pytest.raises(OutOfBoundsError, match=r"signal 0\.5 of 2"):
            signals.read(0.5)  # type: ignore[arg-type]
        assert signals.epochs == [0, 0] and signals.read(0) == 0
        with pytest.raises(DeadlineError):
            signals.wait(0, 1, deadline_s=0)
        assert signals.wait(0, 0, deadline_s=0) == 0
        team.barrier()  # and goes on

    teams(1, work)


@pytest.mark.parametrize("deadline_s", [0, -1, float("nan"), float("inf"), None, "60", 1e10])
def test_a_deadline_that_is_none(deadline_s: Any) -> None:
    with pytest.raises(ArgumentError, match=r"deadline_s=.* is not a positive time in seconds"):
        gda.init(deadline_s=deadline_s)
    with pytest.raises(ArgumentError, match=r"deadline_s=.* is not a positive time in seconds"):
        Bootstrap(threads(1)[0], deadline_s=deadline_s)


def test_numbers() -> None:
    assert whole("n", np.uint64(2**64 - 1)) == 2**64 - 1 and type(whole("n", np.int8(-3))) is int
    assert wholes("n", np.arange(3)) == [0, 1, 2] and seconds("s", 0) == 0
    with pytest.raises(ArgumentError, match="n=7 is not a whole number from 1 to 6"):
        whole("n", 7, 1, 6)
    with pytest.raises(ArgumentError, match="n=7 is not a whole number up to 6"):
        whole("n", 7, most=6)
    with pytest.raises(ArgumentError, match="n=True is not a whole number"):
        whole("n", True)


def test_words() -> None:
    assert one_of("way", "there", {"here": 1, "there": 2}) == "there"
    for none in ("nowhere", "", None, 0, ["there"]):
        with pytest.raises(ArgumentError, match=r"way=.* is not one of here, there\n.*look around"):
            one_of("way", none, ("here", "there"), "look around")


def test_memory_of_another_nic_is_refused_before_it_is_posted(nothing_left) -> None:
    """Its key had been given to this NIC: an error of the queue pair here, other memory where the keys are alike."""
    with gda.open() as nic, gda.open() as other, gda.init(nic=nic) as team, team.over(other) as rail:
        window, foreign, signals = team.window(64), rail.window(64), team.signals(1)
        memory = other.allocate(64)
        for call in (
            lambda: window.put(0, None, memory), lambda: window.get(0, None, memory),
            lambda: window.put(0, None, foreign.part()), lambda: signals.put_signal(0, 0, window.part(), memory),
            lambda: team.all_to_all_v(memory, 64, row_bytes=8),
            lambda: team.all_to_all_v(64, 64, 64, results=foreign, row_bytes=8),
        ):  # fmt: skip
            with pytest.raises(ArgumentError, match="is registered with another NIC"):
                call()
        with pytest.raises(ArgumentError, match="is of another team than these signals"):
            signals.put_signal(0, 0, foreign.part(), window.part())
        window.put(0)
        for no_nic in (5, "mlx5_0"):
            with pytest.raises(ArgumentError, match=f"nic={no_nic!r} is no NIC"):
                gda.init(nic=no_nic)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError, match="is no NIC"):
                team.over(no_nic)  # type: ignore[arg-type]


def test_a_window_of_a_smaller_team_is_not_put_to_by_the_signals_of_the_larger(nothing_left) -> None:
    """Rank 0 of the one is rank 1 of the other: the bytes had gone to the wrong one, or its NIC had refused the key."""
    small = threads(1)

    def work(team: Team) -> None:
        signals = team.signals(1)
        if team.rank == 1:
            with gda.init(small[0], nic=team.nic) as alone:
                part = alone.window(64).part()
                with pytest.raises(ArgumentError, match="of another team"):
                    signals.put_signal(0, 0, part)
        team.barrier()
        assert signals.read(0) == 0

    teams(2, work)


def test_what_wants_an_answer_is_refused_where_there_is_none(nothing_left) -> None:
    """The NIC had refused it, and the queue pair was of no use any more."""
    with pytest.raises(ArgumentError, match="datagrams have no connection"):
        gda.init(transport="UD")
    with gda.init(transport="UC") as team:
        window, signals = team.window(64), team.signals(1)
        calls: list[Callable[[], Any]] = [
            lambda: window.get(0), lambda: signals.signal(0, 0), lambda: signals.fetch_add(0, 0),
            lambda: signals.put_signal(0, 0, window.part()),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(ArgumentError, match="wants an answer, which queue pairs of transport 'UC' do not"):
                call()
        window.put(0)
        signals.put_signal(0, 0, window.part(), value=5, operation="set")
        assert signals.wait(0, 5, deadline_s=20) == 5
