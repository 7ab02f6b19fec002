# SPDX-License-Identifier: Apache-2.0
"""One put by a kernel, split into its steps: what of it is the library's, what the NIC's.

Used by `python -m gda bench latency`. Each step ends with a reading of the kernel's clock, which on a GPU advances in
steps of its own (32 ns on recent ones): hence means beside medians, over the fastest 99 % since one interruption of a
processor would outweigh all puts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gda import notes
from gda.nic import Nic
from gda.run import Kernel
from gda.tools import trace
from gda.tools.bench.sides import DEADLINE_NS

__all__ = ["Stage", "Step", "measure_stages", "measure_steps"]

PUTS = "#include <gda/kernels/bench.h>\n"
KERNELS = "#include <gda/kernels/steps.h>\n"
STEPS = ("build", "barrier", "ring", "nic", "look", "clock")  # enum put_steps
_WORDS = {
    "build": "work request built in its slot",
    "barrier": "barrier before the {}",
    "ring": "record, barrier, doorbell",
    "nic": "NIC, until the look that finds it",
    "look": "that look at the completions",
    "clock": "the clock itself, in each step",
}
_ROUNDS, _WARM = 1000, 50


@dataclass(frozen=True)
class Step:
    """Nanoseconds of one step over `rounds` puts, with a doorbell record or without."""

    step: str
    what: str
    record: bool
    rounds: int
    mean_ns: float
    median_ns: float
    p99_ns: float


def measure_steps(nic: Nic, size: int = 8, *, placement: str = "host", queues: str = "host") -> list[Step]:
    """The steps of a put of `size` bytes, in order; then those of a queue pair without record, where the NIC has it."""
    kernel = Kernel(KERNELS)
    found: list[Step] = []
    with (
        nic.allocate(size, placement=placement) as source,
        nic.allocate(size, placement=placement) as target,
        nic.allocate(8 * len(STEPS) * _ROUNDS) as times,
    ):
        for record in (True, False) if nic.capabilities.send_dbr_mode_no_dbr_ext else (True,):
            first, second = nic.loopback_pair(placement=queues, shared=False, record=record)
            with first, second:
                for rounds in (_WARM, _ROUNDS):
                    kernel.gda_kernel_put_steps[1, 1](first, target, source, size, rounds, DEADLINE_NS, times)
            ns = np.frombuffer(times.read(0, 8 * len(STEPS) * _ROUNDS), np.int64).reshape(_ROUNDS, len(STEPS))
            for number, step in enumerate(STEPS):
                words = _WORDS[step].format("record" if record else "doorbell")
                if step == "ring" and not record:
                    words = "doorbell"
                one = np.sort(ns[:, number])
                found.append(
                    Step(step, words, record, _ROUNDS, float(one[: _ROUNDS * 99 // 100].mean()), float(np.median(one)),
                         float(np.percentile(one, 99)))
                )  # fmt: skip
    return found


@dataclass(frozen=True)
class Stage:
    """Nanoseconds between two moments of a trace (docs/trace.md), over `puts` puts."""

    begin: str
    end: str
    what: str
    puts: int
    median_ns: float
    p99_ns: float


def measure_stages(nic: Nic, size: int = 8, *, placement: str = "host", queues: str = "host") -> list[Stage]:
    """The stages of `gda_put` and of what follows, by a trace: the software NIC's own moments are among them.

    A card notes nothing, so there it has the kernel's only. Empty when this process notes a trace already (GDA_TRACE).
    """
    if notes.active() is not None:
        return []
    with (
        nic.allocate(size, placement=placement) as source,
        nic.allocate(size, placement=placement) as target,
        nic.allocate(8 * _ROUNDS) as times,
    ):
        first, second = nic.loopback_pair(placement=queues)
        with first, second, trace.record() as taken:
            kernel = Kernel(PUTS)
            for rounds in (_WARM, _ROUNDS):
                kernel.gda_kernel_put_times[1, 1](first, target, source, size, rounds, 1, DEADLINE_NS, times)
    # The newest: the first ones found caches empty.
    return [
        Stage(s.begin, s.end, s.words, len(s.times_ns[-_ROUNDS:]), *(float(np.percentile(s.times_ns[-_ROUNDS:], p))
              for p in (50, 99)))
        for s in taken.stages()
    ]  # fmt: skip
