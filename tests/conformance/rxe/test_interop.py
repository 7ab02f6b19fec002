# SPDX-License-Identifier: Apache-2.0
"""What interop.py and streams.py try, and how they judge what arrived. Needs no guest: `make conformance` boots one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from . import streams
from .interop import COMBINATIONS, Combination, check_grh


def test_combinations_are_told_apart() -> None:
    names = [str(c) for c in COMBINATIONS]
    assert len(set(names)) == len(names)
    assert {c.service for c in COMBINATIONS if c.network == "IPv6"} == {"RC", "UC", "UD"}
    assert {c.service for c in COMBINATIONS if c.loss} == {"RC", "UC", "UD"}


def test_a_grh_of_somebody_else_is_noticed() -> None:
    datagram = Combination("SEND", "kernel", "UD", "IPv6")
    ends = bytes.fromhex("fd77" + "00" * 13 + "02" + "fd77" + "00" * 13 + "01")
    check_grh(datagram, b"\x60" + bytes(7) + ends)
    check_grh(Combination("SEND", "software", "UD"), bytes(20) + b"\x45" + bytes(11) + b"\x0a\x4d\0\1\x0a\x4d\0\2")
    with pytest.raises(AssertionError, match="GRH"):
        check_grh(datagram, b"\x60" + bytes(7) + ends[16:] + ends[:16])


def remote(**answers: Any) -> Any:
    return SimpleNamespace(**{name: lambda *_, value=value, **__: value for name, value in answers.items()})


WRITES, SENDS = (Combination(verb, "kernel", "UC", loss=True) for verb in ("RDMA_WRITE", "SEND"))


@pytest.mark.parametrize("letters", ["0=", "=0=", "=!", "!"])
def test_a_hole_or_a_wrong_byte_in_a_write_is_noticed(letters: str) -> None:
    with pytest.raises(AssertionError, match="packets of message 1"):
        streams._judge_writes(WRITES, remote(packets=["=", letters]), [], 0)
    assert streams._judge_writes(WRITES, remote(packets=["=", "=0", "00", "=="]), [], 0) == ([0, 3], streams.COUNT)


def test_the_kernel_is_deaf_after_a_write_that_was_cut_short() -> None:
    to_kernel = Combination("RDMA_WRITE", "software", "UC", loss=True)
    assert streams._judge_writes(to_kernel, remote(packets=["=", "00", "=0", "0"]), [], 0) == ([0], 2)
    with pytest.raises(AssertionError, match="hears after message 1"):
        streams._judge_writes(to_kernel, remote(packets=["=", "=0", "="]), [], 0)


@pytest.mark.parametrize(
    ("found", "sizes", "why"),
    [
        ([0, -1], [8, 1024], "holds no message"),
        ([0, 0], [8, 8], "twice or out of order"),
        ([1, 0], [1024, 8], "twice or out of order"),
        ([0, 1], [8, 1025], "message 1 arrived with 1025 bytes"),
    ],
)
def test_a_wrong_message_in_a_receive_is_noticed(found: list[int], sizes: list[int], why: str) -> None:
    told = [{"wr_id": i, "bytes": size} for i, size in enumerate(sizes)]
    with pytest.raises(AssertionError, match=why):
        streams._judge_sends(SENDS, remote(sources=found), told, 0)
