# SPDX-License-Identifier: Apache-2.0
"""Posting to a queue in plain memory (gda.nic.plain), with the checks of a post and without them (GDA_UNCHECKED)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gda import formats
from gda.errors import ArgumentError
from gda.nic.plain import PlainMemory, PlainQueue
from gda.run import Kernel
from gda.run.compile import compile_for_gpu, nvrtc_version

from .conftest import KERNELS
from .toy_queue import ToyQueue

SRC, DST = PlainMemory(0x0000AABBCCDD0000, 4096), PlainMemory(0x1122334455660000, 4096)


@pytest.fixture(scope="module")
def checked() -> Kernel:
    return Kernel(KERNELS, target="host")


@pytest.fixture(scope="module")
def unchecked() -> Kernel:
    return Kernel(KERNELS, target="host", options=("-DGDA_UNCHECKED",))


def put(k: Kernel, queue: PlainQueue | ToyQueue, count: int = 1, offset: int = 0, bytes: int = 32) -> list[int]:
    tickets = np.zeros(count, np.uint64)
    k.put[1, count](queue, DST, offset, SRC, 0, bytes, 0, tickets)
    return [int(ticket) for ticket in tickets]


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("owned", [True, False])
def test_a_put_tells_the_plain_queue(checked: Kernel, owned: bool, record: bool) -> None:
    with PlainQueue(None, depth=64, owned=owned, record=record, qpn=0x123456) as queue:
        assert put(checked, queue) == [1]
        control = formats.wqe_ctrl_seg.unpack(queue.wqe(0)[:16])
        assert (control["wqe_index"], control["qp_or_sq"], control["ds"]) == (0, 0x123456, 3)
        assert queue.wqe(1) == b"\xff" * 64
        assert queue.send_counter == (1 if record else 0)
        assert formats.send_doorbell.unpack(queue.doorbell)["wqe_index"] == 1
        state = queue.read_handle()
        assert state["reserved"] == state["ready"] == state["rung"] == 1 and state["done"] == 0


def test_a_reset_queue_starts_where_it_is_told_to(checked: Kernel) -> None:
    with PlainQueue(None, depth=64) as queue:
        put(checked, queue, 32)
        queue.reset(1 << 33)
        assert put(checked, queue) == [(1 << 33) + 1]
        queue.reset()
        assert put(checked, queue) == [1]


@pytest.mark.parametrize("owned", [True, False])
def test_a_full_ring_whose_completions_nobody_has_read(checked: Kernel, owned: bool) -> None:
    with PlainQueue(None, depth=64, owned=owned, deadline_ns=1_000_000) as queue:
        queue.reset(64, unread=64)
        assert put(checked, queue) == [65]
        state = queue.read_handle()
        assert (state["done"], state["rung"]) == (64, 65)
        queue.reset(64)
        assert put(checked, queue) == [65] and queue.read_handle()["done"] == 64


def test_a_plain_queue_refuses_what_cannot_be(checked: Kernel) -> None:
    with pytest.raises(ArgumentError, match="depth=48"):
        PlainQueue(None, depth=48)
    with PlainQueue(None, depth=64) as queue, pytest.raises(ArgumentError, match="unread=65"):
        queue.reset(65, unread=65)
    with PlainQueue(None) as queue, pytest.raises(ArgumentError, match="made for kernels on the host"):
        queue.__gda_argument__("gpu")


def test_unchecked_posts_write_the_same(checked: Kernel, unchecked: Kernel) -> None:
    for owned in (True, False):
        with PlainQueue(None, depth=64, owned=owned) as one, PlainQueue(None, depth=64, owned=owned) as other:
            for _ in range(3):
                assert put(checked, one) == put(unchecked, other)
            assert [one.wqe(i) for i in range(4)] == [other.wqe(i) for i in range(4)]
            assert (one.doorbell, one.send_counter) == (other.doorbell, other.send_counter)
            assert one.read_handle()["ready"] == other.read_handle()["ready"] == 3


def test_only_unchecked_posts_are_taken_that_should_be_refused(checked: Kernel, unchecked: Kernel) -> None:
    def outcomes(k: Kernel) -> list[bool]:
        """Refused: beyond the region, not connected, wrong handle, ring full."""
        full = ToyQueue(8, owned=True, deadline_ns=1000)
        for _ in range(8):
            put(k, full)
        queues = (ToyQueue(), ToyQueue(connected=False), ToyQueue(version=1), full)
        tickets = [put(k, queue, offset=4090 if not i else 0)[0] for i, queue in enumerate(queues)]
        return [bool(ticket >> 63) for ticket in tickets]

    assert outcomes(checked) == [True, True, True, True]
    assert outcomes(unchecked) == [False, False, False, False]


def test_unchecked_code_for_a_gpu_reads_neither_done_nor_error() -> None:
    try:
        nvrtc_version()
    except Exception as error:
        pytest.skip(f"not run: {error}")
    kernel = "#include <gda/gda.h>\nGDA_KERNEL(k)(gda_qp* q, gda_mr d, gda_mr s) { gda_put(q, d, 0, s, 0, 8); }"
    acquires = [
        len(re.findall(r"ld\.acquire", compile_for_gpu(kernel, arch="compute_90", options=options).decode()))
        for options in ((), ("-DGDA_UNCHECKED",))
    ]
    # What is left polls in await_window, which a post enters when it is 63 words ahead of the token: no check.
    assert acquires[0] > acquires[1]
