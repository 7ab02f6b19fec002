# SPDX-License-Identifier: Apache-2.0
"""A record that is not the one due is refused, with its rank and phase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gda.comm import record
from gda.comm.record import Record
from gda.errors import BootstrapError

WORLD = bytes(range(16))
GOOD = Record(record.DATA, WORLD, rank=2, size=4, phase=7, payload=b"something", call="window")
DUE = {"kind": record.DATA, "world": WORLD, "rank": 2, "size": 4, "phase": 7, "call": "window"}


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_there_and_back(payload: bytes, rank: int, phase: int) -> None:
    one = Record(record.ANSWER, WORLD, rank, 2**32 - 1, phase, payload)
    assert record.read(one.to_bytes(), phase, "rank 0") == one


def test_the_one_due_passes() -> None:
    record.check(record.read(GOOD.to_bytes(), 7, "rank 2"), **DUE)


@pytest.mark.parametrize(
    "other, words",
    [
        ({"size": 5}, "a world of 5 ranks, here there are 4"), ({"rank": 1}, "is of rank 1"),
        ({"world": bytes(16)}, "of another world"), ({"phase": 6}, "a late or repeated record, of phase 6"),
        ({"phase": 9}, "an early record, of phase 9"), ({"kind": record.ANSWER}, "a record where an answer is due"),
        ({"call": "barrier"}, r"it makes another call \(barrier\) than this rank \(window\)"),
    ],
)  # fmt: skip
def test_another_is_refused(other: dict[str, object], words: str) -> None:
    due = DUE | ({"kind": other["kind"]} if "kind" in other else {})
    sent = Record(**{**GOOD.__dict__, **{k: v for k, v in other.items() if k != "kind"}})
    with pytest.raises(BootstrapError, match=words) as caught:
        record.check(sent, **due)
    assert caught.value.rank == 2 and caught.value.phase == 7
    assert "phase 7, rank 2" in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 3, 4, record.HEADER_BYTES, len(GOOD.to_bytes()) - 1])
def test_a_cut_one_is_refused(length: int) -> None:
    with pytest.raises(BootstrapError, match="phase 7: the record of rank 2 is cut") as caught:
        record.read(GOOD.to_bytes()[:length], 7, "rank 2")
    assert caught.value.phase == 7


def test_a_longer_one_is_refused() -> None:
    with pytest.raises(BootstrapError, match="has more behind it"):
        record.read(GOOD.to_bytes() + b"x", 7, "rank 2")


def test_a_changed_one_is_refused() -> None:
    data = bytearray(GOOD.to_bytes())
    data[-6] ^= 1
    with pytest.raises(BootstrapError, match="changed on the way"):
        record.read(bytes(data), 7, "rank 2")


@given(st.binary(max_size=100))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BootstrapError):
        record.read(data, 0, "somebody")


@given(st.integers(0, len(GOOD.to_bytes()) - 1), st.integers(1, 255))
def test_no_changed_byte_passes(at: int, change: int) -> None:
    data = bytearray(GOOD.to_bytes())
    data[at] ^= change
    with pytest.raises(BootstrapError):
        record.check(record.read(bytes(data), 7, "rank 2"), **DUE)


@given(st.data())
def test_pieces_of_records_put_together_pass_only_as_the_whole(data: st.DataObject) -> None:
    """What a stream that lost, repeated or mixed bytes would look like."""
    others = [GOOD.to_bytes(), Record(record.ANSWER, WORLD, 1, 4, 6, b"other").to_bytes()]
    text = b""
    for _ in range(data.draw(st.integers(1, 4))):
        one = data.draw(st.sampled_from(others))
        first, last = sorted(data.draw(st.integers(0, len(one))) for _ in range(2))
        text += one[first:last]
    if text in others:
        assert record.read(text, 7, "rank 2").to_bytes() == text
    else:
        with pytest.raises(BootstrapError):
            record.read(text, 7, "rank 2")
