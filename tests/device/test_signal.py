# SPDX-License-Identifier: Apache-2.0
"""Signals: what they write, how they are waited for, and that a flush knows of requests without a completion."""

from __future__ import annotations

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import ToyMemory, ToyQueue

REMOTE = ToyMemory(1 << 16, rkey=0x55667788, address=0x1122334455660000)
LOCAL = ToyMemory(1 << 16, lkey=0x11223344, address=0x0000AABBCCDD0000)
FAILED = 1 << 63
ADD, SET = int(formats.GDA_SIGNAL_ADD), int(formats.GDA_SIGNAL_SET)
REACHED, EQUAL, NOT_EQUAL = (int(formats.constants[f"GDA_{n}"]) for n in ("REACHED", "EQUAL", "NOT_EQUAL"))
TOP = 1 << 63

SOURCE = r"""
#include <gda/gda.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
GDA_KERNEL(signal)(gda_qp* qp, gda_mr remote, uint64_t at, uint64_t value, uint32_t operation, gda_ticket* t) {
    t[ME] = gda_signal(qp, remote, at, value, gda_signal_operation(operation));
}
GDA_KERNEL(put_signal)(gda_qp* qp, gda_mr remote, uint64_t to, gda_mr local, uint64_t from, uint64_t bytes,
                       uint64_t at, uint64_t value, uint32_t operation, gda_ticket* t) {
    t[ME] = gda_put_signal(qp, remote, to, local, from, bytes, remote, at, value, gda_signal_operation(operation));
}
GDA_KERNEL(test_signal)(const uint64_t* signal, uint32_t comparison, uint64_t value, gda_status* result) {
    *result = gda_test_signal(signal, gda_comparison(comparison), value);
}
GDA_KERNEL(wait_signal)(const uint64_t* signal, uint32_t comparison, uint64_t value, uint64_t deadline_ns,
                        uint64_t* seen, gda_status* result) {
    *result = gda_wait_signal(signal, gda_comparison(comparison), value, deadline_ns, seen);
}
GDA_KERNEL(unheard)(gda_qp* qp, gda_mr local, gda_mr remote, uint32_t swap, gda_ticket* t) {
    t[0] = swap ? gda_masked_compare_swap<uint64_t>(qp, local, 0, remote, 0, 0, 0, 0, 0)
                : gda_signal(qp, remote, 0, 1, GDA_SIGNAL_ADD, GDA_UNSIGNALED);
}
GDA_KERNEL(flush)(gda_qp* qp, uint64_t deadline_ns, gda_status* result) { *result = gda_flush(qp, deadline_ns); }
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(SOURCE, target="host")


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


def golden(text: str) -> bytes:
    return bytes.fromhex(text).ljust(64, b"\xff")


DATA = "00000008 12345603 00000000 00000000 1122334455660100 55667788 00000000 00000008 11223344 0000aabbccdd0040"
ADDED = (
    "00000{:1x}12 12345604 00000008 00000000 1122334455660010 55667788 00000000"
    "0102030405060708 0000000000000000 00000008 99887766 0000ddeeff001000"
)
STORED = (
    "00000{:1x}08 12345603 00000008 00000000 1122334455660010 55667788 00000000"
    "80000008 0807060504030201 00000000"
)


@pytest.mark.parametrize(("operation", "text"), [(ADD, ADDED), (SET, STORED)])
def test_signal(k: Kernel, owned: bool, operation: int, text: str) -> None:
    queue, t = ToyQueue(owned=owned), np.zeros(1, np.uint64)
    k.signal[1, 1](queue, REMOTE, 0x10, 0x0102030405060708, operation, t)
    assert t[0] == 1
    assert queue.wqe(0) == golden(text.format(0))
    assert queue.send_counter == 1


@pytest.mark.parametrize(("operation", "text"), [(ADD, ADDED), (SET, STORED)])
def test_put_signal(k: Kernel, owned: bool, operation: int, text: str) -> None:
    """Two requests, the signal behind the data; only the signal completes, and its ticket is the operation's."""
    queue, t = ToyQueue(16, owned=owned), np.zeros(1, np.uint64)
    k.put_signal[1, 1](queue, REMOTE, 0x100, LOCAL, 0x40, 8, 0x10, 0x0102030405060708, operation, t)
    assert t[0] == 2
    assert queue.wqe(0) == golden(DATA)
    assert queue.wqe(1) == golden(text.format(1))
    assert queue.send_counter == 2


def test_put_signal_without_bytes(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(16, owned=owned), np.zeros(1, np.uint64)
    k.put_signal[1, 1](queue, REMOTE, 0x100, LOCAL, 0x40, 0, 0x10, 1, ADD, t)
    assert t[0] == 2
    assert queue.wqe(0) == golden("00000008 12345602 00000000 00000000 1122334455660100 55667788 00000000")


def test_pairs_of_a_warp_lie_side_by_side(k: Kernel) -> None:
    queue, t = ToyQueue(128), np.zeros(32, np.uint64)
    k.put_signal[1, 32](queue, REMOTE, 0x100, LOCAL, 0x40, 8, 0x10, 1, ADD, t)
    assert t.tolist() == list(range(2, 66, 2))
    controls = [formats.wqe_ctrl_seg.unpack(queue.wqe(i)[:16]) for i in range(64)]
    assert [c["opcode"] for c in controls] == [0x08, 0x12] * 32
    assert [c["wqe_index"] for c in controls] == list(range(64))


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_pairs_of_a_warp_in_a_small_ring(k: Kernel, depth: int) -> None:
    """As many lanes as fill half of it go at once; who finds no room is refused and leaves nothing."""
    queue, t = ToyQueue(depth, deadline_ns=5_000_000), np.zeros(32, np.uint64)
    k.put_signal[1, 32](queue, REMOTE, 0x100, LOCAL, 0x40, 8, 0x10, 1, ADD, t)
    assert sorted(int(x) for x in t if not int(x) & FAILED) == list(range(2, depth + 1, 2))
    assert queue.state["reserved"] == queue.state["ready"] == queue.send_counter == depth


@pytest.mark.parametrize("where", [(65529, 0, 8, 0), (0, 65529, 8, 0), (0, 0, 8, 65529), (0, 0, 65537, 0)])
def test_out_of_bounds(k: Kernel, owned: bool, where: tuple[int, int, int, int]) -> None:
    queue, t = ToyQueue(owned=owned), np.zeros(1, np.uint64)
    to, start, bytes, at = where
    k.put_signal[1, 1](queue, REMOTE, to, LOCAL, start, bytes, at, 1, ADD, t)
    assert formats.decode_status(int(t[0]) & ~FAILED)["code_name"] == "GDA_OUT_OF_BOUNDS"
    assert queue.state["reserved"] == 0


@pytest.mark.parametrize(
    ("comparison", "seen", "value", "holds"),
    [
        (REACHED, 5, 5, True),
        (REACHED, 6, 5, True),
        (REACHED, 4, 5, False),
        (REACHED, 0, (1 << 64) - 1, True),  # it went round
        (REACHED, (1 << 64) - 1, 0, False),
        (REACHED, 4, (1 << 64) - 3, True),
        (REACHED, TOP - 1, 0, True),  # as far ahead as can be told
        (REACHED, TOP, 0, False),
        (EQUAL, 5, 5, True),
        (EQUAL, 6, 5, False),
        (NOT_EQUAL, 6, 5, True),
        (NOT_EQUAL, 5, 5, False),
    ],
)
def test_comparisons(k: Kernel, comparison: int, seen: int, value: int, holds: bool) -> None:
    signal, result = np.array([seen], np.uint64), np.ones(1, np.uint64)
    k.test_signal[1, 1](signal, comparison, value, result)
    assert result[0] == (0 if holds else formats.GDA_TIMEOUT)
    last = np.zeros(1, np.uint64)
    k.wait_signal[1, 1](signal, comparison, value, 0, last, result)
    assert last[0] == seen
    assert result[0] == (0 if holds else (seen & ((1 << 56) - 1)) << 8 | formats.GDA_SIGNAL_TIMEOUT)


def test_a_wait_sees_a_signal_that_comes_later(k: Kernel) -> None:
    signal, last, result = np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.ones(1, np.uint64)
    launch = k.wait_signal.start[1, 1](signal, REACHED, 3, 20_000_000_000, last, result)
    for value in (1, 2, 7):
        assert not launch.done()
        signal[0] = value
    launch.wait(20)
    assert (result[0], last[0]) == (0, 7)


@pytest.mark.parametrize("swap", [0, 1])
def test_flush_waits_for_what_has_no_completion_of_its_own(k: Kernel, owned: bool, swap: int) -> None:
    """An unsignaled request, and one whose completion names the first of its two blocks: a NOP tells of both."""
    queue, t, result = ToyQueue(64, owned=owned), np.zeros(1, np.uint64), np.ones(1, np.uint64)
    k.unheard[1, 1](queue, LOCAL, REMOTE, swap, t)
    launch = k.flush.start[1, 1](queue, 20_000_000_000, result)
    while queue.send_counter != 2 + swap:
        assert not launch.done()
    assert formats.wqe_ctrl_seg.unpack(queue.wqe(1 + swap)[:16])["opcode"] == formats.MLX5_OPCODE_NOP
    queue.complete(1 + swap)
    launch.wait(20)
    assert result[0] == 0
    k.flush[1, 1](queue, 0, result)
    assert (result[0], queue.send_counter) == (0, 2 + swap), "a second one has nothing to do"


RELAXED = ToyMemory(1 << 16, rkey=0x55667788, address=REMOTE.address, flags=int(formats.GDA_MR_RELAXED))


@pytest.mark.parametrize("operation", [ADD, SET])
def test_a_signal_in_relaxed_memory_is_refused(k: Kernel, owned: bool, operation: int) -> None:
    """It could be seen before the data. Nothing is posted; strict memory at the same place is fine."""
    queue = ToyQueue(owned=owned)
    ticket = np.zeros(1, np.uint64)
    k.signal[1, 1](queue, RELAXED, 0, 1, operation, ticket)
    assert int(ticket[0]) & FAILED and int(ticket[0]) & 0xFF == formats.GDA_RELAXED_SIGNAL
    k.put_signal[1, 1](queue, RELAXED, 64, LOCAL, 0, 8, 0, 1, operation, ticket)
    assert int(ticket[0]) & FAILED and int(ticket[0]) & 0xFF == formats.GDA_RELAXED_SIGNAL
    k.put_signal[1, 1](queue, REMOTE, 64, LOCAL, 0, 8, 0, 1, operation, ticket)
    assert not int(ticket[0]) & FAILED


def test_what_checks_nothing_refuses_nothing(owned: bool) -> None:
    unchecked = Kernel("#define GDA_UNCHECKED\n" + SOURCE, target="host")
    ticket = np.zeros(1, np.uint64)
    unchecked.signal[1, 1](ToyQueue(owned=owned), RELAXED, 0, 1, SET, ticket)
    assert not int(ticket[0]) & FAILED
