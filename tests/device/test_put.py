# SPDX-License-Identifier: Apache-2.0
"""What gda_put writes: work requests, record, doorbell, counters; and what it refuses."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import BLOCK, QPN, ToyMemory, ToyQueue

FAILED = 1 << 63
DST = ToyMemory(1 << 16, rkey=0x55667788, address=0x1122334455660000)
SRC = ToyMemory(1 << 16, lkey=0x11223344, address=0x0000AABBCCDD0000)

# opmod, index, RDMA write | qpn, 3 segments | completion always | address, rkey | 0x20 bytes, lkey, address
GOLDEN = bytes.fromhex(
    "00000008 12345603 00000008 00000000 1122334455660010 55667788 00000000 00000020 11223344 0000aabbccdd0040"
)


def put(
    kernels: Kernel, queue: ToyQueue, count: int = 1, *, bytes: int = 0x20, at: int = 0, source: int = 0
) -> list[int]:
    tickets = np.zeros(count, np.uint64)
    for i in range(count):
        one = np.zeros(1, np.uint64)
        kernels.put[1, 1](queue, DST, at, SRC, source, bytes, 0, one)
        tickets[i] = one[0]
    return [int(t) for t in tickets]


def code(word: int) -> str:
    assert word & FAILED
    return str(formats.decode_status(word & ~FAILED)["code_name"])


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


def test_golden_bytes(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned)
    assert put(kernels, queue, at=0x10, source=0x40) == [1]
    assert queue.wqe(0) == GOLDEN + b"\xff" * 16, "48 bytes are written, the rest of the block is not touched"
    assert queue.wqe(1) == b"\xff" * BLOCK
    assert queue.record[:8].tobytes() == bytes.fromhex("00000000 00000001"), "second word, big-endian"
    assert queue.doorbell == bytes.fromhex("00000100 12345600")
    state = queue.state
    assert (state["reserved"], state["ready"], state["done"], state["error"]) == (1, 1, 0, 0)


def test_bytes_equal_the_formats(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, start=65535)
    put(kernels, queue, at=0x10, source=0x40)
    assert queue.wqe(65535)[:48] == (
        formats.wqe_ctrl_seg.pack(wqe_index=65535, opcode=8, qp_or_sq=QPN, ds=3, ce=2)
        + formats.wqe_raddr_seg.pack(raddr=DST.address + 0x10, rkey=DST.rkey)
        + formats.wqe_data_seg.pack(byte_count=0x20, lkey=SRC.lkey, addr=SRC.address + 0x40)
    )


def test_index_wraps_at_two_to_the_sixteen(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(8, owned=owned, start=65534)
    assert put(kernels, queue, 4) == [65535, 65536, 65537, 65538]
    written = [formats.wqe_ctrl_seg.unpack(queue.wqe(i)[:16])["wqe_index"] for i in range(65534, 65538)]
    assert written == [65534, 65535, 0, 1]
    assert queue.send_counter == 2
    assert queue.state["reserved"] == queue.state["ready"] == 65538


def test_without_record_the_register_carries_the_index(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, record=False, start=7)
    put(kernels, queue, 2)
    assert formats.send_doorbell.unpack(queue.doorbell) == {
        "opmod": 0,
        "wqe_index": 9,
        "opcode": 0,
        "qpn": QPN,
        "ds": 0,
    }
    assert not queue.record.any()


def test_no_bytes_no_data_segment(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned)
    assert put(kernels, queue, bytes=0) == [1]
    assert formats.wqe_ctrl_seg.unpack(queue.wqe(0)[:16])["ds"] == 2
    assert queue.wqe(0)[32:] == b"\xff" * 32


def test_long_put_is_split(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(16, owned=owned, max_message_bytes=100)
    assert put(kernels, queue, bytes=250) == [3]
    requests = [queue.wqe(i) for i in range(3)]
    data = [formats.wqe_data_seg.unpack(wqe[32:48]) for wqe in requests]
    assert [d["byte_count"] for d in data] == [100, 100, 50]
    assert [d["addr"] - SRC.address for d in data] == [0, 100, 200]
    assert [formats.wqe_raddr_seg.unpack(wqe[16:32])["raddr"] - DST.address for wqe in requests] == [0, 100, 200]
    assert [formats.wqe_ctrl_seg.unpack(wqe[:16])["ce"] for wqe in requests] == [0, 0, 2], "signaled at its end"


def test_each_quarter_of_the_ring_completes(kernels: Kernel, owned: bool) -> None:
    """A ring full of requests without completion could never be freed."""
    queue = ToyQueue(16, owned=owned, max_message_bytes=8)
    put(kernels, queue, bytes=8 * 15)
    signaled = [i for i in range(15) if formats.wqe_ctrl_seg.unpack(queue.wqe(i)[:16])["ce"] == 2]
    assert signaled == [3, 7, 11, 14]


def test_exact_multiple_has_no_empty_tail(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(16, owned=owned, max_message_bytes=64)
    assert put(kernels, queue, bytes=128) == [2]


@pytest.mark.parametrize(
    ("at", "source", "count"),
    [(1 << 16, 0, 1), (0, 1 << 16, 1), (65500, 0, 37), (0, 65500, 37), ((1 << 64) - 1, 0, 2), (0, 0, (1 << 64) - 1)],
)
def test_out_of_bounds_is_refused(kernels: Kernel, owned: bool, at: int, source: int, count: int) -> None:
    queue = ToyQueue(owned=owned)
    (ticket,) = put(kernels, queue, at=at, source=source, bytes=count)
    assert code(ticket) == "GDA_OUT_OF_BOUNDS"
    assert queue.state["reserved"] == 0
    assert (queue.sq == 0xFF).all()
    assert not queue.page.any()


def test_last_byte_is_inside(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned)
    assert put(kernels, queue, at=65535, source=65535, bytes=1) == [1]
    assert put(kernels, queue, at=65536, source=65536, bytes=0) == [2]


def test_full_ring_waits_until_the_deadline_and_leaves_no_trace(kernels: Kernel, owned: bool) -> None:
    """Case C3b: 64 are accepted, the 65th is refused, slot 0 is as it was."""
    queue = ToyQueue(64, owned=owned, deadline_ns=30_000_000)
    assert put(kernels, queue, 64) == list(range(1, 65))
    first, state, record = queue.wqe(0), queue.state, queue.record.copy()
    begin = time.monotonic()
    (ticket,) = put(kernels, queue)
    assert 0.03 <= time.monotonic() - begin < 5
    assert code(ticket) == "GDA_QUEUE_FULL"
    said = formats.decode_status(ticket & ~FAILED)
    assert (said["qpn"], said["wqe_index"]) == (QPN, 64)
    assert queue.wqe(0) == first
    assert queue.state == state, "no reservation, no error latched"
    assert (queue.record == record).all()
    queue.complete(0)
    assert put(kernels, queue) == [65], "one slot became free"
    assert formats.wqe_ctrl_seg.unpack(queue.wqe(64)[:16])["wqe_index"] == 64


def test_put_waits_for_a_slot_that_the_nic_frees(kernels: Kernel, owned: bool) -> None:
    queue = ToyQueue(4, owned=owned, deadline_ns=5_000_000_000)
    put(kernels, queue, 4)
    ticket = np.zeros(1, np.uint64)
    launch = kernels.put.start[1, 1](queue, DST, 0, SRC, 0, 8, 0, ticket)
    assert not launch.done()
    queue.complete(1)
    launch.wait(5)
    assert ticket[0] == 5
    assert queue.state["done"] == 2


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_rings_smaller_than_a_warp(depth: int, kernels: Kernel) -> None:
    """More lanes come together than there are slots: each gets its own, as the NIC frees them."""
    queue = ToyQueue(depth, deadline_ns=10_000_000_000)
    tickets = np.zeros(32, np.uint64)
    launch = kernels.put.start[1, 32](queue, DST, 0, SRC, 0, 8, 8, tickets)
    end = time.monotonic() + 20
    seen = 0
    while seen < 32 and time.monotonic() < end:
        if queue.send_counter > seen:
            seen = queue.send_counter
            queue.complete(seen - 1)
    launch.wait(10)
    assert sorted(int(t) for t in tickets) == list(range(1, 33))


def test_wrong_handles(kernels: Kernel, owned: bool) -> None:
    (ticket,) = put(kernels, ToyQueue(owned=owned, version=1))
    assert code(ticket) == "GDA_BAD_HANDLE"
    (ticket,) = put(kernels, ToyQueue(owned=owned, connected=False))
    assert code(ticket) == "GDA_NOT_CONNECTED"
    assert formats.decode_status(ticket & ~FAILED)["qpn"] == QPN
    null = np.zeros(1, np.uint64)
    kernels.put_null[1, 1](DST, SRC, null)
    assert code(int(null[0])) == "GDA_BAD_HANDLE"
