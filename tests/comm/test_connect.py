# SPDX-License-Identifier: Apache-2.0
"""Connections on demand: who is connected, whom a call names; and which queue a thread uses by the policy."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda import config
from gda.comm import Team, threads
from gda.comm.meeting import Meeting
from gda.errors import ArgumentError, BootstrapError, DeadlineError, HandleError, NotConnectedError
from tests.comm.conftest import teams, world

KERNEL = r"""
#include <gda/comm.h>
GDA_KERNEL(put_one)(gda_team team, uint32_t peer, gda_window window, gda_status* status) {
    gda_report(status, gda_wait_for(team, peer, gda_put_to(team, peer, window, 0, window.mine, 8, 8), GDA_S(5)));
    gda_report(status, gda_flush_all(team, GDA_S(5)));
}
// Every thread puts eight bytes over the queue that is its own by the policy.
GDA_KERNEL(by_policy)(gda_team team, gda_window window, gda_status* status) {
    uint32_t which = gda_which(team);
    gda_ticket ticket = gda_put_to(team, 0, window, 0, window.mine, 0, 8, which);
    gda_report(status, gda_wait_for(team, 0, ticket, GDA_S(5), which));
}
"""


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL)


def test_only_pairs_that_ask_are_connected(kernel, nothing_left) -> None:
    def work(team: Team) -> None:
        assert team.connected == [team.rank]
        window = team.window(np.full(2, team.rank + 1, np.int64))
        window.put(team.rank, window[0], window[1])
        neighbours = {(team.rank + 1) % 4, (team.rank - 1) % 4}
        team.connect(neighbours)
        assert set(team.connected) == neighbours | {team.rank}
        team.connect(neighbours)  # again is nothing new
        across = (team.rank + 2) % 4
        with pytest.raises(NotConnectedError, match=rf"rank {across} .*is not connected to this rank, {team.rank}"):
            window.put(across)
        with pytest.raises(HandleError):
            kernel.put_one[1, 1](team, across, window)
        team.barrier()
        kernel.put_one[1, 1](team, (team.rank + 1) % 4, window)
        team.barrier()
        assert window.memory.array.view(np.int64).tolist() == [(team.rank - 1) % 4 + 1, team.rank + 1]
        assert "6 queue pairs, 2 to 3 of the ranks" in team.report()
        if team.rank in {0, 2}:  # the others know nothing of it
            team.connect([across])
        barrier = team.device_barrier()
        barrier.arrive()
        team.connect()
        assert team.connected == [0, 1, 2, 3]

    teams(4, work, connect="on_demand", queues_per_peer=2, depth=16)


def test_pairs_connect_in_any_order(nothing_left) -> None:
    """Each begins with another one: nobody waits for a third."""
    orders = {0: [[1, 2], [3]], 1: [[0], [2], [3]], 2: [[0, 1, 3]], 3: [[2], [1], [0]]}

    def work(team: Team) -> None:
        for peers in orders[team.rank]:
            team.connect(peers)
        assert team.connected == [0, 1, 2, 3]

    teams(4, work, connect="on_demand", depth=16)


def test_a_call_that_the_other_side_does_not_make_is_named(nothing_left) -> None:
    def work(team: Team) -> None:
        if team.rank == 2:
            team.connect([1])
            team.barrier()
            team.connect([0])  # the first try of rank 0 has ended: both try again
        else:
            others = [1, 2] if team.rank == 0 else [2]
            if team.rank == 0:
                with pytest.raises(DeadlineError, match=r"rank 1 .*rank 2 .*did not connect to this rank within 0.3"):
                    team.connect(others, deadline_s=0.3)
                assert team.connected == [0]
            else:
                team.connect(others)
                assert team.connected == [1, 2]
            team.barrier()
            if team.rank == 0:
                team.connect([2])
        assert len(team.connected) == (3 if team.rank == 2 else 2)

    teams(3, work, connect="on_demand", depth=16)


@pytest.mark.parametrize(
    "options, words",
    [
        ([{"connect": "on_demand"}, {}], "connect='on_demand'"),
        ([{"connect": "on_demand", "queues_per_peer": 2}, {"connect": "on_demand"}], "queues_per_peer=[12]"),
        ([{"transport": "UC"}, {}], "transport='UC'"),
    ],
)
def test_ranks_that_do_not_connect_in_the_same_way(nothing_left, options: list[dict[str, Any]], words: str) -> None:
    carriers = threads(2)
    answers = world(2, lambda rank: gda.init(carriers[rank], deadline_s=20, **options[rank]))
    assert all(isinstance(answer, BootstrapError) for answer in answers)
    assert any(re.search(words, str(answer)) for answer in answers)


def test_options_that_there_are_not(nothing_left) -> None:
    with pytest.raises(ArgumentError, match="connect='later' is not one of all, on_demand"):
        gda.init(connect="later")
    with pytest.raises(ArgumentError, match="policy='thread' is not one of block, warp, peer"):
        gda.init(policy="thread")


def test_who_is_not_of_this_world_is_not_heard(nothing_left) -> None:
    """A stranger at the port, and a record of another world, take nobody's place."""
    places: dict[int, int] = {}

    def work(team: Team) -> None:
        meeting = team._meeting
        assert isinstance(meeting, Meeting)
        places[team.rank] = meeting._places[team.rank][0]
        team.barrier()
        if team.rank == 0:
            from gda.comm.record import DATA, Record

            foreign = Record(DATA, bytes(range(16)), 0, 2, 0, b"x" * 80).to_bytes()
            cut = Record(DATA, team.bootstrap.world, 0, 2, 0, b"x" * 80).to_bytes()[:40]
            for said in (b"GET / HTTP/1.0\r\n\r\n" + bytes(64), foreign, cut, b""):
                with socket.create_connection(("127.0.0.1", places[1])) as stranger:
                    stranger.sendall(said)
        team.barrier()
        with socket.create_connection(("127.0.0.1", places[1])):  # one that says nothing
            begin = time.monotonic()
            team.connect([1 - team.rank])
            assert time.monotonic() - begin < 4
        assert team.connected == [0, 1]

    teams(2, work, connect="on_demand", depth=16)


DYING = """
import json, os, signal, sys
import gda
with gda.init(deadline_s=30, connect="on_demand") as team:
    if team.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        team.connect([1])
    except gda.GdaError as error:
        print(json.dumps([type(error).__name__, error.rank, team.connected]))
    team.connect([2 - team.rank])
    print(json.dumps(team.connected))
"""


def test_a_rank_that_has_died_is_named_and_the_others_connect(tmp_path: Path) -> None:
    places = [config.environment_of_rank(rank, 3, str(tmp_path)) for rank in range(3)]
    ranks = [
        subprocess.Popen([sys.executable, "-c", DYING], env=place, stdout=subprocess.PIPE, text=True)
        for place in places
    ]
    said = [[json.loads(line) for line in one.communicate(timeout=90)[0].splitlines()] for one in ranks]
    assert ranks[1].returncode == -signal.SIGKILL
    assert said[0] == [["PeerLostError", 1, [0]], [0, 2]]
    assert said[2] == [["PeerLostError", 1, [2]], [0, 2]]


@pytest.mark.parametrize(
    "policy, posted",
    [
        ("block", [3 * 64, 2 * 64]),  # blocks 0, 2, 4 and 1, 3
        ("warp", [5 * 32, 5 * 32]),  # of each block's two warps one
        ("peer", [5 * 64, 0]),
    ],
)
def test_each_policy_spreads_as_it_says(kernel, nothing_left, policy: str, posted: list[int]) -> None:
    def work(team: Team) -> None:
        window = team.window(64)
        kernel.by_policy[5, 64](team, window)
        assert [queue.read_handle()["reserved"] for queue in team.queues[0]] == posted

    teams(1, work, queues_per_peer=2, policy=policy)


def test_a_program_with_many_open_files_connects(nothing_left) -> None:
    """select() knows descriptors up to 1,023 only."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            files.enter_context(open("/dev/null"))  # noqa: PTH123
        teams(2, lambda team: team.connect(), connect="on_demand", depth=16)
