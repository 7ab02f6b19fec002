# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/cqe.h: golden completions of mlx5dv.h, both ways, and their decoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("queue", "cqe.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_cqe(check: Callable[[Record], None], record: Record) -> None:
    check(record)


def test_decode_good() -> None:
    data = formats.cqe64.pack(
        opcode=formats.MLX5_CQE_REQ, sop_drop_qpn_opcode=formats.MLX5_OPCODE_RDMA_READ, qpn=0x48, wqe_counter=9, owner=1
    )
    assert formats.decode_cqe(data).splitlines()[0] == (
        "completion: request done, queue pair 0x48, work request 9, owner bit 1, it was: RDMA read, 0 bytes"
    )


@pytest.mark.parametrize("syndrome", formats.enums["cqe_syndrome"], ids=lambda s: s.name)
def test_decode_every_syndrome(syndrome: int) -> None:
    data = formats.err_cqe.pack(
        opcode=formats.MLX5_CQE_REQ_ERR, syndrome=syndrome, vendor_error_syndrome=0x88, s_wqe_opcode=8, qpn=0x48
    )
    meaning = formats.syndrome_meaning(syndrome)
    assert meaning.name == formats.enums["cqe_syndrome"](syndrome).name
    assert "unknown" not in meaning.words
    text = formats.decode_cqe(data)
    for words in (f"{meaning.words} ({syndrome:#04x}, vendor 0x88) on RDMA write", meaning.text, meaning.advice):
        assert words in text


def test_decode_every_opcode() -> None:
    for opcode in formats.enums["cqe_opcode"]:
        text = formats.decode_cqe(formats.cqe64.pack(opcode=opcode))
        assert "unknown completion" not in text, opcode.name


def test_decode_receive_error_names_no_request() -> None:
    data = formats.err_cqe.pack(opcode=formats.MLX5_CQE_RESP_ERR, syndrome=1, s_wqe_opcode=8)
    assert "local length error (0x01, vendor 0x00) on receive" in formats.decode_cqe(data)


def test_decode_poison_is_empty() -> None:
    assert formats.decode_cqe(b"\xff" * 64) == "completion: empty, not written by the NIC yet (owner bit 1)"


def test_decode_keeps_what_it_does_not_know() -> None:
    text = formats.decode_cqe(formats.err_cqe.pack(opcode=formats.MLX5_CQE_REQ_ERR, syndrome=0x99, s_wqe_opcode=0x77))
    assert "unknown syndrome (0x99" in text
    assert "syndrome = 0x99 (unknown)" in text
    assert "completion 0x9: unknown completion" in formats.decode_cqe(formats.cqe64.pack(opcode=9))


def test_decode_refuses_another_length() -> None:
    with pytest.raises(ArgumentError, match="format cqe64 has 64 bytes, the buffer 63"):
        formats.decode_cqe(bytes(63))


@given(data=st.binary(min_size=64, max_size=64))
def test_decoder_takes_whatever_lies_in_a_ring(data: bytes) -> None:
    assert formats.decode_cqe(data).startswith("completion")
