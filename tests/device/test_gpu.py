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


def test_meters() -> None:
    """32 lanes putting to one queue: 1 reservation, 1 MMIO write. Without a need for wqe_before_doorbell, none."""
    kernel = Kernel(KERNELS, target="gpu", meter=True)
    put(kernel, ToyQueue(64), (1, 32), 8, 8)
    assert {name: n for name, n in kernel.meters().items() if n} == {
        "additions": 1, "parkings": 1, "wqe_before_doorbell_record": 1,
        "doorbell_record_before_doorbell": 1, "doorbells": 1, "records": 1, "requests": 32, "segments": 96,
        "payload_bytes": 256,
    }  # fmt: skip
    kernel.clear_meters()
    assert not any(kernel.meters().values())


def test_full_ring(k: Kernel) -> None:
    queue = ToyQueue(32, deadline_ns=20_000_000)
    put(k, queue, (1, 32))
    before = queue.state
    (ticket,) = put(k, queue, (1, 1))
    assert formats.decode_status(ticket & ~(1 << 63))["code_name"] == "GDA_QUEUE_FULL"
    assert queue.state == before


class InGpuMemory:
    """A toy queue whose rings, record, doorbell and counters are copied into GPU memory, as with a real card."""

    def __init__(self, queue: ToyQueue, *, gpu_scope: bool) -> None:
        import cupy

        self.parts = {part: cupy.asarray(getattr(queue, part)) for part in ("sq", "cq", "record", "page", "handle")}
        moved = {part: array.data.ptr - getattr(queue, part).ctypes.data for part, array in self.parts.items()}
        values = queue.state
        for name, part in (("sq", "sq"), ("doorbell", "page"), ("record", "record")):
            values[name] += moved[part]
        values["cq"]["ring"] += moved["cq"]
        values["cq"]["record"] += moved["record"]
        values["receive"] = {"cq": {}}
        values["flags"] |= formats.constants["GDA_QP_GPU_SCOPE"] if gpu_scope else 0
        queue.write_handle(**values)
        self.parts["handle"].set(queue.handle)

    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        return "gda_qp*", self.parts["handle"].data.ptr.to_bytes(8, "little")

    @property
    def state(self) -> dict[str, int]:
        return formats.layouts["gda_queue"].unpack(self.parts["handle"].get().tobytes())["qp"]


# In pinned memory every look, every fence and every read-modify-write of a shared word crosses the bus, one after the
# other, so hundreds of waiting warps are a matter of minutes there: few producers, few puts.
@pytest.mark.parametrize(
    ("where", "blocks", "threads", "puts"),
    [
        ("gpu", 2, 32, 2048),
        ("gpu", 132, 1, 100),
        ("gpu", 64, 128, 16),
        ("gpu", 16, 33, 100),
        ("gpu, system scope", 4, 64, 100),
        ("pinned", 2, 32, 32),
        ("pinned", 8, 1, 50),
    ],
)
def test_a_gpu_plays_the_nic(where: str, blocks: int, threads: int, puts: int) -> None:
    """Case C4b on a GPU: weak memory order, real concurrency. The kernel ends by itself within ten seconds."""
    import cupy

    text = (Path(__file__).parent / "toy_nic_gpu.cu").read_text()
    kernel = Kernel(text, target="gpu")
    kernel.deadline_s = 20
    toy = ToyQueue(128, deadline_ns=4_000_000_000)
    queue = toy if where == "pinned" else InGpuMemory(toy, gpu_scope=where == "gpu")
    cells = cupy.zeros(blocks * threads * puts, dtype=cupy.uint64)
    faults = cupy.zeros(5, dtype=cupy.uint64)
    target = ToyMemory(cells.nbytes, address=cells.data.ptr)
    cupy.cuda.Stream.null.synchronize()  # the zeros are there: launches have streams of their own
    total = blocks * threads * puts
    try:
        kernel.stress[blocks + 1, threads](queue, target, SRC, puts, faults)
    finally:
        went_back, overrun, stale, doorbells, gave_up = map(int, faults.get())
        print(f"{doorbells} doorbells; gave up at {gave_up - 1} of {total}" if gave_up else f"{doorbells} doorbells")
    assert (went_back, overrun, stale, gave_up) == (0, 0, 0, 0)
    assert (cells.get() == 1).all()
    state = queue.state
    assert state["reserved"] == state["ready"] == state["done"] == total
