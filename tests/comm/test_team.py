# SPDX-License-Identifier: Apache-2.0
"""Teams, windows and signals on the software NIC: ranks are threads, and processes where one has to die."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda import config, formats
from gda.comm import Team, threads
from gda.errors import (
    ArgumentError,
    BootstrapError,
    ClosedError,
    DeadlineError,
    DeviceStatusError,
    HandleError,
    OutOfBoundsError,
    PeerLostError,
    QueueFullError,
)  # fmt: skip
from tests.comm.conftest import teams, whole_world, world

KERNEL = r"""
#include <gda/comm.h>
// Block q sends its piece of this rank's part to every rank, over queue q, with a signal behind it.
GDA_KERNEL(spread)(gda_team team, gda_window window, gda_window signals, uint64_t bytes, gda_status* status) {
    uint64_t at = (uint64_t(team.rank) * gridDim.x + blockIdx.x) * bytes;
    for (uint32_t peer = 0; peer < team.size; peer++) {
        gda_ticket ticket = gda_put_signal_to(team, peer, window, at, window.mine, at, bytes, signals, 0, 1,
                                              GDA_SIGNAL_ADD, blockIdx.x);
        gda_report(status, gda_wait_for(team, peer, ticket, GDA_S(5), blockIdx.x));
    }
    gda_report(status, gda_wait_here(signals, 0, team.size * gridDim.x, GDA_S(5)));
    gda_report(status, gda_flush_all(team, GDA_S(5)));
}
GDA_KERNEL(fetch)(gda_team team, uint32_t peer, gda_mr dst, gda_window window, gda_status* status) {
    *status = gda_wait_for(team, peer, gda_get_from(team, peer, dst, 0, window, 0, dst.bytes), GDA_S(5));
}
GDA_KERNEL(wait_behind)(gda_window signals, gda_status* status) {
    *status = gda_wait_here(signals, signals.mine.bytes / 8, 1, GDA_MS(1));
}
"""


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL)


@pytest.mark.parametrize("size, queues", [(1, 1), (2, 3), (5, 1)])
def test_kernels_reach_every_rank_by_every_queue(kernel, nothing_left, size: int, queues: int) -> None:
    def work(team: Team) -> np.ndarray[Any, Any]:
        array = np.zeros((size, queues, 16), np.uint8)
        array[team.rank] = team.rank + 1
        window, signals = team.window(array), team.signals(1)
        kernel.spread[queues, 1](team, window, signals, 16)
        assert signals.read(0) == size * queues
        return array.copy()

    expected = np.repeat(np.arange(1, size + 1, dtype=np.uint8), queues * 16).reshape(size, queues, 16)
    for array in teams(size, work, queues_per_peer=queues):
        assert (array == expected).all()


def test_put_and_get_by_parts(nothing_left) -> None:
    def work(team: Team) -> None:
        array = np.full((4, 6), 10 * team.rank, np.int32) + np.arange(4, dtype=np.int32)[:, None]
        window = team.window(array)
        team.barrier()
        right = (team.rank + 1) % 3
        other = team.nic.allocate(24)
        window.get(right, window[3], other)
        assert (other.array.view(np.int32) == 10 * right + 3).all()
        team.barrier()
        window.put(right, window[0], window[-1])  # my last row to its first
        window.put(right, window.part(24, 8), window.part(48, 8))
        team.barrier()
        left = (team.rank - 1) % 3
        assert (array[0] == 10 * left + 3).all() and (array[1, :2] == 10 * left + 2).all()
        assert (array[1, 2:] == 10 * team.rank + 1).all()
        assert window[1:3].bytes == 48 and window[2:2].bytes == 0 and window.part().bytes == 96

    teams(3, work)


def test_what_is_refused_before_anything_happens(kernel, nothing_left) -> None:
    def work(team: Team) -> None:
        window, closed = team.window(np.zeros(8, np.uint64)), team.window(64, access=("local_write", "remote_read"))
        signals = team.signals(2)
        before = [queue.read_handle()["reserved"] for queues in team.queues for queue in queues]
        for index in (8, -9):
            with pytest.raises(OutOfBoundsError):
                window[index]
        for offset, length in ((60, 8), (-1, 4), (0, 65)):
            with pytest.raises(OutOfBoundsError):
                window.part(offset, length)
        with pytest.raises(ArgumentError, match="goes backwards"):
            window[::-2]
        for rank in (2, -1, True, "0"):
            with pytest.raises(ArgumentError, match="there is no rank"):
                window.put(rank)
        with pytest.raises(ArgumentError, match=r"rank 1 .* does not give remote_write; it gives: remote_read"):
            closed.put(1)
        with pytest.raises(ArgumentError, match="8 bytes here, 16 bytes there"):
            window.put(1, window[:2], window[0])
        with pytest.raises(ArgumentError, match="of another window"):
            window.put(1, closed.part())
        with pytest.raises(ArgumentError, match="no right local_write"):
            window.get(1, None, team.nic.register(bytes(64)))
        with pytest.raises(OutOfBoundsError, match="signal 2 of 2"):
            signals.signal(1, 2)
        with pytest.raises(ArgumentError, match="operation='or'"):
            signals.signal(1, 0, operation="or")
        assert before == [queue.read_handle()["reserved"] for queues in team.queues for queue in queues]
        # Kernels are told in their own way.
        with pytest.raises(HandleError):
            kernel.fetch[1, 1](team, 2, window.memory, window)
        with pytest.raises(OutOfBoundsError):
            kernel.wait_behind[1, 1](signals)

    teams(2, work)


def test_signals(nothing_left) -> None:
    def work(team: Team) -> None:
        signals, window = team.signals(3, start=2**64 - 2), team.window(np.full(4, team.rank, np.uint8))
        peer = 1 - team.rank
        for epoch in range(4):  # over the end of 64 bits
            signals.signal(peer, 0)
            signals.wait_next(0)
            assert signals.epochs[0] == (2**64 - 1 + epoch) % 2**64
            team.barrier()
        assert signals.read(0) == 2
        signals.signal(peer, 1, 77, "set")
        assert signals.wait(1, 77) == 77
        signals.put_signal(peer, 2, window[0:2], window[2:4], value=3)
        signals.wait(2, 1)
        assert window.memory.array.tolist() == [peer, peer, team.rank, team.rank]
        with pytest.raises(DeadlineError, match=r"signal 1 of rank . is 77: it did not reach 78"):
            signals.wait(1, 78, deadline_s=0.05)
        with pytest.raises(DeadlineError) as caught:
            signals.wait(1, 78, peer=peer, deadline_s=0.05)
        assert caught.value.rank == peer

    teams(2, work)


def test_raw_parts(nothing_left) -> None:
    def work(team: Team) -> None:
        window = team.window(4096)
        assert len(team.queues) == team.size and {len(queues) for queues in team.queues} == {2}
        assert all(queue.state == "RTS" and queue.depth == 16 for queues in team.queues for queue in queues)
        assert window.remote[team.rank] == window.memory.remote
        table = formats.layouts["gda_window"].unpack(window.__gda_argument__("host")[1])
        assert (table["rank"], table["size"], table["mine"]["bytes"]) == (team.rank, 2, 4096)
        assert team.memory_bytes_per_connection == team.queues[0][0].memory_bytes > 16 * 64
        assert set(team.seconds) == {"open the NIC", "make queue pairs", "exchange", "connect"} == set(team.cpu_seconds)
        assert team.cpu_seconds["make queue pairs"] > 0 and team.cpu_seconds["connect"] > 0
        assert f"team of 2 by {team.bootstrap.carrier.name}" in team.report() and "4 queue pairs, 2 to" in team.report()

    teams(2, work, queues_per_peer=2, depth=16)


@pytest.mark.parametrize("order", list(itertools.permutations(("team", "window", "signals", "nic"))), ids="-".join)
def test_close_in_any_order(nothing_left, order: tuple[str, ...]) -> None:
    team = gda.init()
    things = {"team": team, "window": team.window(64), "signals": team.signals(1), "nic": team.nic}
    for name in order:
        things[name].close()
    assert all(thing.closed for thing in things.values())
    with pytest.raises(ClosedError):
        team.window(64)


def test_who_cannot_be_left_out(nothing_left) -> None:
    with gda.init() as team:
        with pytest.raises(ArgumentError, match="cannot go on without itself"):
            team.without([0])
        with pytest.raises(ArgumentError, match="there is no rank 1"):
            team.without([1])
        with pytest.raises(ArgumentError, match="serves no smaller team"):
            team.without([])


def test_an_open_nic_stays_open(nothing_left) -> None:
    with gda.open() as nic:
        gda.init(nic=nic).close()
        assert not nic.closed
        nic.allocate(64)


@pytest.mark.parametrize("what, words", [("window", "has a window of 64 bytes"), ("queues", "queues_per_peer=2")])
def test_ranks_that_do_not_do_the_same(nothing_left, what: str, words: str) -> None:
    carriers = threads(2)

    def work(rank: int) -> None:
        with gda.init(carriers[rank], deadline_s=20, queues_per_peer=1 + rank * (what == "queues")) as team:
            team.window(64 << rank)

    answers = world(2, work)
    assert all(isinstance(answer, BootstrapError) for answer in answers)
    assert any(words in str(answer) for answer in answers)


@pytest.mark.parametrize("one, other", [
    (lambda team: team.barrier(), lambda team: team.window(64)),
    (lambda team: team.window(64), lambda team: team.signals(4)),  # of as many bytes
    (lambda team: team.signals(2), lambda team: team.device_barrier()),
    (lambda team: team.bootstrap.allgather(b"mine"), lambda team: team.window(64)),
    (lambda team: team.window(8), lambda team: team.all_reduce(np.zeros(1))),
], ids=["barrier", "signals", "device_barrier", "allgather", "all_reduce"])  # fmt: skip
def test_ranks_that_make_other_calls_are_told_which(nothing_left, one: Any, other: Any) -> None:
    """One had returned, and the other had missed it at its deadline or had read what was no window."""

    def work(rank: int) -> None:
        with gda.init(carriers[rank], deadline_s=20) as team:
            with pytest.raises(BootstrapError, match=r"it makes another call \(.*\) than this rank \(.*\)") as caught:
                (other if rank else one)(team)
            assert caught.value.rank == 1 - rank

    carriers = threads(2)
    whole_world(2, work)


def test_a_rank_whose_call_failed_alone_is_out_of_step(nothing_left) -> None:
    def work(rank: int) -> None:
        with gda.init(carriers[rank], deadline_s=20) as team:
            if rank:
                with pytest.raises(ArgumentError, match="cannot be registered"):
                    team.window("text")
            with pytest.raises(BootstrapError, match="another call"):
                team.barrier() if rank else team.window(64)

    carriers = threads(2)
    whole_world(2, work)


def test_each_connects_to_each_once(nothing_left) -> None:
    """O(peers): connecting one more rank costs each rank one more queue pair and no more exchanges."""
    seen: dict[int, set[tuple[int, int]]] = {}
    lock = threading.Lock()

    def work(team: Team) -> None:
        with lock:
            seen.setdefault(team.size, set()).add((team.bootstrap.phase, len(team.queues)))

    for size in (2, 4):
        teams(size, work)
    assert {phase for phase, _ in seen[2]} == {phase for phase, _ in seen[4]} == {4}
    assert {queues for _, queues in seen[4]} == {4}


DYING = """
import os, signal, time
import gda
with gda.init(deadline_s=30) as team:
    window, signals = team.window(64), team.signals(1)
    team.barrier()
    if team.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        if team.rank == 0:
            while True:
                window.put(1)
        signals.wait(0, 1, peer=1, deadline_s=60)
    except gda.GdaError as error:
        print(type(error).__name__, error.rank, error.pid == team.ranks[1].pid, time.monotonic() - begin < 30)
    assert 1 in [one.rank for one in team.lost()] and "has ended" in team.report()
    carrier = team.without([1])
with gda.init(carrier, deadline_s=30) as team:
    window, signals = team.window(64), team.signals(1)
    signals.put_signal(1 - team.rank, 0, window.part())
    signals.wait_next(0)
    print("two go on:", team.rank, team.size)
    team.barrier()
"""


def test_a_rank_that_is_killed_is_named_by_all_and_they_go_on_without_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DYING]
    places = [config.environment_of_rank(rank, 3, str(tmp_path)) for rank in range(3)]
    ranks = [subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) for place in places]
    said = [one.communicate(timeout=90)[0] for one in ranks]
    assert [said[0], said[2]] == [f"PeerLostError 1 True True\ntwo go on: {rank} 2\n" for rank in range(2)]
    assert [ranks[0].returncode, ranks[2].returncode] == [0, 0]


@pytest.mark.gda_complaints("retries-exceeded")
def test_naming_names_the_rank_that_does_not_answer(kernel, nothing_left) -> None:
    def work(team: Team) -> None:
        window = team.window(64)
        team.barrier()
        if team.rank == 1:
            team.queues[0][0].to_error()
            team.barrier()
            team.barrier()
            return
        team.barrier()
        with pytest.raises(DeviceStatusError) as caught:
            window.put(1, deadline_s=10)
        assert caught.value.rank == 1 and f"; at the other end is {team.ranks[1]}\n  try: " in str(caught.value)
        assert caught.value.operation == "RDMA write"  # the request is read back from the right queue
        team.barrier()

    teams(2, work)


def test_a_full_queue_names_the_rank_that_does_not_empty_it(nothing_left) -> None:
    """It had no rank, and one that had died was not looked for."""
    error = QueueFullError("kernel send: the queue is full")

    def work(team: Team) -> None:
        error.rank = None
        error.qpn = team.queues[0][0].qpn
        with pytest.raises(QueueFullError, match="at the other end is rank 0") as caught, team.naming():
            raise error
        assert caught.value.rank == 0
        team.bootstrap.leave(failed=True)
        with pytest.raises(PeerLostError, match="left by an exception"), team.naming():
            raise error

    teams(1, work)


@pytest.mark.parametrize("what", ["the team", "its NIC", "the window"])
def test_who_closes_waits_for_a_thread_that_puts(nothing_left, what: str) -> None:
    """The kernel had gone on in memory that was free: the process crashed."""

    def work(rank: int) -> None:
        begun = threading.Event()

        def put() -> None:
            with pytest.raises(ClosedError):
                for _ in range(10**6):
                    window.put(rank, deadline_s=30)
                    signals.signal(rank, 0, deadline_s=30)
                    begun.set()

        with gda.open() as nic, gda.init(carriers[rank], nic=nic, deadline_s=20) as team:
            window, signals = team.window(1 << 20), team.signals(1)
            thread = threading.Thread(target=put)
            thread.start()
            assert begun.wait(30)
            {"the team": team, "its NIC": nic, "the window": window}[what].close()
            thread.join(30)
            assert not thread.is_alive()

    carriers = threads(2)
    whole_world(2, work)
