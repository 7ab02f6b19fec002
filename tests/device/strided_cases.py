# SPDX-License-Identifier: Apache-2.0
"""Transfers in pieces (cuda/gda/strided.h) on a NIC, of a thread, a warp, a block and owners: bytes equal NumPy's.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU); fixtures: operation_cases.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda.errors import OutOfBoundsError

from .operation_cases import LIMIT_S, Allocate

FORMS = ("thread", "warp", "block")
STRIDED_KERNELS = r"""
#include <gda/gda.h>
// form: 0 one thread, 1 a warp, 2 a block.
GDA_KERNEL(move)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, uint64_t dst_stride, gda_mr src, uint64_t src_offset,
                 uint64_t src_stride, uint64_t count, uint64_t bytes, uint32_t form, uint32_t get, gda_status* status) {
    gda_ticket t;
#define GO(NAME)                                                                                          \
    (get ? gda_get_strided##NAME(qp, dst, dst_offset, dst_stride, src, src_offset, src_stride, count, bytes) \
         : gda_put_strided##NAME(qp, dst, dst_offset, dst_stride, src, src_offset, src_stride, count, bytes))
    if (form == 0) t = GO();
    else if (form == 1) t = GO(_warp);
    else t = GO(_block);
    gda_report(status, gda_wait(qp, t, LIMIT));
}
// Each lane of a warp that owns the queue moves a column of its own.
template <class Owner>
GDA_DEVICE void column(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t rows, gda_status* status) {
    Owner queue(qp);
    uint64_t at = 8 * threadIdx.x, row = 8 * blockDim.x;
    gda_ticket t = queue.put_strided(dst, at, row, src, at, row, rows + threadIdx.x % 3, 8);
    gda_status s = queue.wait(t, LIMIT);
    queue.close();
    gda_report(status, s);
}
GDA_KERNEL(owner_thread)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t rows, gda_status* status) {
    column<gda_owner>(qp, dst, src, rows, status);
}
GDA_KERNEL(owner_warp)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t rows, gda_status* status) {
    column<gda_warp_owner>(qp, dst, src, rows, status);
}
"""


@pytest.fixture(scope="module")
def strided(target: str) -> gda.Kernel:
    kernels = gda.Kernel(STRIDED_KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


Sides = tuple[tuple[int, int], tuple[int, int]]  # offset and stride in dst, in src


def expected(dst: gda.Memory, src: gda.Memory, sides: Sides, count: int, length: int) -> bytes:
    """What is in dst when all pieces have come."""
    data, source = bytearray(dst.read(0, dst.bytes)), src.read(0, src.bytes)
    for i in range(count):
        to, of = (offset + i * stride for offset, stride in sides)
        data[to : to + length] = source[of : of + length]
    return bytes(data)


@pytest.mark.parametrize("get", [0, 1], ids=["put", "get"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "to, of, count, bytes",
    [
        ((0, 16), (8, 8), 200, 8),  # more than the ring holds
        ((5, 100), (0, 100), 3, 100),  # touches on both sides: one message
        ((0, 64), (7, 0), 33, 20),  # the same piece again and again
        ((3, 9), (1, 7), 1, 5),
        ((0, 8), (0, 8), 0, 8),
        ((0, 8), (0, 8), 4, 0),
    ],
)  # fmt: skip
def test_pieces(
    *, allocate: Allocate, strided: gda.Kernel, queue: gda.QueuePair, to: tuple[int, int], of: tuple[int, int],
    count: int, bytes: int, form: str, get: int,
) -> None:  # fmt: skip
    src, dst = allocate(4096), allocate(4096)
    src.write(0, np.random.default_rng(count).bytes(4096))
    dst.write(0, b"\xee" * 4096)
    after = expected(dst, src, (to, of), count, bytes)
    strided.move[1, 1 if form == "thread" else 32](queue, dst, *to, src, *of, count, bytes, FORMS.index(form), get)
    assert dst.read(0, 4096) == after
    pieces = count if bytes and count and not to[1] == of[1] == bytes else 1
    assert queue.read_handle()["done"] == pieces


@pytest.mark.parametrize("form", FORMS)
def test_a_piece_longer_than_a_message_is_several(
    allocate: Allocate, nic: gda.Nic, strided: gda.Kernel, form: str
) -> None:
    a, _ = nic.loopback_pair(depth=64)
    a._handle._constants["max_message_bytes"] = 100
    a._handle.update()
    src, dst = allocate(9000), allocate(9000)
    src.write(0, np.random.default_rng(1).bytes(9000))
    after = expected(dst, src, ((10, 1000), (0, 950)), 7, 950)
    strided.move[1, 32 if form != "thread" else 1](a, dst, 10, 1000, src, 0, 950, 7, 950, FORMS.index(form), 0)
    assert dst.read(0, 9000) == after
    assert a.read_handle()["done"] == 7 * 10


@pytest.mark.parametrize(
    "there, here, count, bytes",
    [
        ((0, 100), (0, 8), 11, 8),
        ((1, 8), (0, 8), 125, 8),
        ((0, 8), (996, 8), 2, 5),
        ((0, 2**63), (0, 0), 3, 8),  # 2 * 2^63 is 0 again
        ((0, 0), (0, 1), 2**64 - 1, 1),
    ],
)  # fmt: skip
def test_a_piece_behind_the_end_is_refused_before_any_is_moved(
    *, allocate: Allocate, strided: gda.Kernel, queue: gda.QueuePair, there: tuple[int, int], here: tuple[int, int],
    count: int, bytes: int,
) -> None:  # fmt: skip
    src, dst = allocate(1000), allocate(1000)
    src.write(0, b"\xaa" * 1000)
    for form in range(3):
        for get in range(2):
            for sides in ((there, here), (here, there)):
                with pytest.raises(OutOfBoundsError):
                    strided.move[1, 32 if form else 1](queue, dst, *sides[0], src, *sides[1], count, bytes, form, get)
    assert not any(dst.read(0, 1000)) and queue.read_handle()["reserved"] == 0


@pytest.mark.parametrize("owner, lanes", [("owner_thread", 1), ("owner_warp", 32)])
def test_owners_move_columns(
    *, allocate: Allocate, strided: gda.Kernel, owned_queue: gda.QueuePair, owner: str, lanes: int
) -> None:
    src, dst = allocate(8 * lanes * 7), allocate(8 * lanes * 7)
    src.write(0, np.random.default_rng(2).bytes(8 * lanes * 7))
    strided[owner][1, lanes](owned_queue, dst, src, 5)
    given, got = (np.frombuffer(memory.read(0, 8 * lanes * 7), np.uint64).reshape(7, lanes) for memory in (src, dst))
    rows = np.arange(7)[:, None] < 5 + np.arange(lanes) % 3
    assert (got == np.where(rows, given, 0)).all()
