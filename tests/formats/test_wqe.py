# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/wqe.h: golden work requests of mlx5dv.h, both ways, and their decoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("queue", "wqe.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_wqe(check: Callable[[Record], None], record: Record) -> None:
    check(record)


def write(payload: bytes, opcode: int = formats.MLX5_OPCODE_RDMA_WRITE, **control: int) -> bytes:
    remote = formats.wqe_raddr_seg.pack(raddr=0x7F00_0000_1000, rkey=0x1234)
    ds = 2 + -(-len(payload) // 16)
    fields = {"opcode": opcode, "wqe_index": 5, "qp_or_sq": 0x48, "ds": ds, "ce": formats.CE_ALWAYS} | control
    return bytes(formats.wqe_ctrl_seg.pack(**fields) + remote + payload)


def pointer(bytes_: int) -> bytes:
    return bytes(formats.wqe_data_seg.pack(byte_count=bytes_, lkey=0xABCD, addr=0x7F00_DEAD_BEEF))


def test_decode_write() -> None:
    text = formats.decode_wqe(write(pointer(4096)), index=5)
    first = text.splitlines()[0]
    assert first == (
        "work request 5 of queue pair 0x48: RDMA write, remote address 0x7f0000001000 with rkey 0x1234, "
        "completion always"
    )
    for words in ("opcode = 0x8 MLX5_OPCODE_RDMA_WRITE", "byte_count = 0x1000", "lkey = 0xabcd", "+0x0c  de ad be ef"):
        assert words in text
    assert "stale" not in text
    assert "more bytes" not in text


def test_decode_says_that_the_index_is_stale() -> None:
    assert "wqe_index is 5 but it was read at 6" in formats.decode_wqe(write(pointer(8)), index=6 + (1 << 16))


def test_decode_several_pieces_and_inline_payload() -> None:
    inline = formats.wqe_inline_seg.pack(is_inline=1, byte_count=13) + b"hello, world!"
    text = formats.decode_wqe(write(pointer(8) + inline.ljust(32, b"\0") + pointer(24)))
    assert text.count("wqe_data_seg, 16 bytes") == 2
    assert f"payload: {b'hello, world!'.hex(' ', 4)}" in text


def test_decode_empty_write_has_no_data_segment() -> None:
    text = formats.decode_wqe(write(b"").ljust(64, b"\xff"))
    assert "wqe_data_seg" not in text
    assert "wqe_raddr_seg" in text


def test_decode_atomic() -> None:
    atomic = formats.wqe_atomic_seg.pack(swap_add=7, compare=9)
    text = formats.decode_wqe(write(atomic + pointer(8), opcode=formats.MLX5_OPCODE_ATOMIC_CS))
    assert "compare and swap" in text
    assert "swap_add = 7" in text
    assert "wqe_data_seg" in text


def test_decode_change_of_a_key() -> None:
    control = formats.wqe_ctrl_seg.pack(opcode=formats.MLX5_OPCODE_UMR, ds=12, imm=0x123400)
    umr = formats.wqe_umr_ctrl_seg.pack(is_inline=1, klm_octowords=4, mask_free=1)
    text = formats.decode_wqe(control + umr + formats.mkc.pack(len=8, umr_en=1) + pointer(8).ljust(64, b"\0"))
    for words in ("UMR", "klm_octowords = 4", "mask_free = 1", "umr_en = 1", "lkey = 0xabcd"):
        assert words in text
    assert "more bytes" not in text


def test_decode_keeps_what_it_does_not_know() -> None:
    text = formats.decode_wqe(write(pointer(8), opcode=0x77))
    assert "unknown opcode 0x77" in text
    assert "opcode = 0x77 (unknown)" in text
    assert f"32 more bytes: {write(pointer(8))[16:].hex(' ', 4)}" in text


def test_decode_says_what_the_nic_would_refuse() -> None:
    assert "ds is 0" in formats.decode_wqe(write(pointer(8), ds=0))
    assert "ds says 1008 bytes, only 48 are here" in formats.decode_wqe(write(pointer(8), ds=63))
    assert "wqe_raddr_seg is missing" in formats.decode_wqe(write(pointer(8), ds=1))


def test_decode_inline_longer_than_the_work_request() -> None:
    inline = formats.wqe_inline_seg.pack(is_inline=1, byte_count=100) + b"0123456789ab"
    assert "88 bytes of it lie past the end" in formats.decode_wqe(write(inline))


def test_reserved_bits_that_are_set_show() -> None:
    data = bytearray(write(pointer(8)))
    data[7] |= 0x80
    assert "reserved_at_38 = 2" in formats.decode_wqe(data)


def test_decode_refuses_half_a_segment() -> None:
    with pytest.raises(ArgumentError, match="at least 16 bytes, the buffer 8"):
        formats.decode_wqe(bytes(8))


@pytest.mark.parametrize("opcode", formats.enums["wqe_opcode"], ids=lambda o: o.name)
def test_every_opcode_has_words(opcode: int) -> None:
    assert "unknown" not in formats.decode_wqe(formats.wqe_ctrl_seg.pack(opcode=opcode, ds=1)).splitlines()[0]


@given(data=st.binary(min_size=16, max_size=1024), index=st.none() | st.integers(0, 1 << 64))
def test_decoder_takes_whatever_lies_in_a_ring(data: bytes, index: int | None) -> None:
    assert formats.decode_wqe(data, index=index).startswith("work request ")
