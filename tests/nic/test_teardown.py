# SPDX-License-Identifier: Apache-2.0
"""Closing in any order, by garbage collection, and at the end of the interpreter; nothing is left in the NIC."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gda.nic
from gda.nic.lifetime import Resources

ROOT = Path(__file__).resolve().parents[2]
ORDERS = list(itertools.permutations(("nic", "first", "second", "memory")))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_any_order(software, order):
    before = software.objects()
    nic = gda.nic.open()
    first, second = nic.loopback_pair(depth=16)
    things = {"nic": nic, "first": first, "second": second, "memory": nic.allocate(64)}
    for name in order:
        things[name].close()
    assert all(thing.closed for thing in things.values())
    assert software.objects() == before


def test_garbage(software):
    before = software.objects()

    def make():
        nic = gda.nic.open()
        pair = nic.loopback_pair(depth=16)
        return nic.allocate(64), nic.register(bytearray(64)), pair

    kept = make()
    assert software.objects() > before
    del kept
    gc.collect()
    assert software.objects() == before


def test_garbage_in_a_cycle(software):
    before = software.objects()

    def make():
        nic = gda.nic.open()
        pair = nic.loopback_pair(depth=16)
        nic.friend = pair[0]
        pair[0].friend = [pair[1], nic, nic.allocate(8)]

    make()
    gc.collect()
    assert software.objects() == before


def test_a_child_keeps_its_nic_open(software):
    queue = gda.nic.open().queue_pair(depth=16)
    gc.collect()
    assert queue.state == "RST"
    queue.nic.close()
    assert queue.closed


def test_with_block_closes_on_error(software):
    before = software.objects()
    with pytest.raises(RuntimeError, match="inside"), gda.nic.open() as nic:
        nic.loopback_pair(depth=16)
        raise RuntimeError("inside")
    assert nic.closed and software.objects() == before


def test_all_closers_run_though_one_fails():
    done = []
    parent = Resources("parent")
    child = Resources("child", parent)

    def fail():
        raise RuntimeError("closer failed")

    parent.callback(lambda: done.append("parent first"))
    parent.callback(fail)
    parent.callback(lambda: done.append("parent last"))
    child.callback(lambda: done.append("child"))
    with pytest.raises(RuntimeError, match="closer failed"):
        parent.close()
    assert done == ["child", "parent last", "parent first"]
    parent.close()
    child.close()
    assert done == ["child", "parent last", "parent first"]


EXIT = """
import atexit, sys
from gda import attach
software = attach.software_nic()
def last():
    print("left:", software.objects())
atexit.register(last)   # registered first: runs after everything of ours
import gda
nic = gda.open()
pair = nic.loopback_pair(depth=16)
memory = nic.allocate(4096)
registered = nic.register(bytearray(64))
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "del nic",
        "nic.close()",
        "pair[0].close(); del pair",
        "sys.exit(0)",
        "import threading; t = threading.Thread(target=lambda: gda.open().loopback_pair()); t.start(); t.join()",
        "sys.kept = (nic, pair, memory)",
        "nic.me = nic; pair[0].other = pair[1]; pair[1].other = pair[0]",
        "array = memory.array; sys.kept = array",
        "attach.loaded().set_thread('busy')",
        "attach.loaded().set_thread('off')",
    ],
    ids=str,
)
def test_interpreter_exit_leaves_nothing(ending):
    result = subprocess.run(
        [sys.executable, "-c", EXIT + ending], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.split() == ["left:", "0"]


def test_exit_by_an_exception_shows_only_that():
    result = subprocess.run(
        [sys.executable, "-c", EXIT + "raise KeyError('mine')"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software"},
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stdout.split() == ["left:", "0"]
    assert result.stderr.count("Traceback") == 1 and "KeyError: 'mine'" in result.stderr


@pytest.mark.parametrize("end_of_child", ["nic.close(); os._exit(0)", "sys.exit(0)", "del pair, nic; sys.exit(0)"])
def test_a_forked_child_does_not_destroy_what_its_parent_uses(end_of_child):
    script = EXIT + (
        "import os\n"
        "before = software.objects()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n"
        f"    {end_of_child}\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert software.objects() == before and pair[0].state == 'RTS'\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "left: 0" in result.stdout
