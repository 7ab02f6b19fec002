# SPDX-License-Identifier: Apache-2.0
"""A trace of a put, in one process and of two, of a program that is killed, and under virtual time."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import formats, trace
from gda.errors import ArgumentError, CompletionError
from gda.sim import current, faults, virtual_time
from gda.tools.trace.events import kind_name
from gda.tools.trace.puts import STAGES

ROOT = Path(__file__).resolve().parents[2]
PUT = "#include <gda/kernels/put.h>\n"
LIMIT_NS = 10_000_000_000
SLACK_NS = 2000  # a processor reads its counter ahead of what it waits for: docs/trace.md


def in_order(times: list[int]) -> bool:
    return all(later - earlier > -SLACK_NS for earlier, later in itertools.pairwise(times))



@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(PUT, target="host", trace=True)


@pytest.fixture
def nic() -> Iterator[gda.Nic]:
    current()  # also on a machine with a card
    with gda.open() as nic:
        yield nic


def kinds(t: trace.Trace, put: int) -> list[str]:
    return [kind_name(k) for k in t.events["kind"][t.events["put"] == put]]


def test_a_put_has_every_stage_in_order(kernel: gda.Kernel, nic: gda.Nic) -> None:
    with trace.record() as t:
        source, target = nic.register(np.arange(4096, dtype=np.uint8)), nic.allocate(4096)
        a, b = nic.loopback_pair()
        kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 1024, LIMIT_NS)
    assert len(t.puts) == 1
    put = t.puts[0]
    assert (put["qpn"], put["peer_qpn"], put["bytes"]) == (a.qpn, b.qpn, 1024)
    assert put["opcode"] == formats.MLX5_OPCODE_RDMA_WRITE
    times = [int(put[stage]) for stage in STAGES]
    assert min(times) > 0
    assert in_order(times)
    expected = ["write", "ring", "seen", "fetch", "send", "arrive", "ack", "cqe", "poll", "done"]
    assert [k for k in kinds(t, 0) if k != "seen"] == [k for k in expected if k != "seen"]
    python = [(kind_name(e["kind"]), t.texts[e["text"]]) for e in t.events if e["text"] >= 0]
    names = [name for name, _ in python]  # each queue pair registers a piece of its own
    assert names == [*["register"] * 4, "connect", "connect", "launch", "wait", "ended"]
    assert python[0][1].startswith("4096 bytes at 0x")
    assert python[6][1] == "gda_kernel_put[1, 1]"
    launch, ended = (int(t.events["time_ns"][t.events["kind"] == 32 + i][0]) for i in (0, 1))
    assert in_order([launch, *times, ended])
    assert {actor.source for actor in t.actors} == {"python", "kernel", "nic"}


def test_requests_in_flight_are_told_apart(kernel: gda.Kernel, nic: gda.Nic) -> None:
    """64 threads of two blocks on a ring of 32: each request has its own row, its ring and its completion."""
    with trace.record() as t:
        source, target = nic.allocate(1 << 16), nic.allocate(1 << 16)
        a, _b = nic.loopback_pair(depth=32)

        kernel.gda_kernel_put[2, 32](a, target, 0, source, 0, 512, LIMIT_NS)
    assert sorted(t.puts["index"].tolist()) == list(range(64))
    assert len(set(t.puts["lane"].tolist())) == 64
    for stage in STAGES:
        assert (t.puts[stage] > 0).all(), stage
    for earlier, later in itertools.pairwise(STAGES):
        assert (t.puts[later] - t.puts[earlier] > -SLACK_NS).all(), (earlier, later)


FULL = r"""
#include <gda/gda.h>
GDA_KERNEL(fill)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t puts, gda_status* status) {
    for (uint32_t i = 0; i < puts; ++i) gda_put(qp, dst, 0, src, 0, 64);
    *status = gda_flush(qp, GDA_S(5));
}
"""


def test_a_reservation_that_waits_for_room_is_seen_to_wait(nic: gda.Nic) -> None:
    """Reservation and writing are one reading of the clock, unless the ring is full in between."""
    kernel = gda.Kernel(FULL, target="host", trace=True)
    with trace.record() as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair(depth=16)
        kernel.fill[1, 1](a, target, source, 64)
    assert sorted(t.puts["index"].tolist()) == list(range(64))
    assert (t.puts["reserve"] > 0).all()
    apart = t.puts["write"] - t.puts["reserve"]
    assert (apart >= 0).all()
    assert apart[0] == 0
    assert apart.max() > 0


def test_what_the_nic_does_in_one_step_has_one_reading(kernel: gda.Kernel, nic: gda.Nic) -> None:
    """But for what comes from outside: the doorbell, and the payload at the peer."""
    with trace.record() as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        for _ in range(20):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    before, after = t.puts["wire"] == t.puts["seen"], t.puts["cqe"] == t.puts["peer"]
    assert (before & after).any(), "a step may be interrupted, but not each"
    assert (t.puts["peer"] > t.puts["wire"]).all()


def test_a_packet_that_is_lost_is_sent_again(kernel: gda.Kernel, nic: gda.Nic) -> None:
    with faults("drop request first=1,wqe=0"), trace.record() as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    assert t.puts["resent"][0] >= 1
    assert "timeout" in kinds(t, 0)
    assert t.puts["peer"][0] - t.puts["wire"][0] > 1_000_000, "the peer got it only after the timer"


def test_a_refused_put_shows_where_it_was_refused(kernel: gda.Kernel, nic: gda.Nic) -> None:
    with trace.record() as t:
        source = nic.allocate(4096)
        target = nic.allocate(4096, access=("local_write",))
        a, _b = nic.loopback_pair()
        with pytest.raises(CompletionError):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    put = t.puts[0]
    assert put["refused"]
    assert put["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
    assert put["peer"] > 0
    assert in_order([0, put["ack"], put["cqe"]])
    assert put["ack"] > 0
    current().clear_report()


SIGNAL = r"""
#include <gda/gda.h>
GDA_KERNEL(put_signal)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    *status = gda_wait(qp, gda_put_signal(qp, dst, 0, src, 0, 64, dst, 64, 1, GDA_SIGNAL_ADD), GDA_S(5));
}
"""


def test_a_signals_answer_is_that_of_the_put_before_it(nic: gda.Nic) -> None:
    """Two requests, one ring, one answer, one completion: the first has all stages but the completion."""
    kernel = gda.Kernel(SIGNAL, target="host", trace=True)
    with trace.record() as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        kernel.put_signal[1, 1](a, target, source)
    assert t.puts["opcode"].tolist() == [formats.MLX5_OPCODE_RDMA_WRITE, formats.MLX5_OPCODE_ATOMIC_FA]
    assert (t.puts["reserve"][0], t.puts["ring"][0]) == (t.puts["reserve"][1], t.puts["ring"][1])
    assert (t.puts["ack"] > 0).all()
    assert (t.puts["cqe"] > 0).tolist() == [False, True]
    assert (t.puts["done"] > 0).all()


def test_only_each_so_many_th_request(kernel: gda.Kernel, nic: gda.Nic) -> None:
    with trace.record(every=4) as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        for _ in range(8):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    assert t.puts["index"].tolist() == [0, 4]
    assert (t.puts["done"] > 0).all()


def test_the_nics_ring_keeps_the_newest(kernel: gda.Kernel, nic: gda.Nic) -> None:
    with trace.record(log_events=6) as t:
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        for _ in range(20):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    held = t.events[[t.actors[actor].source == "nic" for actor in t.events["actor"]]]
    assert len(held) == 64
    assert t.lost > 0
    assert int(t.puts["index"][t.puts["cqe"] > 0].max()) == 19


def test_virtual_time_is_the_engines_time(kernel: gda.Kernel, nic: gda.Nic) -> None:
    source, target = nic.allocate(4096), nic.allocate(4096)
    a, _b = nic.loopback_pair()
    with virtual_time(), trace.record() as t:
        kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 64, LIMIT_NS)
    engine = t.events[(t.events["flags"] & int(formats.TRACE_VIRTUAL)) != 0]
    assert {"fetch", "send", "arrive", "ack", "cqe"} <= {kind_name(k) for k in engine["kind"]}
    assert engine["time_ns"].min() >= 1_000_000_000, "virtual time begins at one second"
    assert engine["time_ns"].max() < 60_000_000_000


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(ArgumentError, match="power of two"), trace.record(every=3):
        pass
    with trace.record(), pytest.raises(ArgumentError, match="already"), trace.record():
        pass


# ---- several processes


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "GDA_TRACE": str(directory), "GDA_NIC": "software",
            "GDA_TARGET": "host"}  # fmt: skip


def test_two_processes_are_one_timeline(tmp_path: Path) -> None:
    """The put of one process is carried out by the NIC of the other, between its sending and its answer."""
    command = [sys.executable, "examples/04_two_processes.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    t = trace.read_directory(tmp_path)
    assert len({actor.pid for actor in t.actors if actor.source == "nic"}) == 2
    assert len({actor.pid for actor in t.actors if actor.source == "python"}) >= 2
    (put,) = (put for put in t.puts if put["write"] >= 0)
    times = [int(put[stage]) for stage in STAGES]
    assert min(times) > 0
    assert in_order(times)
    actors = {kind_name(e["kind"]): t.actors[e["actor"]].pid for e in t.events[t.events["put"] >= 0]}
    assert actors["arrive"] != actors["send"] == actors["cqe"]


KILLED = """
import os, signal, sys
import gda
kernel = gda.Kernel("#include <gda/kernels/put.h>\\n")
nic = gda.open()
source, target = nic.allocate(64), nic.allocate(64)
a, _b = nic.loopback_pair()
for _ in range(3):
    kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 8, 10**10)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_its_nic_did(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment(tmp_path), timeout=120)
    assert done.returncode == -signal.SIGKILL
    t = trace.read_directory(tmp_path)
    assert t.puts["index"].tolist() == [0, 1, 2]
    assert (t.puts["cqe"] > 0).all()
    assert (t.puts["cqe"] - t.puts["seen"] < 60_000_000_000).all()


def test_a_directory_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no trace"):
        trace.read_directory(tmp_path)


WITHIN = """
import gda
nic = gda.open()
source, target = nic.allocate(64), nic.allocate(64)
a, b = nic.loopback_pair()
kernel = gda.Kernel("#include <gda/kernels/put.h>\\n")
kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 8, 10**10)
with gda.trace.record() as t:
    kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 8, 10**10)
assert t.puts["index"].tolist() == [1], t.puts
assert (t.puts["done"] > 0).all()
"""


def test_a_program_that_records_may_be_recorded(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN], env=environment(tmp_path), timeout=120)
    assert done.returncode == 0
    assert trace.read_directory(tmp_path).puts["index"].tolist() == [0, 1]


NOWHERE = """
import gda
nic = gda.open()
(complaint,) = gda.sim.report()
assert "GDA_TRACE" in str(complaint) and "/proc/nowhere" in str(complaint), complaint
"""


def test_a_directory_that_cannot_be_written_stops_nobody(tmp_path: Path, nic: gda.Nic) -> None:
    with pytest.raises(ArgumentError, match="cannot trace to /proc/nowhere/nic-"):
        current().set_trace("/proc/nowhere")
    with pytest.raises(ArgumentError, match="2\\^40"):
        current().set_trace(tmp_path, log_events=40)
    assert list(tmp_path.iterdir()) == []
    values = {**environment(tmp_path), "GDA_TRACE": "/proc/nowhere"}
    command = [sys.executable, "-c", "import gda.sim\n" + NOWHERE]
    done = subprocess.run(command, env=values, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
