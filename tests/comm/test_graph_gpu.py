# SPDX-License-Identifier: Apache-2.0
"""A collective in a CUDA graph: ranks are threads that share a GPU, each with a stream and a graph. The tier `gpu`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gda
from gda.comm import Team
from gda.comm.kernels import kernels_of
from tests.comm.conftest import teams

pytestmark = pytest.mark.gpu

RANKS, COUNT, REPLAYS = 2, 3000, 10


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_TARGET", "gpu")


def set_row(stream: Any, row: Any, value: int) -> None:
    with stream:
        row.fill(value)


def test_a_captured_all_gather_replays() -> None:
    """Signals and counts go on from replay to replay, and with ordinary calls in between."""
    import cupy

    def work(team: Team) -> list[list[int]]:
        stream = cupy.cuda.Stream(non_blocking=True)
        rows = cupy.zeros((team.size, COUNT), cupy.uint32)
        gather = team.all_gather(rows)
        kernel = kernels_of("all_gather").gda_kernel_all_gather_ring
        arguments = team, gather.window, gather.piece_bytes, gather.piece_bytes, gather.signals, 2 * 10**9
        seen = []

        def look() -> None:
            stream.synchronize()
            seen.append(rows.get(stream=stream)[:, [0, -1]].ravel().tolist())
            team.barrier()  # nobody fills its next row before all have looked

        for value in (1, 0):  # loads what fills (zeros come by another way), while no kernel waits
            set_row(stream, rows[team.rank], value)
        stream.synchronize()
        team.barrier()
        kernel.on(stream)[1, 1](*arguments).wait()
        look()
        stream.begin_capture()
        launch = kernel.on(stream)[1, 1](*arguments)
        graph = stream.end_capture()
        graph.upload(stream)
        stream.synchronize()
        team.barrier()
        for round in range(REPLAYS):
            set_row(stream, rows[team.rank], 100 * round + team.rank)
            graph.launch(stream)
            look()
            launch.check()
        set_row(stream, rows[team.rank], 7 + team.rank)
        stream.synchronize()
        gather()
        look()
        return seen

    expected = [[0] * 4, *([100 * r, 100 * r, 100 * r + 1, 100 * r + 1] for r in range(REPLAYS)), [7, 7, 8, 8]]
    assert teams(RANKS, work) == [expected] * RANKS


def test_a_torch_graph_of_a_put_and_a_barrier() -> None:
    """One rank, which is its own peer: torch captures in the mode that forbids most."""
    torch: Any = pytest.importorskip("torch", reason="not run: torch is not installed")
    kernel = gda.Kernel(
        r"""
        #include <gda/collectives/barrier.h>
        GDA_KERNEL(put_and_meet)(gda_team team, gda_window to, gda_window from, gda_window barrier,
                                 gda_status* status) {
            gda_ticket ticket = gda_put_to(team, team.rank, to, 0, from.mine, 0, from.mine.bytes);
            gda_report(status, gda_wait_for(team, team.rank, ticket, GDA_S(1)));
            gda_report(status, gda_barrier(team, barrier, GDA_S(1)));
        }
        """,
        target="gpu",
    )
    with gda.init() as team:
        source, target = (torch.zeros(COUNT, dtype=torch.int32, device="cuda") for _ in range(2))
        arguments = team, team.window(target), team.window(source), team.device_barrier()
        kernel.put_and_meet.on(torch.cuda.current_stream())[1, 1](*arguments).wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            source += 1  # part of the graph: the payload changes from replay to replay
            launch = kernel.put_and_meet.on(torch.cuda.current_stream())[1, 1](*arguments)
            total = target.sum()
        for round in range(REPLAYS):
            graph.replay()
            torch.cuda.current_stream().synchronize()
            launch.check()
            assert int(total) == COUNT * (round + 1)
        assert np.array_equal(target.cpu().numpy(), source.cpu().numpy())
