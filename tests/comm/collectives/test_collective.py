# SPDX-License-Identifier: Apache-2.0
"""What all collectives stand on, shown by the smallest: every rank puts its bytes to the one at its right."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda import config
from gda.comm import Team
from gda.comm.collectives.collective import Collective, Transfer, play, share_of
from gda.errors import ArgumentError, BootstrapError, ClosedError, DeadlineError, OutOfBoundsError
from tests.comm.conftest import teams, world

KERNEL = r"""
#include <gda/collectives/call.h>
GDA_API gda_status gda_shift(const gda_team& team, const gda_window& data, uint64_t bytes, const gda_window& signals,
                             uint64_t deadline_ns) {
    uint32_t right = (team.rank + 1) % team.size, left = (team.rank + team.size - 1) % team.size;
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda::collective_call call(team, signals, blockIdx.x, deadline_ns);
    call.admit(left);
    call.await_admission(right);
    call.put(right, data, bytes + share.offset, data.mine, share.offset, share.bytes, 1);
    call.await_arrival(left, 1);
    call.await_sent(right);
    call.await_sent(left);
    return call.finish(1);
}
GDA_COLLECTIVE_OF_BLOCK(shift)
GDA_KERNEL(shift)(gda_team team, gda_window data, uint64_t bytes, gda_window signals, uint64_t deadline_ns,
                  gda_status* status) {
    gda_report(status, gda_shift(team, data, bytes, signals, deadline_ns));
}
GDA_KERNEL(shift_by_block)(gda_team team, gda_window data, uint64_t bytes, gda_window signals, uint64_t deadline_ns,
                           uint32_t* seen, gda_status* status) {
    uint8_t* mine = reinterpret_cast<uint8_t*>(data.mine.addr);
    mine[threadIdx.x] = static_cast<uint8_t>(team.rank + threadIdx.x);
    gda_report(status, gda_shift_block(team, data, bytes, signals, deadline_ns));
    seen[threadIdx.x] = mine[bytes + threadIdx.x];
}
GDA_KERNEL(shares)(uint64_t bytes, uint32_t channels, uint64_t* out) {
    for (uint32_t i = 0; i < channels; i++) {
        out[2 * i] = gda::share_of(bytes, i, channels).offset;
        out[2 * i + 1] = gda::share_of(bytes, i, channels).bytes;
    }
}
"""


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL, target="host")


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_fast_rank_overwrites_nothing_that_a_slow_one_reads(kernel, nothing_left, size: int, channels: int) -> None:
    bytes = 1000

    def work(team: Team) -> None:
        chance, memory = random.Random(team.rank), np.zeros(2 * bytes, np.uint8)
        data = team.window(memory)
        one = Collective(team, "shift", {"bytes": bytes}, channels=channels, start=2**64 - 2)  # counts go round
        for count in range(6):
            memory[:bytes] = 16 * count + team.rank
            kernel.shift[channels, 1](team, data, bytes, one.signals, 20 * 10**9)
            for _ in range(3):
                assert (memory[bytes:] == 16 * count + (team.rank - 1) % size).all()
                time.sleep(chance.random() / 500)

    teams(size, work)


def test_all_threads_of_a_block_send_and_see(kernel, nothing_left) -> None:
    def work(team: Team) -> list[int]:
        one, data, seen = Collective(team, "shift", {}), team.window(80), np.zeros(40, np.uint32)
        kernel.shift_by_block[1, 40](team, data, 40, one.signals, 20 * 10**9, seen)
        return seen.tolist()

    assert teams(2, work) == [[1 + i for i in range(40)], list(range(40))]


def test_a_rank_that_does_not_come_is_named_within_the_deadline(kernel, nothing_left, monkeypatch) -> None:
    monkeypatch.setattr("gda.comm.collectives.collective.kernels_of", lambda file: kernel)

    def work(team: Team) -> None:
        one, data = Collective(team, "shift", {}, file="shift"), team.window(8)
        if team.rank == 0:
            with pytest.raises(DeadlineError) as caught:
                one._launch("shift", data, 4, deadline_s=0.2)
            assert caught.value.rank == 1
            with pytest.raises(ClosedError, match="failed before"):
                one._launch("shift", data, 4, deadline_s=0.2)
        team.barrier()

    teams(3, work)


def test_signals_that_are_too_few(kernel, nothing_left) -> None:
    def work(team: Team) -> None:
        with pytest.raises(OutOfBoundsError):
            kernel.shift[1, 1](team, team.window(8), 4, team.signals(2 * team.size + 1), 10**9)

    teams(2, work)


def test_options_that_differ_are_refused_on_all_ranks(nothing_left) -> None:
    def work(rank: int) -> Any:
        with gda.init(carriers[rank], deadline_s=30) as team:
            return Collective(team, "shift", {"bytes": 8 + rank // 2})

    carriers = gda.comm.threads(3)
    answers = world(3, work)
    assert all(isinstance(one, BootstrapError) for one in answers)
    assert [one.rank for one in answers] == [2, 2, 0]
    assert "rank 2 makes shift with bytes=9" in str(answers[0]) and "this rank shift with bytes=8" in str(answers[0])


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        for channels in (0, 65, 1.5, True):
            with pytest.raises(ArgumentError, match="channels"):
                Collective(team, "shift", {}, channels=channels)  # type: ignore[arg-type]
        one = Collective(team, "shift", {}, file="barrier")
        assert "shift of 1 ranks in 1 channels" in repr(one)
        with pytest.raises(ArgumentError, match="deadline_s"):
            one._launch("gda_kernel_barrier", deadline_s=0)
        one.close()
        with pytest.raises(ClosedError):
            one._launch("gda_kernel_barrier", deadline_s=1)

    teams(1, work)


@pytest.mark.parametrize("channels", [1, 2, 3, 64])
@pytest.mark.parametrize("bytes", [0, 1, 127, 128, 129, 4095, 1 << 20, (5 << 30) + 3, 2**63])
def test_shares_cover_all_bytes_once(kernel, bytes: int, channels: int) -> None:
    found = np.zeros(2 * channels, np.uint64)
    kernel.shares[1, 1](bytes, channels, found)
    shares = [share_of(bytes, channel, channels) for channel in range(channels)]
    assert [(int(a), int(b)) for a, b in found.reshape(-1, 2)] == shares
    end = 0
    for offset, length in shares:
        assert offset == end and (offset % 128 == 0 or length == 0)
        end += length
    assert end == bytes


def test_transfers_of_a_step_read_before_any_writes() -> None:
    memory = [np.array([rank], np.uint8) for rank in range(3)]
    play([Transfer(0, rank, (rank + 1) % 3, 0, 0, 1) for rank in range(3)], memory, memory)
    assert [int(one[0]) for one in memory] == [2, 0, 1]


def test_rings_connect_neighbours_alone(nothing_left) -> None:
    def work(team: Team) -> None:
        pieces = np.zeros((5, 8), np.uint8)
        gather, give = team.all_gather(pieces, algorithm="ring"), team.broadcast(8, algorithm="chain")
        assert set(team.connected) == {team.rank, (team.rank + 1) % 5, (team.rank - 1) % 5}
        pieces[team.rank] = team.rank
        gather(deadline_s=30)
        give(3, deadline_s=30)
        assert (pieces == np.arange(5)[:, None]).all()
        team.all_gather(40)(deadline_s=30)
        assert len(team.connected) == 5

    teams(5, work, connect="on_demand")


def test_two_threads_in_one_collective_are_told(nothing_left) -> None:
    def work(team: Team) -> None:
        give = team.broadcast(8)
        if team.rank == 0:
            give(root=1, deadline_s=30)
            return
        came: list[object] = []

        def second() -> None:
            try:
                give(root=1, deadline_s=30)
            except ArgumentError as error:
                came.append(error)

        turn = give._turn.pop()  # as the first thread has it in the middle of a call
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(30)
        give._turn.append(turn)
        assert "another thread is in this broadcast" in str(came[0])
        give(root=1, deadline_s=30)

    teams(2, work)


DYING = """
import os, signal, sys, time
import numpy as np
import gda
with gda.init(deadline_s=60) as team:
    data = np.zeros((4, 1000), np.uint8)
    call = {
        "broadcast": lambda: team.broadcast(data, algorithm="chain"),
        "all_to_all_v": lambda: team.all_to_all_v(data, np.zeros((20, 1000), np.uint8)),
    }[sys.argv[1]]()
    if sys.argv[1] == "all_to_all_v":
        rows, call = call, lambda deadline_s: rows.dispatch([1] * 4, deadline_s=deadline_s)
    call(deadline_s=30)
    team.barrier()
    if team.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    for _ in range(3):  # a broadcast's first ranks may be done before they miss anybody
        try:
            call(deadline_s=3)
        except gda.GdaError as error:
            print(type(error).__name__, error.rank, error.pid == team.ranks[1].pid, time.monotonic() - begin < 30)
            break
"""


@pytest.mark.parametrize("name", ["broadcast", "all_to_all_v"])
def test_a_rank_that_is_killed_is_named_by_all(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", DYING, name]
    places = [config.environment_of_rank(rank, 4, str(tmp_path)) for rank in range(4)]
    ranks = [subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) for place in places]
    said = [one.communicate(timeout=120)[0] for one in ranks]
    assert [said[0], *said[2:]] == 3 * ["PeerLostError 1 True True\n"]
    assert [one.returncode for one in ranks] == [0, -9, 0, 0]
