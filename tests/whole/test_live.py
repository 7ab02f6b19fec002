# SPDX-License-Identifier: Apache-2.0
"""gda.live and `python -m gda live`: each way in which a request stands still is produced, seen and ranked first."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import attach, formats, sim
from gda.errors import CompletionError, DeadlineError, UnavailableError
from gda.tools.causes import causes
from gda.tools.live import Live, live
from gda.tools.outside import Process, processes

ROOT = Path(__file__).resolve().parents[2]
KERNELS = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_MS(20000));
}
GDA_KERNEL(post)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t count, uint32_t flags) {
    for (uint32_t i = 0; i < count; ++i) gda_put(qp, dst, 0, src, 0, 64, flags);
}
GDA_KERNEL(waits)(gda_qp* qp, gda_mr window, uint64_t ms, gda_status* status) {
    *status = gda_wait_signal((const uint64_t*)window.addr, GDA_REACHED, 1, GDA_MS(ms));
}
GDA_KERNEL(reads)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    gda_get(qp, dst, 0, src, 0, 64, GDA_MORE);
    gda_put(qp, dst, 0, src, 0, 64, GDA_FENCE);
    *status = 0;
}
"""


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[gda.Nic]:
    monkeypatch.setenv("GDA_NIC", "software")
    with gda.open() as nic:
        software = attach.software_nic()
        software.clear_report()
        yield nic
        software.set_thread("adaptive")


@pytest.fixture
def regions(nic: gda.Nic) -> tuple[gda.Memory, gda.Memory]:
    return nic.register(np.ones(65536, np.uint8)), nic.register(np.zeros(65536, np.uint8))


@pytest.fixture
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNELS, target="host")


def write(queue: gda.QueuePair, index: int, regions: tuple[gda.Memory, gda.Memory], size: int = 64) -> bytes:
    source, target = regions
    return (
        formats.wqe_ctrl_seg.pack(opcode=8, wqe_index=index, qp_or_sq=queue.qpn, ds=3, ce=formats.CE_ALWAYS)
        + formats.wqe_raddr_seg.pack(raddr=target.address, rkey=target.rkey)
        + formats.wqe_data_seg.pack(byte_count=size, lkey=source.lkey, addr=source.address)
    )


def first(seen: Live) -> str:
    return causes(seen)[0].headline


def until(ready, seconds: float = 20.0) -> Live:
    """Look until it is so; the last view."""
    end = time.monotonic() + seconds
    while True:
        seen = gda.live(watched_s=0)
        if ready(seen):
            return gda.live(watched_s=0.05)
        assert time.monotonic() < end, str(seen)
        time.sleep(0.01)


def test_nothing_is_wrong(nic, regions, kernel):
    a, b = nic.loopback_pair()
    kernel.put[1, 1](a, regions[1], regions[0], 64)
    seen = gda.live()
    queue = seen.queue(a.qpn)
    assert (queue.reserved, queue.member("ready"), queue.member("rung"), queue.member("done")) == (1, 1, 1, 1)
    assert (queue.told, queue.fetched, queue.completed, queue.record, queue.written) == (1, 1, 1, 1, 1)
    assert queue.state == "RTS" and queue.idle and queue.remote == (b.qpn, b.gid.raw)
    assert queue.peer == "RTS, in this process" and queue.peer_idle
    assert first(seen) == "nothing wrong is visible"
    text = str(seen)
    for words in (
        f"queue pair 0x{a.qpn:06x} of mlx5_0 port 1: RC, RTS", "kernels: reserved 1, ready 1, rung 1, done 1",
        "NIC: told 1, fetched 1, completed 1", "slot 0: work request 0",
        "completion in slot 0: completion: request done",
        "doorbell record 1", "counted: ",
    ):  # fmt: skip
        assert words in text, text


def test_posted_but_not_rung(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    kernel.post[1, 1](a, regions[1], regions[0], 3, formats.GDA_MORE)
    assert first(gda.live()) == f"queue pair 0x{a.qpn:06x}: posted but not rung: 3 basic blocks"
    assert gda.diagnose(a)[0].headline == f"queue pair 0x{a.qpn:06x}: posted but not rung: 3 basic blocks"


def test_written_by_hand_and_not_rung(nic, regions):
    a, _ = nic.loopback_pair()
    a.write_wqe(0, write(a, 0, regions))
    assert "posted but not rung: a request stands in the ring" in first(gda.live())


def test_a_record_without_a_doorbell(nic, regions):
    a, _ = nic.loopback_pair()
    attach.software_nic().set_thread("off")  # its sweep would find it in the end
    a.write_wqe(0, write(a, 0, regions))
    a.write_record(1)
    assert first(gda.live()) == f"queue pair 0x{a.qpn:06x}: a record without a doorbell"


def test_a_doorbell_without_a_record(nic, regions):
    a, _ = nic.loopback_pair()
    software = attach.software_nic()
    software.set_thread("off")
    request = write(a, 0, regions)
    a.write_wqe(0, request)
    a.ring(request[:8])
    software.step()
    found = causes(gda.live())[0]
    assert found.headline == f"queue pair 0x{a.qpn:06x}: a doorbell without a record" and found.values["announced"] == 1


@pytest.mark.gda_complaints("record-wrong-word")
def test_the_counter_in_the_wrong_word(nic, regions):
    a, _ = nic.loopback_pair()
    software = attach.software_nic()
    software.set_thread("off")
    request = write(a, 0, regions)
    a.write_wqe(0, request)
    a._rings.write("records", 0, (1).to_bytes(4, "big"))
    a.ring(request[:8])
    software.step()
    found = causes(gda.live())[0]
    assert found.headline.endswith("the send counter is in the wrong word of the doorbell record")
    assert found.values["receive_word"] == 1


def test_rung_but_nobody_steps_the_nic(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    attach.software_nic().set_thread("off")
    kernel.post[1, 1](a, regions[1], regions[0], 1, 0)
    if gda.live().queue(a.qpn).told:  # the kernel's end may have stepped it
        kernel.post[1, 1](a, regions[1], regions[0], 1, 0)
    request = write(a, 2, regions)
    a.ring(request[:8])
    found = [f.headline for f in causes(gda.live())]
    assert found[0] == f"queue pair 0x{a.qpn:06x}: the NIC's engine stands still", found
    assert any("a doorbell was rung that the NIC has not taken" in f for f in found)


def test_rung_but_not_fetched(nic, regions):
    """More on the way than the NIC takes of one queue pair: the rest waits in its ring."""
    a, _ = nic.loopback_pair()
    big = (nic.allocate(1 << 20), nic.allocate(1 << 20))
    with sim.virtual_time(), sim.faults("drop any"):
        for index in range(100):
            a.write_wqe(index, write(a, index, big, 1 << 20))
        a.write_record(100)
        a.ring(write(a, 99, big)[:8])
        attach.software_nic()._library.gda_sim_step()
        queue = gda.live().queue(a.qpn)
        assert queue.told == 100 and queue.fetched is not None and queue.fetched < 100
        assert any("rung but not fetched" in f.headline for f in causes(gda.live()))


def test_fetched_and_nothing_sent(nic, regions):
    """A line as slow as this takes no packet for a long time."""
    a, _ = nic.loopback_pair()
    with sim.virtual_time() as software, sim.faults("rate=1kB"):
        for index in range(3):
            a.write_wqe(index, write(a, index, regions, 65536))
        a.write_record(3)
        a.ring(write(a, 2, regions)[:8])
        software._library.gda_sim_step()
        found = causes(gda.live())[0]
        assert re.fullmatch(rf"queue pair 0x{a.qpn:06x}: fetched, nothing sent: \d+ packets", found.headline)
        assert "the link took no more" in found.meaning and found.values["link_full"] > 0
        a.reset()
        while software.step():  # what is on the line arrives
            pass


def test_sent_and_nothing_answered(nic, regions):
    a, _ = nic.loopback_pair()
    with sim.faults("drop any"):
        request = write(a, 0, regions)
        a.write_wqe(0, request)
        a.write_record(1)
        a.ring(request[:8])
        seen = until(lambda seen: seen.queue(a.qpn).unanswered)
        found = [f.headline for f in causes(seen)]
        assert re.fullmatch(r"packets lost to faults: \d", found[0]), found
        assert any("sent, nothing answered: 1 packets" in f for f in found)


def test_sent_and_nobody_knows_why_nothing_is_answered(nic, regions):
    """A packet that takes long is neither lost nor counted as that."""
    a, _ = nic.loopback_pair()
    with sim.virtual_time() as software, sim.faults("delay=10ms"):
        request = write(a, 0, regions)
        a.write_wqe(0, request)
        a.write_record(1)
        a.ring(request[:8])
        software._library.gda_sim_step()
        assert first(gda.live()) == f"queue pair 0x{a.qpn:06x}: sent, nothing answered: 1 packets"
        while software.step():
            pass


@pytest.mark.gda_complaints("retries-exceeded")
def test_packets_that_the_link_does_not_carry_are_named_first(nic, regions):
    """With the values of all stages: told, fetched, path MTU, link MTU."""
    software = attach.software_nic()
    a, b = nic.queue_pair(), nic.queue_pair()
    gda.nic.connect(a, b)  # at 4096
    software.set_mtu(1500)
    try:
        request = write(a, 0, regions, 1441)
        a.write_wqe(0, request)
        with sim.virtual_time():
            a.write_record(1)
            a.ring(request[:8])
            for _ in range(200):
                software.step()
            seen = gda.live()
            found = causes(seen)[0]
            assert found.headline == "packets over link MTU: 8"
            assert found.values == {
                "packets_over_link_mtu": 8, "path_mtu": 4096, "link_mtu": 1500, "rung": 1, "fetched": 1,
            }  # fmt: skip
            assert seen.queue(a.qpn).state == "ERR"
            assert gda.diagnose(a)[0].headline == "packets over link MTU: 8"
    finally:
        software.set_mtu(9000)


def test_answered_and_nobody_polled(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    kernel.post[1, 1](a, regions[1], regions[0], 2, 0)
    seen = until(lambda seen: seen.queue(a.qpn).completed == 2)
    assert first(seen) == f"queue pair 0x{a.qpn:06x}: answered, completions are there, nobody polled: 2 basic blocks"
    assert first(seen) in [f.headline for f in gda.diagnose(a)]


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_an_error_that_nobody_polled(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    short = nic.register(np.zeros(64, np.uint8), access=("local_write",))
    kernel.post[1, 1](a, short, regions[0], 1, 0)
    seen = until(lambda seen: seen.queue(a.qpn).state == "ERR")
    assert "request 0 failed: remote access error (0x13), and no kernel has seen it" in first(seen)


def test_a_peer_that_was_reset(nic, regions, kernel):
    a, b = nic.loopback_pair()
    b.reset()
    kernel.post[1, 1](a, regions[1], regions[0], 1, 0)
    seen = until(lambda seen: seen.queue(a.qpn).unanswered)
    assert first(seen) == f"queue pair 0x{a.qpn:06x}: its peer is RST, in this process"


def test_a_kernel_that_waits_for_a_signal_that_nobody_posted(nic, regions, kernel):
    """The kernel spins with the GIL released; this thread looks, and says what it waits for; its wait is bounded."""
    a, b = nic.loopback_pair()
    launch = kernel.waits.start[1, 1](a, nic.allocate(4096), 3000)
    seen = gda.live()
    assert [k.name for k in seen.kernels] == ["waits"]
    found = causes(seen)[0]
    assert found.headline == "kernel waits waits for something that nobody has posted"
    assert "the peer has not sent it" in found.meaning
    assert "RTS, its peer RTS, in this process" in str(found.values["queue pairs"])
    assert "kernel waits runs on" in str(seen)
    with pytest.raises(DeadlineError, match="no signal") as caught:
        launch.wait()
    assert f"queue pair 0x{a.qpn:x} is in RTS, its peer 0x{b.qpn:x} in RTS" in str(caught.value)
    assert not gda.live().kernels


def test_a_signal_that_does_not_come_tells_what_became_of_the_peer(nic, kernel):
    a, b = nic.loopback_pair()
    b.to_error()
    with pytest.raises(DeadlineError, match=f"is in RTS, its peer 0x{b.qpn:x} in ERR"):
        kernel.waits[1, 1](a, nic.allocate(4096), 10)
    number = b.qpn
    b.close()
    with pytest.raises(DeadlineError, match=f"its peer 0x{number:x} is not in this process"):
        kernel.waits[1, 1](a, nic.allocate(4096), 10)


def test_it_looks_while_a_kernel_spins_and_changes_nothing(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    launch = kernel.waits.start[1, 1](a, nic.allocate(4096), 500)
    before = attach.software_nic().counters()
    views = [live(watched_s=0) for _ in range(50)]
    assert all(view.queue(a.qpn).state == "RTS" for view in views)
    after = attach.software_nic().counters()
    own = {"sleeps", "wakes_by_timer", "looks_around", "wakes_by_call"}  # of its thread, when nothing happens
    assert not {name for name in after if after[name] != before[name]} - own
    with pytest.raises(DeadlineError):
        launch.wait()


OTHER = """
import sys, time, numpy as np, gda
from gda import attach
KERNELS = '''KERNELS_OF_THIS_FILE'''
with gda.open() as nic:
    a, b = nic.loopback_pair()
    src, dst = nic.allocate(65536), nic.allocate(65536)
    kernel = gda.Kernel(KERNELS, target="host")
    kernel.post[1, 1](a, dst, src, 3, 1)
    launch = kernel.waits.start[1, 1](a, dst, 60000)
    print(a.qpn, b.qpn, flush=True)
    sys.stdin.readline()
""".replace("KERNELS_OF_THIS_FILE", KERNELS)


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process, whose kernel spins."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software"}
    program = subprocess.Popen(
        [sys.executable, "-c", OTHER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert program.stdout is not None
    numbers = program.stdout.readline().split()
    assert numbers, "the other process did not start"
    yield program, int(numbers[0])
    program.kill()
    program.wait()


def why_not_from_outside() -> str:
    """Why a process here may not read one that is not its child; empty when it may."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return ""
    capabilities = int(re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.M)[1], 16)
    return f"kernel.yama.ptrace_scope is {scope}" if scope and not capabilities >> 19 & 1 else ""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "gda", "live", *arguments],
        capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment,
    )  # fmt: skip


def test_another_process_also_when_it_is_stopped(other):
    program, qpn = other
    seen = live(program.pid)
    assert seen.queue(qpn).reserved == 3 and [k.name for k in seen.kernels] == ["waits"] and not seen.stopped
    assert first(seen) == f"queue pair 0x{qpn:06x}: posted but not rung: 3 basic blocks"
    assert program.pid in [p.pid for p in processes()]
    os.kill(program.pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + 10
        while not Process(program.pid).stopped and time.monotonic() < end:
            time.sleep(0.01)
        seen = live(program.pid)
        assert seen.stopped and seen.queue(qpn).reserved == 3
        assert first(seen) == f"process {program.pid} is stopped"
    finally:
        os.kill(program.pid, signal.SIGCONT)


def test_the_command_looks_at_a_process_that_is_not_its_own(other):
    if why := why_not_from_outside():
        pytest.skip(f"not run: {why}")
    program, _ = other
    shown = command(str(program.pid))
    assert shown.returncode == 0 and "posted but not rung: 3 basic blocks" in shown.stdout, shown.stderr
    assert str(program.pid) in command().stdout
    assert command("--watch", "0.01", "--times", "2", str(program.pid)).stdout.count("likely causes") == 2
    assert command("--causes", "--stuck", "0.01", str(program.pid)).stdout.startswith("likely causes")


def test_a_peer_in_another_process_is_found(nic, other):
    """By its address, among the processes of this host that show their NICs."""
    program, qpn = other
    queue = live(program.pid).queue(qpn)
    mine = nic.queue_pair()
    mine.connect(gda.ConnectionInfo(qpn, 0, queue.gid, 5, True, 0, bytes(6), 2))
    assert gda.live().queue(mine.qpn).peer == f"RTS, in process {program.pid}"


def test_a_program_that_knows_nothing_of_gda(tmp_path):
    """Unmodified, preloaded: its NIC shows its queue pairs."""
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from gda import _verbs as v
context = v.ibv_open_device("mlx5_0")
domain, cq = v.ibv_alloc_pd(context), v.ibv_create_cq(context, 16)
queue = v.ibv_create_qp(domain, qp_type=v.IBV_QPT_RC, send_cq=cq, recv_cq=cq, max_send_wr=8, max_recv_wr=8,
                        max_send_sge=1, max_recv_sge=1, max_inline_data=0)
print(queue.qp_num, flush=True)
sys.stdin.readline()
"""
    program = subprocess.Popen(
        [sys.executable, "-m", "gda", "sim", "run", "--", sys.executable, "-c", script, str(ROOT)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert program.stdout is not None
        number = int(program.stdout.readline())
        queue = live(program.pid).queue(number)
        assert queue.state == "RST" and queue.depth >= 8 and queue.reserved is None and queue.receives
    finally:
        program.kill()
        program.wait()


def test_processes_that_show_nothing_or_are_not_there():
    with pytest.raises(UnavailableError, match="shows nothing"):
        live(os.getppid())
    with pytest.raises(UnavailableError, match="there is no process"):
        live(1 << 22)
    assert command(str(os.getppid())).returncode == 1


def test_a_forked_child_is_not_taken_for_its_parent(nic):
    nic.loopback_pair()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        os._exit(0)
    try:
        with pytest.raises(UnavailableError, match="shows nothing"):
            live(child)
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_threads_may_look_together(nic, regions, kernel):
    a, b = nic.loopback_pair()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(first(gda.live(watched_s=0)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        kernel.put[1, 1](a, regions[1], regions[0], 64)
    for thread in threads:
        thread.join()
    assert len(found) == 4 and b.state == "RTS"


def test_the_complaints_of_the_nic_are_seen_from_outside(nic, regions, kernel):
    a, _ = nic.loopback_pair()
    short = nic.register(np.zeros(64, np.uint8), access=("local_write",))
    with pytest.raises(CompletionError):
        kernel.put[1, 1](a, short, regions[0], 64)
    assert gda.live().nics[0].complaints == attach.software_nic().report() != []
    attach.software_nic().clear_report()
    assert gda.live().nics[0].complaints == []
