# SPDX-License-Identifier: Apache-2.0
"""`python -m gda trace`: programs of several processes, programs that nobody changed, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gda import trace

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GDA_TARGET": "host", "COLUMNS": "150"}
    command = [sys.executable, "-m", "gda", "trace", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)


def test_a_program_of_two_processes(tmp_path: Path) -> None:
    page, numbers = tmp_path / "put.html", tmp_path / "put.json"
    done = run("--out", str(page), "--out", str(numbers), "--", sys.executable, "examples/04_two_processes.py")
    assert done.returncode == 0, done.stderr
    assert "two processes: ok" in done.stdout
    for words in ("reserve → write", "wire → peer", "reserve → done", f"wrote {page}", f"wrote {numbers}"):
        assert words in done.stdout
    assert page.read_text().startswith("<!doctype html>")
    t = trace.load(numbers)
    assert (t.puts["done"] > 0).any()
    assert len({actor.pid for actor in t.actors}) >= 2

    again = run("show", str(numbers), "--out", str(tmp_path / "again.html"))
    assert again.returncode == 0, again.stderr
    assert "wire → peer" in again.stdout
    assert (tmp_path / "again.html").read_text() == page.read_text()


def test_a_program_that_nobody_changed(tmp_path: Path) -> None:
    """libmlx5 posts: its requests begin where the NIC sees them."""
    if shutil.which("ibv_rc_pingpong") is None:
        pytest.skip("not run: apt-get install ibverbs-utils")
    numbers = tmp_path / "pingpong.json"
    both = "ibv_rc_pingpong -g 1 -n 20 -p 18621 & sleep 1; ibv_rc_pingpong -g 1 -n 20 -p 18621 localhost; wait"
    done = run("--out", str(numbers), "--", "sh", "-c", both)
    assert done.returncode == 0, done.stdout + done.stderr
    t = trace.load(numbers)
    assert len({actor.pid for actor in t.actors if actor.source == "nic"}) == 2
    sends = t.puts[t.puts["bytes"] == 4096]
    assert len(sends) == 40
    for stage in ("seen", "fetch", "wire", "peer", "ack", "cqe"):
        assert (sends[stage] > 0).all(), stage
    assert (sends["reserve"] < 0).all()
    assert "seen → cqe" in done.stdout


def test_kernels_are_left_alone_if_asked(tmp_path: Path) -> None:
    numbers = tmp_path / "put.json"
    done = run("--no-kernels", "--out", str(numbers), "--", sys.executable, "examples/01_first_put.py")
    assert done.returncode == 0, done.stderr
    t = trace.load(numbers)
    assert {actor.source for actor in t.actors} == {"python", "nic"}
    assert (t.puts["cqe"] > 0).any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "trace needs a program"),
        (("--", "no-such-program"), "'no-such-program' is not on the PATH"),
        (("--out", "put.txt", "--", "true"), "written as .json or .html"),
        (("--out", "/nowhere/put.json", "--", "true"), "no directory /nowhere"),
        (("show", "README.md"), "is no trace"),
        (("--", "true"), "there is no trace"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_programs_status_is_the_commands(tmp_path: Path) -> None:
    numbers = tmp_path / "put.json"
    program = "import gda, sys; nic = gda.open(); nic.allocate(64).close(); nic.close(); sys.exit(7)"
    assert run("--out", str(numbers), "--", sys.executable, "-c", program).returncode == 7
    assert json.loads(numbers.read_text())["traceEvents"]
