# SPDX-License-Identifier: Apache-2.0
"""Status words of a pool, in memory that only a test has pinned."""

from __future__ import annotations

import ctypes

import pytest

from gda.errors import UnavailableError
from gda.run import status_word
from gda.run.status_word import PinnedStatus, PinnedWords


def test_words_go_round_and_run_out() -> None:
    pinned: list[ctypes.Array[ctypes.c_char]] = []

    def pin(size: int) -> int:
        pinned.append(ctypes.create_string_buffer(b"\xff" * size, size))
        return ctypes.addressof(pinned[-1])

    words = PinnedWords(pin)
    held = [PinnedStatus(words) for _ in range(status_word.AT_ONCE)]
    assert len({word.address for word in held}) == status_word.AT_ONCE
    with pytest.raises(UnavailableError, match=r"all status words are in use\n.*drop Launch objects"):
        PinnedStatus(words)
    address = held.pop().address
    ctypes.c_uint64.from_address(address).value = 9
    again = PinnedStatus(words)
    assert again.address == again.argument.value == address and again.read() == 0
    ctypes.c_uint64.from_address(address).value = 9
    assert again.read() == 9
    again.keep()  # for ever; others still find some
    del again
    assert len(pinned) == 2 and address not in words.free
    assert PinnedStatus(words).read() == 0


def test_a_word_belongs_to_its_argument() -> None:
    argument = status_word.StatusWord().argument
    assert argument.value is not None
    assert ctypes.c_uint64.from_address(argument.value).value == 0
    assert argument.owner.address == argument.value
