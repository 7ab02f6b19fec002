# SPDX-License-Identifier: Apache-2.0
"""Run by test_rails.py in a process with two software NICs a rank: each half of the bytes goes over one of them."""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda.comm import threads
from gda.errors import ArgumentError, ClosedError
from gda.sim import current
from tests.comm.conftest import whole_world

BYTES = 100_000
KERNEL = r"""
#include <gda/comm.h>
// Block i sends its half over its own team. A signal tells of the bytes that went the same way alone: one a team.
GDA_KERNEL(halves)(gda_team one, gda_window w1, gda_window s1, gda_team other, gda_window w2, gda_window s2,
                   uint64_t half, gda_status* status) {
    const gda_team& team = blockIdx.x == 0 ? one : other;
    const gda_window& window = blockIdx.x == 0 ? w1 : w2;
    const gda_window& signals = blockIdx.x == 0 ? s1 : s2;
    uint32_t right = (team.rank + 1) % team.size;
    uint64_t to = (2 + blockIdx.x) * half, from = blockIdx.x * half;
    gda_ticket t = gda_put_signal_to(team, right, window, to, window.mine, from, half, signals, 0, 1, GDA_SIGNAL_ADD);
    gda_report(status, gda_wait_for(team, right, t, GDA_S(20)));
    gda_report(status, gda_wait_here(signals, 0, 1, GDA_S(20)));
}
"""
SIZE = 3


@pytest.mark.parametrize("connect", ["all", "on_demand"])
def test_each_half_goes_over_its_nic(connect: str) -> None:
    carriers, kernel = threads(SIZE), gda.Kernel(KERNEL, target="host")

    def rank(number: int) -> None:
        with gda.open("mlx5_0") as first, gda.open("mlx5_1") as second:
            with gda.init(carriers[number], nic=first, deadline_s=30, connect=connect) as team:
                rail = team.over(second)
                for one in (team, rail):
                    one.connect()
                assert (rail.rank, rail.size, rail.ranks, rail.nic) == (team.rank, SIZE, team.ranks, second)
                array = np.zeros(2 * BYTES, np.uint8)
                array[:BYTES] = np.arange(BYTES) % 251 + number
                windows, signals = [one.window(array) for one in (team, rail)], [one.signals(1) for one in (team, rail)]
                before = [sent(nic) for nic in (0, 1)]
                team.barrier()
                kernel.halves[2, 1](team, windows[0], signals[0], rail, windows[1], signals[1], BYTES // 2)
                rail.barrier()
                left = (number - 1) % SIZE
                assert (array[BYTES:] == (np.arange(BYTES) % 251 + left).astype(np.uint8)).all()
                moved = [sent(nic) - was for nic, was in zip((0, 1), before, strict=True)]
                assert all(SIZE * BYTES / 2 <= one < SIZE * BYTES * 0.6 for one in moved), moved
                team.barrier()
                with pytest.raises(ArgumentError, match="another team"):
                    team.all_gather(windows[1])
            assert rail.closed
            with pytest.raises(ClosedError):
                rail.window(8)

    whole_world(SIZE, rank)


def sent(nic: int) -> int:
    """Bytes that this NIC, which the ranks share, has sent."""
    return current().counters(nic=nic)["bytes_sent"]


def test_the_other_team_may_close_first() -> None:
    carriers = threads(2)

    def rank(number: int) -> None:
        with gda.open("mlx5_1") as second, gda.init(carriers[number], deadline_s=30, queues_per_peer=2) as team:
            with team.over(second, queues_per_peer=1) as rail:
                assert [len(queues) for queues in rail.queues] == [1, 1] and [len(q) for q in team.queues] == [2, 2]
                team.barrier()
            assert team.window(64).bytes == 64
            assert not team.left() and not team.lost()  # nor can it be before both have looked
            team.barrier()

    whole_world(2, rank)
