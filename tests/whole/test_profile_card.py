# SPDX-License-Identifier: Apache-2.0
"""`python -m gda profile --on card`: calls of libibverbs are counted right, whatever NIC is behind them.

The card is the software NIC, which was preloaded beneath and is not told apart: one run is counted twice, by the calls
and by the NIC, and both must find the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gda.tools.profile import Measured, Sized, _sent, _take, profile_text, verdict

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "gda" / "lib"

# Every way in which libibverbs posts: lists of requests, one that is refused in the middle, requests built piece by
# piece, and some that are given up; queues of both kinds, of libibverbs and of libmlx5; shared receives.
EVERY_WAY = """
import contextlib
from connected import ALL_SEND_OPS, address_of, make_pair, poll, to_rts
from gda import _verbs as v, attach, errors
from gda.sim import current

nic = current()
context = v.mlx5dv_open_device(v.ibv_get_device_list()[0].name, 0)
pd = v.ibv_alloc_pd(context)
S = v.IBV_SEND_SIGNALED

def reap(cq, count):
    end = 0
    while end < count:
        if not v.ibv_start_poll(cq):
            nic.step()
            continue
        end += 1
        while v.ibv_next_poll(cq):
            end += 1
        v.ibv_end_poll(cq)

cqs = [v.ibv_create_cq(context, 64) for _ in range(2)]
plain = make_pair(context, pd, v.IBV_QPT_RC, cqs)
for n in (0, 1, 2, 3, 1000, 1024, 1025, 65536):
    put = v.SendWR(opcode=v.IBV_WR_RDMA_WRITE, sg_list=plain.piece(n), send_flags=S, **plain.there())
    v.ibv_post_send(plain.a, put)
    assert poll(plain.a.send_cq, nic)[0].status == 0
v.ibv_post_recv(plain.b, v.RecvWR(sg_list=plain.landing(2000)))
v.ibv_post_send(plain.a, v.SendWR(opcode=v.IBV_WR_SEND, sg_list=[*plain.piece(700), *plain.piece(300)], send_flags=S))
poll(plain.a.send_cq, nic)
refused = 0
for _ in range(40):  # more than it has room for
    try:
        v.ibv_post_send(plain.a, v.SendWR(opcode=v.IBV_WR_RDMA_READ, sg_list=plain.piece(64), **plain.there()))
    except errors.VerbsError:
        refused += 1
    nic.step()
assert refused

for make in (v.ibv_create_cq_ex, v.mlx5dv_create_cq):
    flags = {"wc_flags": v.IBV_WC_STANDARD_FLAGS}
    two = [make(context, 64, **flags) for _ in range(2)]
    ex = make_pair(context, pd, v.IBV_QPT_RC, two, extended=True)
    v.ibv_wr_start(ex.a)
    ex.a.wr_flags = 0
    v.ibv_wr_rdma_write(ex.a, ex.target_mr.rkey, ex.target_mr.addr)
    v.ibv_wr_set_sge_list(ex.a, [*ex.piece(10), *ex.piece(20)])
    v.ibv_wr_rdma_write(ex.a, ex.target_mr.rkey, ex.target_mr.addr)
    v.ibv_wr_set_inline_data(ex.a, b"hello")
    ex.a.wr_flags = S
    v.ibv_wr_atomic_fetch_add(ex.a, ex.target_mr.rkey, ex.target_mr.addr, 1)
    v.ibv_wr_set_sge(ex.a, ex.source_mr.lkey, ex.source_mr.addr, 8)
    v.ibv_wr_complete(ex.a)
    reap(two[0], 1)
    v.ibv_wr_start(ex.a)
    v.ibv_wr_rdma_write(ex.a, ex.target_mr.rkey, ex.target_mr.addr)
    v.ibv_wr_set_sge(ex.a, ex.source_mr.lkey, ex.source_mr.addr, 5000)
    v.ibv_wr_abort(ex.a)
    v.ibv_post_recv(ex.b, v.RecvWR(sg_list=ex.landing(100)))
    v.ibv_wr_start(ex.a)
    ex.a.wr_flags = S
    v.ibv_wr_send_imm(ex.a, 7)
    v.ibv_wr_set_inline_data_list(ex.a, [b"one", b"two"])
    v.ibv_wr_complete(ex.a)
    reap(two[0], 1)
    reap(two[1], 1)

own = v.mlx5dv_create_qp(
    pd, qp_type=v.IBV_QPT_RC, send_cq=cqs[0], recv_cq=cqs[1], max_send_wr=4, max_recv_wr=4, max_send_sge=1,
    max_recv_sge=1, send_ops_flags=ALL_SEND_OPS[v.IBV_QPT_RC],
)
to_rts(own, own.qp_num, plain.gid)
v.ibv_wr_start(own)
own.wr_flags = S
v.ibv_wr_rdma_read(own, plain.target_mr.rkey, plain.target_mr.addr)
v.ibv_wr_set_sge(own, plain.source_mr.lkey, plain.source_mr.addr, 33)
v.ibv_wr_complete(own)
srq = v.ibv_create_srq(pd, 8, 1)
v.ibv_post_srq_recv(srq, v.RecvWR(sg_list=plain.landing(8)))
while not any(wc.opcode == v.IBV_WC_RDMA_READ and wc.qp_num == own.qp_num for wc in v.ibv_poll_cq(cqs[0], 4)):
    nic.step()
"""
# The CPU posts in batches, and kernels post.
OF_GDA = """
import numpy as np, gda
from gda import _verbs
nic = gda.open()
a, b = nic.host_queue_pair(depth=128), nic.host_queue_pair()
gda.nic.connect(a, b)
source, target = nic.allocate(1 << 16), nic.allocate(1 << 16)
rows = np.zeros(70, gda.WORK_REQUEST)
rows["opcode"], rows["length"] = _verbs.IBV_WR_RDMA_WRITE, np.arange(70) + 1
rows["local_addr"], rows["lkey"] = source.address, source.lkey
rows["remote_addr"], rows["rkey"] = target.address, target.rkey
for some in (rows[:32], rows[32:64], rows[64:]):
    some["send_flags"][-1] = _verbs.IBV_SEND_SIGNALED
    a.post(some)
    a.wait(1, 20)
kernel = gda.Kernel('''
#include <gda/gda.h>
GDA_KERNEL(posts)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    for (int i = 0; i < 8; ++i) gda_put(qp, dst, 0, src, 0, 64, GDA_MORE);
    *status = gda_flush(qp, GDA_MS(10000));
}''', target="host")
c, d = nic.loopback_pair()
kernel.posts[1, 1](c, target, source)
"""


def twice(command: list[str], directory: Path, **variables: str) -> tuple[Measured, Measured]:
    """Run a program on the software NIC; what its calls were, and what the NIC saw."""
    preload = f"{LIBRARIES / 'libgda_calls.so'}:{LIBRARIES / 'libgda_preload.so'}"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'verbs'}", "LD_PRELOAD": preload, "GDA_NIC": "software",
        "GDA_PROFILE": str(directory / "calls"), "GDA_SIM_PROFILE": str(directory / "nic"),
        **variables,
    }  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment)
    assert result.returncode == 0, result.stderr
    both = Measured("it", "card"), Measured("it")
    for seen, name in zip(both, ("calls", "nic"), strict=True):
        for path in sorted(directory.glob(f"{name}.*")):
            _take(path.read_text(), seen)
    return both


def what(seen: Measured) -> list[tuple[str, int, int, int]]:
    return [(s.operation, s.up_to_bytes, s.messages, s.bytes) for s in seen.sizes]


def test_every_way_of_posting_is_counted_as_the_nic_counts_it(tmp_path: Path) -> None:
    calls, nic = twice([sys.executable, "-c", EVERY_WAY], tmp_path)
    assert what(calls) == what(nic) and len(calls.sizes) >= 12
    assert calls.counters["doorbells"] == nic.counters["doorbells"] > 20
    assert calls.counters["receives"] == 4 and "not_watched" not in calls.counters
    # A poll that finds something is one for both; the software NIC looks twice when the first look is in vain.
    assert calls.polls - calls.vain_polls == nic.polls - nic.vain_polls > 8


def test_what_kernels_post_is_beside_what_the_cpu_posts(tmp_path: Path) -> None:
    calls, nic = twice([sys.executable, "-c", OF_GDA], tmp_path)
    assert calls.messages == calls.by_cpu == 70 and calls.bytes == sum(range(1, 71))
    # Eight puts, and a NOP or more that flush posts: how many depends on how soon the NIC answers.
    assert calls.blocks == {"direct": calls.by_kernels} and calls.by_kernels >= 9
    assert calls.kernels["payload_bytes"] == 512
    assert calls.messages + calls.by_kernels == nic.messages and calls.bytes + 512 == nic.bytes
    assert calls.counters["doorbells"] == 3  # up to 32 requests a call
    assert calls.counters["doorbells"] + calls.kernels["doorbells"] == nic.counters["doorbells"]
    host = [one for one in what(nic) if one[:2] not in {("RDMA write", 64), ("nop", 1)}]
    assert host == [one for one in what(calls) if one[:2] != ("RDMA write", 64)]


def test_what_the_proxy_posts_for_kernels_is_among_the_calls(tmp_path: Path) -> None:
    calls, nic = twice([sys.executable, "-c", OF_GDA], tmp_path, GDA_POSTING="proxy")
    assert what(calls) == what(nic) and calls.messages == 70 + 8  # flush's NOP is the proxy's own affair
    assert calls.blocks == {"proxy": calls.by_kernels} and calls.by_kernels >= 9
    assert calls.are_among and calls.by_cpu == 78 - calls.by_kernels
    assert f"of them: {calls.by_kernels} requests" in profile_text(calls, verdict(calls))


@pytest.mark.parametrize("tool", ["ibv_rc_pingpong", "ib_write_bw"])
def test_programs_in_c(tool: str, tmp_path: Path) -> None:
    """With events, and with the calls that build requests piece by piece."""
    if shutil.which(tool) is None:
        pytest.skip(f"not run: {tool} is not installed (Debian packages ibverbs-utils and perftest)")
    port = 20000 + os.getpid() % 10000
    command = f"{tool} " + ("-e -g 1 -n 50" if tool == "ibv_rc_pingpong" else "-x 1 -n 50 -s 3000") + f" -p {port}"
    script = f"{command} >&2 & until {command} localhost >&2; do sleep 0.2; done; wait"
    calls, nic = twice(["sh", "-c", script], tmp_path)
    assert what(calls) == what(nic) and calls.messages >= 50 and calls.processes == nic.processes >= 2
    # Of several rings before it looks the NIC sees one.
    assert calls.messages == calls.counters["doorbells"] >= nic.counters["doorbells"]
    assert (calls.channel_s > 0) == (tool == "ibv_rc_pingpong")


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "gda", *command], capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment
    )


def test_the_command_on_a_card(tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    result = run(
        "sim", "run", "--", sys.executable, "-m", "gda", "profile", "--on", "card", "--json", str(file), "--",
        sys.executable, "-c", OF_GDA, GDA_NIC="software",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    seen: dict[str, Any] = json.loads(file.read_text())
    assert seen["messages"] == 70 and seen["kernels"]["requests"] >= 9 and set(seen["sent"]) == {"bytes", "packets"}
    for words in (
        "by kernels, beside them: ", "gda's queue pairs: ", " direct", "ports sent", "? no: too few",
        "past libibverbs",
    ):  # fmt: skip
        assert words in result.stdout, result.stdout
    assert "software NIC" not in result.stdout


def test_without_a_card_it_says_so() -> None:
    if list(Path("/sys/class/infiniband").glob("*")):
        pytest.skip("not run: this machine has an RDMA device")
    result = run("profile", "--on", "card", "--", "true")
    assert result.returncode == 1 and "libibverbs lists no device" in result.stderr and "Traceback" not in result.stderr


def test_a_program_whose_kernels_post_is_told_no() -> None:
    on_card = Measured("it", "card", active_s=1, blocks={"direct": 50_000})
    judged = verdict(on_card)
    assert (judged.answer, judged.because) == ("no", "kernels post already") and "50000" in judged.reasons[0]
    both = Measured("it", active_s=1, sizes=[Sized("RDMA write", 8, 500, 4000)], kernels={"requests": 500})
    both.blocks = {"direct": 500}
    assert verdict(both).because == "kernels post already" and "of them: 500 requests" in profile_text(both, judged)


def test_what_ports_sent(tmp_path: Path) -> None:
    """The kernel counts words of four bytes; a port without counters says so in words."""
    for name, words, packets in (("a", "100", "7"), ("b", "N/A (no PMA)", "3")):
        counters = tmp_path / name / "ports" / "1" / "counters"
        counters.mkdir(parents=True)
        (counters / "port_xmit_data").write_text(words + "\n")
        (counters / "port_xmit_packets").write_text(packets + "\n")
    assert _sent(tmp_path) == {"bytes": 400, "packets": 10}
