# SPDX-License-Identifier: Apache-2.0
"""Run by pytest in a guest, on the kernel's soft-iWARP: the proxy where the connection manager connects.

Called by iwarp.py, beside what it takes of tests/device/test_proxied.py. No part of the tests of this machine: the
file's name keeps pytest from finding it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda.comm import Team
from gda.comm.collectives.reduce import instance_of
from gda.comm.kernels import kernels_of
from gda.errors import ArgumentError, CompletionError, UnavailableError
from gda.nic import connector
from gda.tools.doctor import Status, card, examine
from tests.comm.conftest import teams
from tests.device.message_cases import RECEIVED, kernels  # noqa: F401
from tests.device.operation_cases import k, limit_ns, nic, numbers  # noqa: F401

LIMIT_NS = 30_000_000_000
REDUCE = instance_of("all_reduce_ring", "simple", "int64", "sum")
MANY = """
#include <gda/gda.h>
// Each thread puts `rounds` values to its own word and waits for each.
GDA_KERNEL(many)(gda_qp* qp, gda_mr dst, uint32_t rounds, gda_status* status) {
    for (uint64_t i = 1; i <= rounds; ++i) {
        gda_status s = gda_wait(qp, gda_put_value(qp, dst, 8 * threadIdx.x, i), GDA_S(30));
        if (s != 0) return gda_report(status, s);
    }
}
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_report(status, gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_S(30)));
}
GDA_KERNEL(put_imm)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_report(status, gda_wait(qp, gda_put_imm(qp, dst, 0, src, 0, bytes, 7), GDA_S(30)));
}
"""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What teams launch, compiled before there is a guest (--setup-only)."""
    kernels_of("barrier")
    kernels_of("comm")
    kernels_of("reduce", REDUCE)


@pytest.fixture(scope="module")
def target() -> str:
    return "host"


@pytest.fixture(scope="module")
def own() -> gda.Kernel:
    made = gda.Kernel(MANY, target="host")
    made.deadline_s = 60
    return made


@pytest.fixture
def pair(nic: gda.Nic) -> Iterator[tuple[gda.QueuePair, gda.QueuePair]]:  # noqa: F811
    a, b = nic.loopback_pair(depth=8, receive_depth=4, deadline_ms=30_000)
    with a, b:
        yield a, b


def test_it_is_chosen_without_being_asked_for(nic: gda.Nic) -> None:  # noqa: F811
    assert (nic.name, nic.posting, nic.is_software, nic.is_iwarp) == ("siw0", "proxy", False, True)
    with pytest.raises(UnavailableError, match="kernels cannot post to it directly"):
        gda.open("siw0", posting="direct")
    with pytest.raises(UnavailableError, match="speaks iWARP"):
        nic.host_queue_pair()
    with pytest.raises(UnavailableError, match="makes no UC queue pair"):
        nic.queue_pair(transport="UC")


def test_doctor_says_so() -> None:
    """Without the processes that it has for its probes: emulation has no time for them."""
    probes = tuple(probe for probe in card.PROBES if probe.name in ("devices", "port", "addresses"))
    report = examine(probes=probes, isolate=False)
    assert "by the proxy" in report.line("device siw0").value
    assert "iWARP" in report.line("port siw0/1").value
    assert {report.line(f"{what} siw0/1").status for what in ("port", "addresses")} == {Status.OK}
    assert report.verdict.uses["posting"] == "a host thread, by libibverbs"


def test_both_ends_know_each_other(pair: tuple[gda.QueuePair, gda.QueuePair]) -> None:
    a, b = pair
    a.settle()
    b.settle()
    assert (a.state, b.state) == ("RTS", "RTS")
    assert (a.context()["remote_qpn"], b.context()["remote_qpn"]) == (b.qpn, a.qpn)
    assert gda.nic.ConnectionInfo.from_bytes(a.info.to_bytes()) == a.info
    assert a.info.tcp_port > 0


def test_what_is_complete_is_in_place(pair: tuple[gda.QueuePair, gda.QueuePair], own: gda.Kernel) -> None:
    """On its own a write on iWARP is complete when it is on its way; both sides begin, in turn."""
    a, b = pair
    for number, queue in enumerate([b, a] * 8):
        data = np.random.default_rng(number).integers(0, 255, 300_000, np.uint8)
        src, dst = a.nic.register(data), a.nic.allocate(data.nbytes)
        own.put[1, 1](queue, dst, src, data.nbytes)
        assert dst.read(0, data.nbytes) == data.tobytes()


@pytest.mark.parametrize("completion", ["collapsed", "ring"])
def test_many_laps_of_a_small_ring(nic: gda.Nic, own: gda.Kernel, completion: str) -> None:  # noqa: F811
    a, b = nic.loopback_pair(depth=8, deadline_ms=30_000, completion=completion)
    with a, b:
        memory = nic.allocate(64)
        own.many[1, 8](a, memory, 200)
        assert numbers(memory, 8).tolist() == [200] * 8
        assert a.read_handle()["done"] == 1600


def test_send_and_receive(pair: tuple[gda.QueuePair, gda.QueuePair], kernels: gda.Kernel) -> None:  # noqa: F811
    a, b = pair
    src, dst, out = a.nic.allocate(64), a.nic.allocate(64), a.nic.allocate(RECEIVED.bytes)
    for number in range(1, 10):
        src.write(0, bytes([number]) * 64)
        kernels.post[1, 1](b, dst, 64, 1)
        kernels.send[1, 1](a, src, 40 + number)
        kernels.take[1, 1](b, out)
        assert RECEIVED.unpack(out.read(0, RECEIVED.bytes))["bytes"] == 40 + number
        assert dst.read(0, 40 + number) == bytes([number]) * (40 + number)


def test_a_queue_pair_that_reaches_its_own_nic(nic: gda.Nic, own: gda.Kernel) -> None:  # noqa: F811
    with nic.queue_pair() as queue:
        queue.connect(queue.info)
        memory = nic.allocate(8)
        own.many[1, 1](queue, memory, 3)
        assert numbers(memory, 1)[0] == 3


def test_what_iwarp_does_not_have(nic: gda.Nic, k: gda.Kernel, own: gda.Kernel) -> None:  # noqa: F811
    memory = nic.allocate(64)
    a, _ = nic.loopback_pair()
    with pytest.raises(CompletionError, match=r"vendor 0xe2"):
        k.gda_kernel_fetch_add[1, 1](a, memory, 0, memory, 8, 1, LIMIT_NS)
    a, b = nic.loopback_pair()
    own.many[1, 1](a, memory, 5)
    with pytest.raises(CompletionError, match=r"vendor 0xe2"):
        own.put_imm[1, 1](a, memory, memory, 8)
    assert a.state == "ERR"
    with pytest.raises(UnavailableError, match="single try"):
        a.reset()
    assert b.qpn != a.qpn


def test_the_other_side_refuses(nic: gda.Nic, own: gda.Kernel) -> None:  # noqa: F811
    """iWARP tells no reason: the connection ends."""
    a, b = nic.loopback_pair(deadline_ms=30_000)
    src, dst = nic.allocate(64), nic.register(np.zeros(64, np.uint8), access=("local_write",))
    with pytest.raises(CompletionError, match=r"vendor 0xe7"):
        own.put[1, 1](a, dst, src, 64)
    assert dst.read(0, 64) == bytes(64)
    assert a.state == b.state == "ERR"


def test_no_receive_ends_the_connection(nic: gda.Nic, kernels: gda.Kernel) -> None:  # noqa: F811
    a, _ = nic.loopback_pair(receive_depth=4)
    with pytest.raises(CompletionError, match=r"vendor 0xe7"):
        kernels.send[1, 1](a, nic.allocate(64), 8)


def test_the_other_side_goes_away(nic: gda.Nic, own: gda.Kernel) -> None:  # noqa: F811
    a, b = nic.loopback_pair(deadline_ms=30_000)
    memory = nic.allocate(64)
    own.many[1, 1](a, memory, 5)
    b.close()
    with pytest.raises((CompletionError, UnavailableError), match=r"vendor 0xe7|the connection ended"):
        own.many[1, 1](a, memory, 5)
    with pytest.raises(UnavailableError, match="the connection ended"):
        a.settle()


def test_the_error_state(pair: tuple[gda.QueuePair, gda.QueuePair], own: gda.Kernel) -> None:
    a, _ = pair
    a.settle()
    a.to_error()
    assert a.state == "ERR"
    with pytest.raises((CompletionError, UnavailableError)):
        own.many[1, 1](a, a.nic.allocate(64), 1)


@pytest.mark.parametrize("first", [0, 1])
def test_the_other_side_never_connects(
    nic: gda.Nic, monkeypatch: pytest.MonkeyPatch, first: int  # noqa: F811
) -> None:
    """Neither the side that connects nor the one that accepts waits for ever."""
    monkeypatch.setattr(connector, "CONNECT_LIMIT_S", 1.5)
    with nic.queue_pair() as a, nic.queue_pair() as b:
        one, other = (a, b) if first == 0 else (b, a)
        one.connect(other.info)
        with pytest.raises(UnavailableError, match="is not connected to"):
            one.settle()
        assert one.state == "ERR"
        with pytest.raises(ArgumentError, match="connected already"):
            one.connect(other.info)
        with pytest.raises(UnavailableError, match="single try"):
            one.reset()


def test_ranks_meet_at_a_barrier_and_put_to_each_other() -> None:
    def work(team: Team) -> list[int]:
        array = np.full(1000, team.rank, np.uint64)
        with team.window(array) as whole, team.device_barrier() as barrier:
            barrier.arrive(deadline_s=30)
            whole.put((team.rank + 1) % team.size, whole[:500], whole[500:], deadline_s=30)
            barrier.arrive(deadline_s=30)
        return sorted({int(value) for value in array[:500]})

    assert teams(3, work) == [[2], [0], [1]]


def test_signals_that_set() -> None:
    def work(team: Team) -> int:
        signals, peer = team.signals(2), 1 - team.rank
        with pytest.raises(ArgumentError, match="does not give remote_atomic"):
            signals.signal(peer, 0, 5, "add")
        signals.signal(peer, 0, 5 + team.rank, "set")
        return signals.wait(0, 1, deadline_s=30)

    assert teams(2, work) == [6, 5]


def test_all_reduce() -> None:
    def work(team: Team) -> list[int]:
        array = np.arange(1000, dtype=np.int64) * (team.rank + 1)
        with team.all_reduce(array, protocol="simple", algorithm="ring") as reduce:
            reduce(deadline_s=30)
            reduce(deadline_s=30)
        return [int(value) for value in array[:3]]

    assert teams(3, work) == [[0, 18, 36]] * 3
