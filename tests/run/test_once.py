# SPDX-License-Identifier: Apache-2.0
"""What a process has one of is made once, also when threads ask for it together."""

from __future__ import annotations

import threading
import time

import pytest

import gda
from gda.comm.kernels import kernels_of, made
from gda.once import once


def test_threads_that_ask_together_get_the_same_one() -> None:
    made: list[int] = []

    @once
    def slow(number: int) -> object:
        made.append(number)
        time.sleep(0.05)
        return object()

    got: list[object] = []
    askers = [threading.Thread(target=lambda i=i: got.append(slow(i % 2))) for i in range(6)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(10)
    assert sorted(made) == [0, 1] and slow.made == 2
    assert len({id(one) for one in got}) == 2 and len(got) == 6
    slow.forget()
    assert slow(0) not in got


def test_a_failure_is_not_kept() -> None:
    tries: list[int] = []

    @once
    def second_time() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        return 7

    with pytest.raises(OSError, match="not yet"):
        second_time()
    assert [second_time(), second_time(), len(tries)] == [7, 7, 2]


def test_two_ranks_that_launch_at_once_share_the_module_of_the_verbs() -> None:
    """A module that is loaded while the other rank's kernel waits on the GPU is loaded after that kernel's deadline."""
    made.forget()
    got: list[gda.Kernel] = []
    ranks = [threading.Thread(target=lambda: got.append(kernels_of("comm"))) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(100)
    assert len(got) == 2 and got[0] is got[1]
