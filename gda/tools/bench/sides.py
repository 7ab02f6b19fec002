# SPDX-License-Identifier: Apache-2.0
"""The two that can post a put: a kernel, and the CPU. Used by all measurements of puts that are waited for; both write
memory of the same NIC.

A side runs rounds: `burst` puts, then a wait for the last. The kernel's clock is the target's own, the CPU's is
Python's, which is what a Python program would see: its put is a prepared batch (docs/cpu_posting.md).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from gda import _verbs
from gda.errors import DeadlineError
from gda.nic import WORK_REQUEST, Batch, Memory, Nic
from gda.nic.queue import connect
from gda.run import Kernel

__all__ = ["CpuSide", "KernelSide", "Rounds", "Side", "summary"]

KERNELS = "#include <gda/kernels/bench.h>\n"
DEADLINE_NS = 5_000_000_000
MOST_ROUNDS = 4096
_DEPTH = 4096


@dataclass(frozen=True)
class Rounds:
    """Times of `rounds` rounds of `burst` puts of `bytes` bytes, in nanoseconds. `beside`: what else ran, or ""."""

    who: str
    beside: str
    bytes: int
    burst: int
    rounds: int
    median_ns: float
    p99_ns: float
    fastest_ns: float


def summary(ns: np.ndarray) -> tuple[int, float, float, float]:
    """Of each round's time: how many, the median, the 99th percentile, the fastest."""
    return len(ns), float(np.median(ns)), float(np.percentile(ns, 99)), float(ns.min())


class Side(ABC):
    """Who posts, with memory of its own: `pieces` many."""

    who: str
    most_rounds = MOST_ROUNDS  # of one call
    blocks = 0  # of a kernel on a GPU: they hold multiprocessors while they run

    def __init__(self, nic: Nic, most_bytes: int, placement: str, pieces: int = 1) -> None:
        self._open = ExitStack()
        self.source, self.target = (self._keep(nic.allocate(most_bytes * pieces, placement=placement)) for _ in "st")

    def _keep(self, thing: Any) -> Any:
        return self._open.enter_context(thing)

    def requests(self, size: int, burst: int) -> np.ndarray:
        """Rows for the CPU to post: a burst from source to target, of which the last one is signaled."""
        rows = np.zeros(burst, WORK_REQUEST)
        rows["local_addr"], rows["remote_addr"] = self.source.address, self.target.address
        rows["length"], rows["lkey"], rows["rkey"] = size, self.source.lkey, self.target.rkey
        rows["send_flags"][-1] = _verbs.IBV_SEND_SIGNALED
        return rows

    @abstractmethod
    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """Nanoseconds of each round of `burst` puts of `size` bytes, int64[rounds]."""

    def close(self) -> None:
        """Give everything back."""
        self._open.close()


class KernelSide(Side):
    """A kernel of one thread."""

    who = "kernel"

    def __init__(self, nic: Nic, most_bytes: int, placement: str, queues: str, depth: int = _DEPTH) -> None:
        super().__init__(nic, most_bytes, placement)
        self.kernel = Kernel(KERNELS)
        self.blocks = 1 if self.kernel.target == "gpu" else 0
        self.queue, second = nic.loopback_pair(placement=queues, depth=depth)
        self._keep(self.queue)
        self._keep(second)
        self.times: Memory = self._keep(nic.allocate(8 * MOST_ROUNDS))

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """Each round, by the kernel's clock."""
        self.kernel.gda_kernel_put_times[1, 1](
            self.queue, self.target, self.source, size, rounds, burst, DEADLINE_NS, self.times
        )
        return np.frombuffer(self.times.read(0, 8 * rounds), dtype=np.int64).copy()


class CpuSide(Side):
    """Python on one CPU thread, by `HostQueuePair.post` of a batch built before."""

    who = "CPU"

    def __init__(self, nic: Nic, most_bytes: int, placement: str) -> None:
        super().__init__(nic, most_bytes, placement)
        self.queue = self._keep(nic.host_queue_pair(depth=1024))
        connect(self.queue, self._keep(nic.host_queue_pair(depth=64)))
        self._batches: dict[tuple[int, int], Batch] = {}

    def _batch(self, size: int, burst: int) -> Batch:
        if (size, burst) not in self._batches:
            self._batches[size, burst] = self.queue.prepare(self.requests(size, burst))
        return self._batches[size, burst]

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """Each round, by time.perf_counter_ns. Between polls other threads may run."""
        batch, post, poll, now = self._batch(size, burst), self.queue.post, self.queue.poll, time.perf_counter_ns
        times = np.zeros(rounds, np.int64)
        for number in range(rounds):
            start = now()
            post(batch)
            polls = 0
            while not (done := poll(1)):
                polls += 1
                if polls % 1000 == 0:
                    time.sleep(0)
                    if now() - start > DEADLINE_NS:
                        raise DeadlineError(f"{burst} puts of {size} bytes did not complete within 5 s")
            times[number] = now() - start
            if done[0].status:
                self.queue.wait(1)  # says which request failed and why
        return times
