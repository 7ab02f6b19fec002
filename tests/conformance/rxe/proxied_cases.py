# SPDX-License-Identifier: Apache-2.0
"""Run by pytest in a guest, on the kernel's soft-RoCE: what only holds there, or what it answers in its own way.

Called by proxied.py, beside tests/device/test_proxied.py, whose cases run in the guest unchanged. No part of the tests
of this machine: the file's name keeps pytest from finding it.
"""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda import formats
from gda.comm import Team
from gda.comm.kernels import kernels_of
from gda.errors import CompletionError, UnavailableError
from gda.tools.doctor import Status, card, examine
from tests.comm.conftest import teams
from tests.device.doorbell_cases import told  # noqa: F401
from tests.device.message_cases import RECEIVED, kernels  # noqa: F401
from tests.device.operation_cases import k, limit_ns, nic  # noqa: F401

LIMIT_NS = 30_000_000_000


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What teams launch, compiled before there is a guest (--setup-only)."""
    kernels_of("barrier")
    kernels_of("comm")


@pytest.fixture(scope="module")
def target() -> str:
    return "host"


def test_it_is_chosen_without_being_asked_for(nic: gda.Nic) -> None:  # noqa: F811
    assert (nic.name, nic.posting, nic.is_software) == ("rxe0", "proxy", False)
    assert "through the proxy" in nic.description
    with pytest.raises(UnavailableError, match="kernels cannot post to it directly"):
        gda.open("rxe0", posting="direct")


def test_doctor_says_so() -> None:
    """Without the processes that it has for its probes: emulation has no time for them."""
    wanted = ("devices", "port", "addresses", "MTU")
    probes = tuple(probe for probe in card.PROBES if probe.name in wanted)
    report = examine(probes=probes, isolate=False)
    assert "by the proxy" in report.line("device rxe0").value
    assert {report.line(f"{what} rxe0/1").status for what in wanted[1:]} == {Status.OK}
    assert report.verdict.uses["posting"] == "a host thread, by libibverbs"


def test_many_laps_of_a_small_ring(nic: gda.Nic, told: gda.Kernel) -> None:  # noqa: F811
    a, b = nic.loopback_pair(depth=8, deadline_ms=30_000)
    counter, old = nic.allocate(8), nic.allocate(64)
    with a, b:
        told.count_up[1, 4](a, counter, old, 500)
        assert int(np.frombuffer(counter.read(0, 8), np.uint64)[0]) == 2000
        assert a.read_handle()["done"] == 2000


def test_a_receive_that_is_too_short(nic: gda.Nic, kernels: gda.Kernel) -> None:  # noqa: F811
    """Soft-RoCE tells both ends of an operation error, where cards tell of a length and an invalid request."""
    a, b = nic.loopback_pair(receive_depth=4)
    src, dst, out = nic.allocate(64), nic.allocate(64), nic.allocate(RECEIVED.bytes)
    kernels.post[1, 1](b, dst, 16, 2)
    with pytest.raises(CompletionError, match="remote operation error"):
        kernels.send[1, 1](a, src, 17)
    with pytest.raises(CompletionError, match="local queue pair operation error"):
        kernels.take[1, 1](b, out)
    assert b.state == "ERR"


def test_an_atomic_on_an_odd_address(nic: gda.Nic, k: gda.Kernel) -> None:  # noqa: F811
    """Its library does not post it."""
    a, _ = nic.loopback_pair()
    remote, own = nic.allocate(64), nic.allocate(64)
    with pytest.raises(CompletionError, match=r"vendor 0xe6.*libibverbs refused to post it"):
        k.gda_kernel_fetch_add[1, 1](a, own, 0, remote, 4, 1, LIMIT_NS)
    assert a.state == "ERR"


def test_nobody_answers(nic: gda.Nic, told: gda.Kernel) -> None:  # noqa: F811
    with nic.queue_pair(depth=8) as a, nic.queue_pair(depth=8) as b:
        a.connect(b.info, ack_timeout=8, retry_count=1)  # the other end stays in reset
        memory = nic.allocate(64)
        with pytest.raises(CompletionError) as failed:
            told.put_and_wait[1, 1](a, memory, memory, 1)
        assert failed.value.syndrome == formats.MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR


def test_a_receiver_that_is_never_ready(nic: gda.Nic, kernels: gda.Kernel) -> None:  # noqa: F811
    with nic.queue_pair(receive_depth=4) as a, nic.queue_pair(receive_depth=4) as b:
        gda.nic.connect(a, b, rnr_retry=1, min_rnr_timer=1)
        memory = nic.allocate(64)
        with pytest.raises(CompletionError) as failed:
            kernels.send[1, 1](a, memory, 8)
        assert failed.value.syndrome == formats.MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR


def test_ranks_meet_at_a_barrier_and_put_to_each_other() -> None:
    def work(team: Team) -> list[int]:
        array = np.full(1000, team.rank, np.uint64)
        with team.window(array) as whole, team.device_barrier() as barrier:
            barrier.arrive(deadline_s=30)
            whole.put((team.rank + 1) % team.size, whole[:500], whole[500:], deadline_s=30)
            barrier.arrive(deadline_s=30)
        return sorted({int(value) for value in array[:500]})

    assert teams(3, work) == [[2], [0], [1]]
