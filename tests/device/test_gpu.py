# SPDX-License-Identifier: Apache-2.0
"""The same puts on a GPU, against queues in pinned memory; the test plays the NIC. The tier `gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from . import toy_queue
from .conftest import KERNELS
from .test_put import GOLDEN
from .toy_queue import QPN, ToyMemory, ToyQueue

pytestmark = pytest.mark.gpu
DST = ToyMemory(1 << 16, rkey=0x55667788, address=0x1122334455660000)
SRC = ToyMemory(1 << 16, lkey=0x11223344, address=0x0000AABBCCDD0000)


@pytest.fixture(autouse=True)
def pinned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Toy queues in memory that the GPU sees too."""
    import cupy

    kept: list[Any] = []

    def aligned(count: int, fill: int = 0) -> np.ndarray:
        memory = cupy.cuda.alloc_pinned_memory(count + 4096)
        kept.append(memory)
        raw = np.frombuffer(memory, np.uint8, count + 4096)
        start = -raw.ctypes.data % 4096
        raw[:] = fill
        return raw[start : start + count]

    monkeypatch.setattr(toy_queue, "aligned", aligned)
    yield
    kept.clear()


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(KERNELS, target="gpu")


def put(k: Kernel, queue: ToyQueue, shape: tuple[int, int], bytes: int = 0x20, stride: int = 0) -> list[int]:
    import cupy

    tickets = cupy.zeros(shape[0] * shape[1], dtype=cupy.uint64)
    k.put[shape](queue, DST, 0x10, SRC, 0x40, bytes, stride, tickets)
    return [int(t) for t in tickets.get()]


@pytest.mark.parametrize("owned", [True, False])
def test_golden_bytes(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned)
    assert put(k, queue, (1, 1)) == [1]
    assert queue.wqe(0) == GOLDEN + b"\xff" * 16
    assert queue.record[:8].tobytes() == bytes.fromhex("0000000000000001")
    assert queue.doorbell == bytes.fromhex("0000010012345600")


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("shape", [(1, 32), (4, 32), (8, 128)])
def test_many_threads(k: Kernel, shape: tuple[int, int], record: bool) -> None:
    queue = ToyQueue(4096, record=record)
    count = shape[0] * shape[1]
    assert sorted(put(k, queue, shape, 8, 8)) == list(range(1, count + 1))
    seen = set()
    for i in range(count):
        wqe = queue.wqe(i)
        fields = formats.wqe_ctrl_seg.unpack(wqe[:16])
        assert (fields["wqe_index"], fields["qp_or_sq"], fields["ds"]) == (i, QPN, 3)
        seen.add(formats.wqe_raddr_seg.unpack(wqe[16:32])["raddr"] - DST.address - 0x10)
    assert seen == {8 * i for i in range(count)}
    assert formats.send_doorbell.unpack(queue.doorbell)["wqe_index"] == count
    assert queue.send_counter == (count if record else 0)
    assert queue.state["reserved"] == queue.state["ready"] == count


def test_waits_and_errors(k: Kernel) -> None:
    import cupy

    queue = ToyQueue(64)
    put(k, queue, (1, 4))
    result = cupy.zeros(1, dtype=cupy.uint64)
    k.wait[1, 1](queue, 1, 2_000_000, result)
    assert formats.decode_status(int(result[0]))["code_name"] == "GDA_TIMEOUT"
    queue.complete(1)
    k.wait[1, 1](queue, 2, 2_000_000, result)
    assert int(result[0]) == 0
    queue.fail(2, 0x13)
    k.wait[1, 1](queue, 4, 2_000_000, result)
    assert formats.decode_status(int(result[0]))["syndrome"] == 0x13
    assert queue.state["done"] == 2
    (ticket,) = put(k, queue, (1, 1))
    assert ticket >> 63


def test_full_ring(k: Kernel) -> None:
    queue = ToyQueue(32, deadline_ns=20_000_000)
    put(k, queue, (1, 32))
    before = queue.state
    (ticket,) = put(k, queue, (1, 1))
    assert formats.decode_status(ticket & ~(1 << 63))["code_name"] == "GDA_QUEUE_FULL"
    assert queue.state == before


def test_a_gpu_plays_the_nic() -> None:
    """Case C4b on a GPU: weak memory order, real concurrency."""
    import cupy

    text = (Path(__file__).parent / "toy_nic_gpu.cu").read_text()
    kernel = Kernel(text, target="gpu")
    kernel.deadline_s = 60
    for blocks, threads, puts in ((2, 32, 2048), (132, 1, 200), (64, 128, 64), (16, 33, 100)):
        queue = ToyQueue(128, deadline_ns=30_000_000_000)
        cells = cupy.zeros(blocks * threads * puts, dtype=cupy.uint64)
        faults = cupy.zeros(4, dtype=cupy.uint64)
        target = ToyMemory(cells.nbytes, address=cells.data.ptr)
        kernel.stress[blocks + 1, threads](queue, target, SRC, puts, faults)
        assert faults.get()[:3].tolist() == [0, 0, 0], (blocks, threads, puts)
        assert (cells.get() == 1).all()
        assert queue.state["reserved"] == queue.state["ready"] == queue.state["done"] == blocks * threads * puts
