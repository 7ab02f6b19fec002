# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/doorbell.h: golden doorbells and records as libmlx5 writes them, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gda import formats
from gda.errors import ArgumentError

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("queue", "doorbell.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_doorbell(check: Callable[[Record], None], record: Record) -> None:
    check(record)


def test_decode() -> None:
    value = formats.send_doorbell.pack(wqe_index=5, opcode=8, qpn=0x48, ds=3)
    first = formats.decode_doorbell(value).splitlines()[0]
    assert first == "doorbell of queue pair 0x48: work request 5, RDMA write of 3 segments, is the last one"
    value = formats.send_doorbell.pack(wqe_index=6, qpn=0x48)
    first = formats.decode_doorbell(value).splitlines()[0]
    assert first == "doorbell of queue pair 0x48: work requests below index 6 are there"


def test_completion_shows_its_last_dword_also_when_it_is_all_zero() -> None:
    assert "opcode = 0x0 MLX5_CQE_REQ" in formats.decode_cqe(bytes(64))


def test_doorbell_is_the_start_of_a_work_request() -> None:
    request = formats.wqe_ctrl_seg.pack(wqe_index=5, opcode=8, qp_or_sq=0x48, ds=3, ce=2)
    assert formats.send_doorbell.unpack(request[: formats.send_doorbell.bytes]) == {
        "opmod": 0, "wqe_index": 5, "opcode": 8, "qpn": 0x48, "ds": 3,
    }  # fmt: skip


def test_decode_refuses_another_length() -> None:
    with pytest.raises(ArgumentError, match="format send_doorbell has 8 bytes, the buffer 4"):
        formats.decode_doorbell(bytes(4))
