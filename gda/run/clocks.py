# SPDX-License-Identifier: Apache-2.0
"""Where another clock lies on CLOCK_MONOTONIC: pairs of moments. Called by the GPU target when a trace begins and ends.

A GPU's clock is read by a kernel that answers words: the CPU asks, the kernel reads globaltimer and answers, and of
many such turns the shortest one counts, whose error is at most half of it (about a microsecond over PCIe).
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterable

from gda.errors import DeadlineError
from gda.once import once
from gda.run.arguments import OwnedAddress
from gda.run.executor import Kernel

__all__ = ["ANSWER", "DEADLINE_NS", "TURNS", "WAIT_S", "Turn", "ask", "closest", "gpu_moment"]

# Before asking and after the answer (monotonic ns), and what the other clock said in between.
Turn = tuple[int, int, int]

TURNS = 32
DEADLINE_NS = 50_000_000
WAIT_S = 1.0
ANSWER = r"""
#include <gda/gda.h>

// words[0]: the number of the question; words[1]: of the answer; words[2]: the clock. Other memory than a queue's: the
// CPU on the other side is the observer, hence volatile and the system's fence.
GDA_KERNEL(gda_kernel_clock)(uint64_t* words, uint32_t turns, uint64_t deadline_ns) {
    volatile uint64_t* w = words;
    uint64_t give_up_at = gda::target::clock_ns() + deadline_ns;
    for (uint32_t turn = 1; turn <= turns; ++turn) {
        while (w[0] < turn) {
            if (gda::target::clock_ns() >= give_up_at) return;
            gda::target::idle();
        }
        w[2] = gda::target::clock_ns();
        __threadfence_system();
        w[1] = turn;
    }
}
"""


def closest(turns: Iterable[Turn]) -> tuple[int, int] | None:
    """The pair (other clock, monotonic ns) of the shortest turn; None when there was none."""
    best: Turn | None = None
    for turn in turns:
        if best is None or turn[2] - turn[0] < best[2] - best[0]:
            best = turn
    return None if best is None else (best[1], (best[0] + best[2]) // 2)


def ask(words: ctypes.Array[ctypes.c_uint64], turns: int = TURNS, deadline_ns: int = DEADLINE_NS) -> list[Turn]:
    """Ask a running kernel by the three words, until it no longer answers."""
    found: list[Turn] = []
    give_up_at = time.monotonic_ns() + deadline_ns
    for turn in range(1, turns + 1):
        before = time.monotonic_ns()
        words[0] = turn
        while words[1] < turn:
            if time.monotonic_ns() >= give_up_at:
                return found
        found.append((before, words[2], time.monotonic_ns()))
    return found


def gpu_moment() -> tuple[int, int]:
    """The same for globaltimer of the current GPU; (0, 0) when no kernel could run there in time."""
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(24)
    words = (ctypes.c_uint64 * 3).from_address(memory.ptr)
    words[0] = words[1] = words[2] = 0
    argument = OwnedAddress(ctypes.addressof(words), memory)
    launch = clock_kernel("gpu").gda_kernel_clock.start[1, 1](argument, TURNS, DEADLINE_NS)
    pair = closest(ask(words))
    with contextlib.suppress(DeadlineError):  # kernels that wait may fill the GPU: then it runs after them
        launch.wait(deadline_s=WAIT_S)
    return pair or (0, 0)


@once
def clock_kernel(target: str) -> Kernel:
    """The kernel that answers."""
    return Kernel(ANSWER, target=target, trace=False)
