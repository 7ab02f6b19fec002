# SPDX-License-Identifier: Apache-2.0
"""Another clock on the monotonic one: with a clock that is made up, with a kernel that answers, and on a GPU."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

from gda.run import clocks
from gda.run.arguments import OwnedAddress
from gda.tools.trace.gather import nanoseconds


def test_the_shortest_turn_counts() -> None:
    # A clock 1,000 ahead; answers take 400, 60 and 5,000 ns, all read in the middle but the last.
    turns = [(100, 1_300, 500), (600, 1_630, 660), (700, 1_800, 5_700)]
    assert clocks.closest(turns) == (1_630, 630)
    assert clocks.closest([]) is None


def test_times_lie_on_the_line_through_two_moments() -> None:
    """A clock that runs 20 parts in a million too fast and has run for weeks: no event is off by more than one."""
    start, began = 3 << 52, 1_000_000
    true = np.arange(0, 10_000_000_000, 999_999_937)
    times = (start + np.round(true * 1.00002)).astype(np.uint64)
    moments = [(start, began), (start + 5_000_100_000, began + 5_000_000_000)]
    found, clock = nanoseconds(times, moments)
    assert np.abs(found - (began + true)).max() <= 1
    assert clock["rate"] == pytest.approx(1 / 1.00002)


def test_moments_that_could_not_be_read_do_not_count() -> None:
    times = np.array([5, 15], np.uint64)
    assert nanoseconds(times, [(0, 0), (5, 105)])[0].tolist() == [105, 115]
    assert nanoseconds(times, [(0, 0)])[0].tolist() == [5, 15]
    assert nanoseconds(times, [(5, 105), (5, 105)])[0].tolist() == [105, 115]


def answer(words: ctypes.Array[ctypes.c_uint64], target: str, owner: object, deadline_ns: int) -> list[clocks.Turn]:
    kernel = clocks.clock_kernel(target)
    launch = kernel.gda_kernel_clock.start[1, 1](OwnedAddress(ctypes.addressof(words), owner), 8, deadline_ns)
    turns = clocks.ask(words, 8, 10_000_000_000)
    launch.wait()
    return turns


def test_a_kernel_answers_with_its_clock() -> None:
    """On the CPU its clock is the monotonic one: so it lies between question and answer."""
    words = (ctypes.c_uint64 * 3)()
    turns = answer(words, "host", words, 10_000_000_000)
    assert len(turns) == 8
    assert all(before <= clock <= after for before, clock, after in turns)


def test_a_kernel_that_is_not_asked_ends() -> None:
    words = (ctypes.c_uint64 * 3)()
    launch = clocks.clock_kernel("host").gda_kernel_clock.start[1, 1](
        OwnedAddress(ctypes.addressof(words), words), 8, 1_000_000
    )
    launch.wait()
    assert clocks.ask(words, 8, 1_000_000) == []


@pytest.mark.gpu
def test_a_gpus_clock_runs_as_the_cpus() -> None:
    first = clocks.gpu_moment()
    time.sleep(0.05)
    last = clocks.gpu_moment()
    assert first != (0, 0)
    assert last != (0, 0)
    assert (last[0] - first[0]) == pytest.approx(last[1] - first[1], abs=20_000)
