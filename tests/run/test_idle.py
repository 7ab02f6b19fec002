# SPDX-License-Identifier: Apache-2.0
"""Unpinning memory waits for the kernels that run, which may wait for the rank that unpins: it is done between them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gda import idle
from gda.nic.gpu import CHUNK_BYTES
from gda.nic.placement import HostSlab
from gda.run.nic_helper import NicHelper

LIMIT_S = 20.0


class Pin:
    """A registration of the driver's; it looks at the memory when it ends."""

    device_pointer = 0x7000

    def __init__(self, slab_bytes: int) -> None:
        self.bytes, self.closed, self.slab = slab_bytes, False, None

    def close(self) -> None:
        self.closed = True


class Gpu:
    def __init__(self) -> None:
        self.pins: list[Pin] = []

    def pin(self, address: int, bytes: int) -> Pin:
        self.pins.append(Pin(bytes))
        return self.pins[-1]


def pinned() -> tuple[Any, Pin]:
    gpu: Any = Gpu()
    slab = HostSlab(CHUNK_BYTES + 1, gpu)
    return slab, gpu.pins[0]


def test_memory_is_unpinned_at_once_when_no_kernel_runs() -> None:
    slab, pin = pinned()
    slab.close()
    assert pin.closed and slab.view is None
    slab.close()


def test_memory_stays_pinned_and_there_while_kernels_run() -> None:
    first, second = NicHelper(0.1, 1.0), NicHelper(0.1, 1.0)
    slab, pin = pinned()
    first.begin()
    second.begin()
    slab.write(0, b"x")
    address = slab.address
    slab.close()
    first.end()
    assert not pin.closed
    maps = Path("/proc/self/maps").read_text().splitlines()  # the pages are there still, and nobody else gets them
    ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
    assert any(low <= address < high for low, high in ranges)
    second.end()
    assert pin.closed


def test_a_kernel_in_a_graph_holds_nothing_back() -> None:
    captured = NicHelper(0.1, 1.0, spins=False)
    captured.begin()
    slab, pin = pinned()
    slab.close()
    assert pin.closed
    captured.end()


def test_a_launch_waits_for_what_is_done_between_kernels() -> None:
    inside, go_on, began = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go_on.wait(LIMIT_S)

    def launch() -> None:
        idle.began()
        began.set()
        idle.ended()

    doing = threading.Thread(target=idle.when_idle, args=(slow,))
    doing.start()
    assert inside.wait(LIMIT_S)
    launching = threading.Thread(target=launch)
    launching.start()
    assert not began.wait(0.05)
    go_on.set()
    assert began.wait(LIMIT_S)
    doing.join(LIMIT_S)
    launching.join(LIMIT_S)


def test_all_is_done_though_something_fails(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("it cannot be unpinned")

    idle.began()
    for action in (fail, lambda: done.append(1)):
        idle.when_idle(action)
    idle.ended()
    assert done == [1] and "it cannot be unpinned" in capsys.readouterr().err
    with pytest.raises(ValueError, match="it cannot be unpinned"):
        idle.when_idle(fail)
    idle.when_idle(lambda: done.append(2))
    assert done == [1, 2]
