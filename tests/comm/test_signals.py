# SPDX-License-Identifier: Apache-2.0
"""Signals: what is waited for, counters, epochs that Python and kernels share; and ranks that leave in peace or not."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import config
from gda.comm import Team, threads
from gda.comm.bootstrap import Identity
from gda.comm.roll import FAILED, HERE, LEFT, Roll
from gda.errors import ArgumentError, CompletionError, DeadlineError, OutOfBoundsError, PeerLostError
from tests.comm.conftest import teams, whole_world, world

KERNEL = r"""
#include <gda/comm.h>
GDA_KERNEL(rounds)(gda_team team, gda_window signals, uint32_t times, gda_status* status) {
    uint32_t right = (team.rank + 1) % team.size;
    gda_status s = 0;
    for (uint32_t i = 0; i < times && s == 0; i++) {
        s = gda_wait_for(team, right, gda_signal_to(team, right, signals, 1, 1, GDA_SIGNAL_ADD), GDA_S(5));
        if (s == 0) s = gda_wait_next_here(signals, 1, GDA_S(5));
    }
    gda_report(status, s);
}
GDA_KERNEL(next_of)(gda_window signals, uint64_t index, gda_status* status) {
    *status = gda_wait_next_here(signals, index, GDA_MS(1));
}
GDA_KERNEL(signal_to)(gda_team team, gda_window signals, uint64_t index, gda_status* status) {
    uint32_t right = (team.rank + 1) % team.size;
    *status = gda_wait_for(team, right, gda_signal_to(team, right, signals, index, 1, GDA_SIGNAL_ADD), GDA_S(5));
}
// Every thread draws numbers from one counter and marks them.
GDA_KERNEL(draw)(gda_team team, gda_mr drawn, gda_window counters, uint32_t times, gda_status* status) {
    for (uint32_t i = 0; i < times; i++) {
        uint64_t at = 8 * (threadIdx.x * uint64_t(times) + i);
        gda_report(status, gda_wait_for(team, 0, gda_fetch_add_to(team, 0, drawn, at, counters, 0, 1), GDA_S(5)));
    }
}
"""


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL)


def test_what_is_waited_for(nothing_left) -> None:
    def work(team: Team) -> None:
        signals, peer = team.signals(2), 1 - team.rank
        signals.signal(peer, 0, 5, "set")
        assert signals.wait(0, 0, "!=") == signals.wait(0, 5, "==") == signals.wait(0, 3) == 5
        for value, until, words in ((6, ">=", "did not reach 6"), (4, "==", "did not become 4"), (5, "!=", "leave 5")):
            with pytest.raises(DeadlineError, match=words):
                signals.wait(0, value, until, deadline_s=0.05)
        with pytest.raises(ArgumentError, match="until='<' is not one of >=, ==, !="):
            signals.wait(0, 1, "<")

    teams(2, work)


def test_python_and_kernels_share_epochs(kernel, nothing_left) -> None:
    def work(team: Team) -> None:
        signals, left = team.signals(2, start=2**64 - 3), (team.rank - 1) % 3
        with team.naming():
            kernel.rounds[1, 1](team, signals, 2)
        signals.signal((team.rank + 1) % 3, 1)
        signals.wait_next(1, peer=left)
        with team.naming():
            kernel.rounds[1, 1](team, signals, 4)
        assert signals.epochs == [2**64 - 3, 4] and signals.read(1) == 4
        with pytest.raises(OutOfBoundsError):
            kernel.next_of[1, 1](signals, 2)
        with pytest.raises(OutOfBoundsError):  # a plain window has no epochs
            kernel.next_of[1, 1](team.window(64), 0)
        with pytest.raises(OutOfBoundsError):  # a neighbour's epoch
            kernel.signal_to[1, 1](team, signals, 2)
        for index in (2**61, 2**61 + 1, 2**64 - 1):  # whose bytes go round: signals 0 and 1 had been met
            with pytest.raises(OutOfBoundsError):
                kernel.signal_to[1, 1](team, signals, index)
        assert signals.read(1) == 4
        assert len(signals.epochs) == signals.count == 2
        team.barrier()

    teams(3, work)


def test_a_counter_hands_out_each_number_once(kernel, nothing_left) -> None:
    def work(team: Team) -> list[int]:
        counters, drawn = team.signals(1), team.nic.allocate(8 * 32 * 3)
        kernel.draw[1, 32](team, drawn, counters, 3)
        mine = [counters.fetch_add(0, 0) for _ in range(4)]
        with pytest.raises(OutOfBoundsError):
            counters.fetch_add(0, 1)
        team.barrier()  # rank 0's counters live until all have drawn
        return [*drawn.array.view(np.uint64).tolist(), *mine]

    numbers = sorted(itertools.chain.from_iterable(teams(2, work)))
    assert numbers == list(range(2 * (32 * 3 + 4)))


def test_threads_draw_different_numbers(nothing_left) -> None:
    """All had had one word for the answer: of 800 numbers 600 were different."""

    def work(team: Team) -> list[int]:
        counter, drawn = team.signals(1), list[int]()

        def draw(_: int) -> None:
            for _ in range(100):
                drawn.append(counter.fetch_add(0, 0, deadline_s=30))

        whole_world(4, draw)
        team.barrier()
        return drawn

    assert sorted(itertools.chain.from_iterable(teams(2, work))) == list(range(800))


def test_who_closed_its_team_is_not_missed(nothing_left) -> None:
    carriers, gone = threads(3), threading.Event()

    def rank(number: int) -> None:
        with gda.init(carriers[number], deadline_s=30) as team:
            signals = team.signals(2)
            if number == 2:
                team.close()
                gone.set()
                return
            gone.wait(30)
            assert [one.rank for one in team.left()] == [2] and team.lost() == []
            assert "rank 2" in team.report() and "it has closed its team" in team.report()
            team.check()
            with pytest.raises(DeadlineError):  # anybody may signal it
                signals.wait(0, 1, deadline_s=0.3)
            with pytest.raises(PeerLostError, match="it has closed its team; signal 0 is 0, waited for >= 1") as caught:
                signals.wait(0, 1, peer=2, deadline_s=30)
            assert caught.value.rank == 2
            signals.signal(1 - number, 1)
            signals.wait(1, 1)

    whole_world(3, rank)


@pytest.mark.gda_complaints(may=("retries-exceeded", "key-unknown", "refused-by-peer"))  # or the deadline comes first
def test_who_has_closed_its_team_is_told_where_a_call_fails(nothing_left) -> None:
    """Another rank waits for it, and this one for that: the text had named that one alone."""
    carriers, over = threads(3), threading.Barrier(3)

    def rank(number: int) -> None:
        with gda.init(carriers[number], deadline_s=30) as team:
            total = team.all_reduce(np.ones(4), algorithm="ring")
            if number == 1:
                team.close()
            else:
                with pytest.raises((CompletionError, DeadlineError)) as caught:
                    total(deadline_s=1)
                assert f"; {team.ranks[1]} has closed its team\n  try: " in str(caught.value)
            over.wait(30)

    whole_world(3, rank)


def test_who_left_by_an_exception_is_lost(nothing_left) -> None:
    carriers = threads(2)

    def rank(number: int) -> None:
        with gda.init(carriers[number], deadline_s=30) as team:
            signals = team.signals(1)
            if number == 1:
                raise ZeroDivisionError("of this rank")
            signals.wait(0, 1, deadline_s=30)

    answers = world(2, rank)
    assert isinstance(answers[1], ZeroDivisionError)
    assert isinstance(answers[0], PeerLostError) and answers[0].rank == 1
    assert "it left by an exception" in str(answers[0])


LEAVING = """
import gda
with gda.init(deadline_s=30) as team:
    signals = team.signals(1)
    if team.rank == 0:
        while not (team.left() and team.ranks[1].is_dead):
            pass
        assert [one.rank for one in team.left()] == [1] and team.lost() == [], (team.left(), team.lost())
        signals.signal(2, 0)
    elif team.rank == 2:
        signals.wait(0, 1, deadline_s=60)
        print("came")
        signals.signal(0, 0)
    if team.rank == 0:
        signals.wait(0, 1, deadline_s=60)
"""


def test_a_process_that_has_ended_in_peace_is_not_missed(tmp_path: Path) -> None:
    places = [config.environment_of_rank(rank, 3, str(tmp_path)) for rank in range(3)]
    command = [sys.executable, "-c", LEAVING]
    ranks = [subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) for place in places]
    said = [one.communicate(timeout=90)[0] for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0, 0] and said == ["", "", "came\n"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=lambda order: "".join(map(str, order)))
def test_close_in_any_order_and_those_left_go_on(nothing_left, order: tuple[int, ...]) -> None:
    carriers = threads(4)
    gone = [threading.Event() for _ in range(4)]
    steady = {left: threading.Barrier(left) for left in range(1, 5)}

    def rank(number: int) -> None:
        team = gda.init(carriers[number], deadline_s=30, depth=16)
        signals = team.signals(4)
        for turn, leaving in enumerate(order):
            those = order[turn:]
            for peer in those:
                signals.signal(peer, number)
            for peer in those:
                signals.wait_next(peer, peer=peer, deadline_s=30)
            steady[len(those)].wait(30)
            if leaving == number:
                team.close()
                gone[number].set()
                return
            gone[leaving].wait(30)
            assert [one.rank for one in team.left()] == sorted(order[: turn + 1])

    whole_world(4, rank)


def test_the_roll_keeps_the_first_word() -> None:
    first, second = Roll(3), Roll(3)
    ranks = [Identity.own(0, first.descriptor), Identity.own(1, second.descriptor)]
    for one in (first, second):
        one.join(ranks)
    second.mark(1, FAILED)
    second.mark(1, LEFT)
    first.mark(0, LEFT)
    assert [first.how(rank) for rank in range(3)] == [LEFT, FAILED, HERE]
    first.close()
    first.close()
    first.mark(2, LEFT)  # too late: nothing happens
    assert [first.how(rank) for rank in range(3)] == [second.how(rank) for rank in range(3)] == [LEFT, FAILED, HERE]
    second.close()


def test_a_roll_of_somebody_who_cannot_be_asked_says_nothing() -> None:
    roll = Roll(2)
    roll.join([Identity(0, "elsewhere", "", 1, 0, 5), Identity.own(1, 1_000_000)])
    roll.mark(1, LEFT)
    assert [roll.how(rank) for rank in range(2)] == [HERE, LEFT]
    roll.close()
