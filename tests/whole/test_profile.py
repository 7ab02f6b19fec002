# SPDX-License-Identifier: Apache-2.0
"""`python -m gda profile`: programs for which its verdict is yes, no for each reason, and undecided."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gda.tools.profile import FEW, MANY_PER_S, Measured, Sized, verdict

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import time, numpy as np, gda
nic = gda.open()
a, b = nic.host_queue_pair(depth=128), nic.host_queue_pair()
gda.nic.connect(a, b)
source, target = nic.allocate(1 << 20), nic.allocate(1 << 20)
def puts(count, size):
    for _ in range(count):
        a.put(target, 0, source, 0, size)
    for _ in range(count):
        a.wait(1, 20)
"""
PROGRAMS = {
    # 64 at a time, each batch waited for over a network that takes a while.
    "yes": ("for _ in range(150): puts(64, 8)", {"GDA_SIM_FAULTS": "delay=300us"}, "yes", "many small messages"),
    "large": ("for _ in range(60): puts(32, 1 << 18)", {}, "no", "bandwidth"),
    "few": ("for _ in range(5): puts(1, 8); time.sleep(0.02)", {}, "no", "too few messages"),
    "slow": ("for _ in range(1100): puts(1, 8); time.sleep(0.001)", {}, "no", "too few messages"),
    "nothing": ("", {}, "no", "nothing was sent"),
    # Medium sizes that it waits for: neither small nor bound by bandwidth.
    "undecided": ("for _ in range(60): puts(32, 16384)", {"GDA_SIM_FAULTS": "delay=300us"}, "undecided", "are small"),
}  # fmt: skip


def run(program: str, variables: dict[str, str] | None = None, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    return subprocess.run(
        [sys.executable, "-m", "gda", "profile", *options, "--", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_verdict(name: str) -> None:
    body, variables, answer, because = PROGRAMS[name]
    result = run(BEGIN + body, variables, "--json", "-")
    assert result.returncode == 0, result.stderr
    seen: dict[str, Any] = json.loads(result.stdout)
    assert seen["verdict"]["answer"] == answer and because in seen["verdict"]["because"], seen
    assert name == "nothing" or len(seen["verdict"]["reasons"]) == 4


def test_what_is_counted(tmp_path: Path) -> None:
    body = """
import gda
puts(3, 8)
puts(2, 1000)
a.get(target, 0, source, 0, 4096)
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
    file = tmp_path / "seen.json"
    result = run(BEGIN + body, None, "--json", str(file))
    assert result.returncode == 0, result.stderr
    seen = json.loads(file.read_text())
    sizes = [(s["operation"], s["up_to_bytes"], s["messages"], s["bytes"]) for s in seen["sizes"]]
    assert [one for one in sizes if one[0] != "nop"] == [
        ("RDMA read", 4096, 1, 4096), ("RDMA write", 8, 3, 24), ("RDMA write", 64, 8, 512),
        ("RDMA write", 1024, 2, 2000),
    ]  # fmt: skip
    assert seen["messages"] >= 15 and seen["processes"] == 1  # with a NOP or more of flush
    assert seen["counters"]["doorbells"] < seen["messages"]
    assert 0 < seen["doorbells_per_message"] < 1 and seen["polls"] >= 6 and seen["cpu_s"] > 0
    assert any(name.startswith("gda-sim") for name in seen["threads"])
    text = result.stdout
    for words in ("RDMA write", "doorbells a message", "polls in vain", "the software NIC's thread", "? no: too few"):
        assert words in text, text


def test_sleeping_on_a_channel_is_waiting(tmp_path: Path) -> None:
    """An unmodified C program that sleeps in ibv_get_cq_event."""
    if shutil.which("ibv_rc_pingpong") is None:
        pytest.skip("not run: ibv_rc_pingpong is not installed (Debian package ibverbs-utils)")
    pingpong = f"ibv_rc_pingpong -e -g 1 -n 50 -p {20000 + os.getpid() % 10000}"
    script = f"{pingpong} & until {pingpong} localhost; do sleep 0.2; done; wait"
    result = subprocess.run(
        [sys.executable, "-m", "gda", "profile", "--json", str(tmp_path / "seen"), "--", "sh", "-c", script],
        capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["processes"] >= 2 and seen["channel_s"] > 0
    assert {s["operation"] for s in seen["sizes"]} == {"send"} and seen["messages"] == 100


def test_the_status_of_the_program_is_passed_on() -> None:
    assert run("raise SystemExit(7)").returncode == 7
    missing = subprocess.run(
        [sys.executable, "-m", "gda", "profile", "--", "no-such-program"], capture_output=True, text=True, cwd=ROOT
    )
    assert missing.returncode == 1 and "no-such-program" in missing.stderr and "Traceback" not in missing.stderr


def measured(messages: int, size: int, seconds: float, waited_s: float) -> Measured:
    one = Sized("RDMA write", 1 << max(0, size - 1).bit_length(), messages, messages * size)
    return Measured("it", active_s=seconds, sizes=[one], poll_s=waited_s)


@pytest.mark.parametrize(
    "seen, answer, because",
    [
        (measured(0, 8, 0, 0), "no", "nothing was sent"),
        (measured(FEW - 1, 8, 0.001, 0.001), "no", "too few messages"),
        (measured(FEW * 10, 8, 11, 5), "no", "too few messages"),
        (measured(100_000, 1 << 20, 1, 0.9), "no", "large messages, bound by bandwidth"),
        (measured(100_000, 8, 1, 0.04), "no", "the host hardly waits"),
        (measured(100_000, 8, 1, 0.5), "yes", "many small messages that the host waits for"),
        (measured(100_000, 8, 1, 0.1), "undecided", "the host waits less than 20 % of the time"),
        (measured(MANY_PER_S - 1, 8, 1, 0.5), "undecided", "fewer than 10000 messages a second"),
        (measured(100_000, 16384, 1, 0.5), "undecided", "fewer than 50 % of the messages are small"),
    ],
)
def test_thresholds(seen: Measured, answer: str, because: str) -> None:
    judged = verdict(seen)
    assert (judged.answer, judged.because) == (answer, because)
