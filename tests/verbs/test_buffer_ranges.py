# SPDX-License-Identifier: Apache-2.0
"""A tensor somewhere inside a larger allocation, registered as a GPU's memory is: by dma-buf, offset and address.

A memfd stands for the dma-buf. A write to the tensor's address must change its bytes and no other, whatever pages the
export had; a registration with an offset that does not belong to the address would pass and write elsewhere.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest
from connected import RIGHTS, Pair, make_pair, poll

from gda import _verbs
from gda._verbs import SendWR
from gda.errors import VerbsError
from gda.nic.placement import page_range

ALLOCATION, TENSOR, BYTES = 4 << 20, 0x12C200, 0x8000
BASE = 0x7F00_0000_0000  # where the GPU would see the allocation


class Allocation:
    """4 MiB that a memfd holds."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("allocation", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, ALLOCATION)
        self.pages = mmap.mmap(self.fd, ALLOCATION)

    @property
    def bytes(self) -> np.ndarray:
        return np.frombuffer(self.pages, np.uint8)


@pytest.fixture
def allocation() -> Iterator[Allocation]:
    allocation = Allocation()
    yield allocation
    os.close(allocation.fd)


@pytest.fixture
def rc(context, pd):
    cqs = [_verbs.ibv_create_cq(context, 64) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    pair.source[:] = 0xA5
    yield pair
    pair.close()
    for cq in cqs:
        cq.close()


def write(pair: Pair, software, region: _verbs.MR, address: int, bytes: int = BYTES) -> _verbs.WC:
    request = SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(bytes), send_flags=_verbs.IBV_SEND_SIGNALED,
        remote_addr=address, rkey=region.rkey,
    )  # fmt: skip
    _verbs.ibv_post_send(pair.a, request)
    return poll(pair.a.send_cq, software)[0]


@pytest.mark.parametrize(
    ("page", "exported"),
    [(4096, (0x12C000, 0x9000, 0x200)), (65536, (0x120000, 0x20000, 0xC200))],
    ids=["4 KiB", "64 KiB"],
)
def test_a_write_changes_the_tensor_and_nothing_else(pd, rc, software, page, exported):
    """Case C9: the export begins on a page, the region at the tensor's place in it."""
    start, length, inside = page_range(TENSOR, BYTES, page)
    assert (start, length, inside) == exported
    whole = os.memfd_create("export", os.MFD_ALLOW_SEALING)  # of that range alone, as the driver exports it
    os.ftruncate(whole, length)
    with _verbs.ibv_reg_dmabuf_mr(pd, inside, BYTES, BASE + TENSOR, whole, RIGHTS) as region:
        assert write(rc, software, region, BASE + TENSOR).status == 0
        seen = np.frombuffer(mmap.mmap(whole, length), np.uint8)
        assert (seen[inside : inside + BYTES] == 0xA5).all()
        assert not seen[:inside].any() and not seen[inside + BYTES :].any()
    os.close(whole)


def test_an_offset_of_zero_would_change_other_bytes(pd, rc, allocation, software):
    """The fault that the case is about: it registers, it completes, and it is the wrong memory."""
    with _verbs.ibv_reg_dmabuf_mr(pd, 0x12C000, BYTES, BASE + 0x12C000, allocation.fd, RIGHTS) as region:
        assert write(rc, software, region, BASE + 0x12C000).status == 0
    assert (allocation.bytes[0x12C000 : 0x12C000 + BYTES] == 0xA5).all()
    assert not allocation.bytes[0x12C000 + BYTES :].any(), "the tensor's last 0x200 bytes are untouched"


def test_address_and_offset_must_agree_within_a_page(pd, rc, allocation, software):
    with _verbs.ibv_reg_dmabuf_mr(pd, TENSOR, BYTES, BASE + TENSOR, allocation.fd, RIGHTS) as region:
        assert write(rc, software, region, BASE + TENSOR).status == 0
    changed = np.flatnonzero(allocation.bytes)
    assert (changed[0], changed[-1], len(changed)) == (TENSOR, TENSOR + BYTES - 1, BYTES)
    with pytest.raises(VerbsError, match=r"offset=0x12c200, length=32768, iova=0x0") as caught:
        _verbs.ibv_reg_dmabuf_mr(pd, TENSOR, BYTES, 0, allocation.fd, RIGHTS)
    assert caught.value.errno == 22
    assert "same offset within a page" in caught.value.advice


def test_a_region_never_reaches_less_than_it_was_asked_for(pd, rc, software):
    """Case C9, three segments of 2 MiB: a region of 5 MiB takes a write at 3 MiB, or it is refused; never 2 MiB."""
    fd = os.memfd_create("segments", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 6 << 20)
    pages = mmap.mmap(fd, 6 << 20)
    with _verbs.ibv_reg_dmabuf_mr(pd, 0, 5 << 20, BASE, fd, RIGHTS) as region:
        assert write(rc, software, region, BASE + (3 << 20), 4096).status == 0
        seen = np.frombuffer(pages, np.uint8)
        assert (seen[3 << 20 :][:4096] == 0xA5).all() and seen.sum() == 4096 * 0xA5
    with pytest.raises(VerbsError):
        _verbs.ibv_reg_dmabuf_mr(pd, 0, 7 << 20, BASE, fd, RIGHTS)
    os.close(fd)
