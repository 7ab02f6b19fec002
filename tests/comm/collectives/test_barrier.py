# SPDX-License-Identifier: Apache-2.0
"""The barrier on the device for 1 to 9 ranks: nobody leaves before all have come, and what was flushed is seen."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import gda
from gda.comm import Barrier, Team
from gda.comm.collectives.barrier import partners
from gda.errors import DeadlineError
from gda.sim import faults
from tests.comm.conftest import teams

KERNEL = r"""
#include <gda/collectives/barrier.h>
// In each round every rank puts the round's number to its place at all others. Behind the barrier all must be there;
// behind the second one they may be overwritten.
GDA_KERNEL(rounds)(gda_team team, gda_window seen, gda_window barrier, uint64_t rounds, uint32_t* wrong,
                   gda_status* status) {
    volatile uint64_t* words = reinterpret_cast<uint64_t*>(seen.mine.addr);
    for (uint64_t round = 1; round <= rounds; round++) {
        for (uint32_t peer = 0; peer < team.size; peer++) {
            gda_mr there = gda_memory_of(seen, peer);
            gda_ticket t = gda_put_value(gda_queue_of(team, peer), there, 8 * team.rank, round);
            gda_report(status, gda_wait_for(team, peer, t, GDA_S(20)));
        }
        gda_report(status, gda_flush_all(team, GDA_S(20)));
        gda_report(status, gda_barrier(team, barrier, GDA_S(20)));
        for (uint32_t rank = 0; rank < team.size; rank++) *wrong += words[rank] != round;
        gda_report(status, gda_barrier(team, barrier, GDA_S(20)));
    }
}
GDA_KERNEL(of_a_block)(gda_team team, gda_window barrier, uint32_t* done, gda_status* status) {
    gda_status s = gda_barrier_block(team, barrier, GDA_S(20));
    done[threadIdx.x] = s == 0;
    gda_report(status, s);
}
"""


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL, target="host")


@pytest.mark.parametrize("size", range(1, 40))
def test_every_rank_hears_of_every_other(size: int) -> None:
    heard = [{rank} for rank in range(size)]
    for step in range(len(partners(0, size))):
        before = [set(one) for one in heard]
        for rank in range(size):
            right, left = partners(rank, size)[step]
            assert partners(right, size)[step][1] == rank  # each waits for the one that tells it
            heard[rank] |= before[left]
    assert all(one == set(range(size)) for one in heard)
    assert len(partners(0, size)) == (size - 1).bit_length()


@pytest.mark.parametrize("size", range(1, 10))
def test_what_was_put_before_is_there_behind(kernel, nothing_left, size: int) -> None:
    def work(team: Team) -> int:
        seen, wrong = team.window(8 * size), np.zeros(1, np.uint32)
        kernel.rounds[1, 1](team, seen, team.device_barrier(start=2**64 - 2), 3, wrong)  # counts go round
        return int(wrong[0])

    assert teams(size, work) == [0] * size


@pytest.mark.parametrize("size", [2, 3, 7])
def test_nobody_leaves_before_all_have_come(nothing_left, size: int) -> None:
    come = np.zeros(size, np.int64)

    def work(team: Team) -> None:
        chance, barrier = random.Random(team.rank), team.device_barrier()
        for count in range(1, 5):
            time.sleep(chance.random() / 100)  # some come late
            come[team.rank] = count
            # Kernel and reference take turns, and meet in one barrier, too.
            (barrier.arrive if (count + team.rank) % 3 else barrier.arrive_in_python)(deadline_s=20)
            assert (come >= count).all() and (come <= count + 1).all()

    teams(size, work)


def test_all_threads_of_a_block(kernel, nothing_left) -> None:
    def work(team: Team) -> list[int]:
        done = np.zeros(40, np.uint32)
        kernel.of_a_block[1, 40](team, team.device_barrier(), done)
        return done.tolist()

    assert teams(2, work) == 2 * [[1] * 40]


def test_a_network_that_loses_packets(kernel, nothing_left) -> None:
    def work(team: Team) -> int:
        seen, wrong = team.window(8 * team.size), np.zeros(1, np.uint32)
        kernel.rounds[1, 1](team, seen, team.device_barrier(), 2, wrong)
        return int(wrong[0])

    with faults("drop=1%,seed=3"):
        assert teams(3, work) == [0, 0, 0]


def test_who_does_not_come_is_missed_within_the_deadline(nothing_left) -> None:
    def work(team: Team) -> None:
        barrier: Any = team.device_barrier()
        assert isinstance(barrier, Barrier) and "2 ranks in 1 rounds" in repr(barrier)
        if team.rank == 0:
            for arrive in (barrier.arrive, barrier.arrive_in_python):
                with pytest.raises(DeadlineError):
                    arrive(deadline_s=0.1)
        team.barrier()

    teams(2, work)
