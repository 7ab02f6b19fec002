# SPDX-License-Identifier: Apache-2.0
"""Grades exercise.cu (or the file named on the command line): step by step, then many threads, then a silent network.

usage: python labs/05_a_shared_queue/grade.py [FILE]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from device import (  # noqa: E402
    ADD,
    DOORBELL,
    RECORD,
    RECORD_BARRIER,
    REQUEST_BARRIER,
    SHARED_STORE,
    SYSTEM_FENCE,
    Step,
    Witnessed,
)  # fmt: skip
from grading import complaints, grade  # noqa: E402

import gda  # noqa: E402
from gda import attach, formats  # noqa: E402
from gda.nic import connect  # noqa: E402

DEPTH = 8
WAIT_S = 5.0


class Shared:
    """A queue of eight slots, counters for it, memory, and the learner's kernel."""

    def __init__(self, path: Path, nic: gda.Nic, threads: int, each: int) -> None:
        self.code = Witnessed(path)
        self.each, self.total = each, threads * each
        self.made, self.arrived = (np.zeros((self.total, 16), np.uint32) for _ in range(2))
        self.source, self.target = nic.register(self.made), nic.register(self.arrived)
        self.queue, self.peer = (nic.queue_pair(depth=DEPTH) for _ in range(2))
        connect(self.queue, self.peer, ack_timeout=19)  # two seconds: nothing is given up because of a slow machine
        self.counters, self.sent = np.zeros(24, np.uint64), np.zeros(threads, np.uint64)

    def launch(self, grid: int, block: int, deadline_ms: int) -> list[Step]:
        """Run the kernel to its end; its first steps."""
        self.code.watch(self.queue)
        self.code.launch(
            "share", grid, block, self.queue, self.target, self.source, self.counters, self.each,
            deadline_ms * 1_000_000, self.sent,
        )  # fmt: skip
        return self.code.steps()

    @property
    def reserved(self) -> int:
        """How many requests the threads took."""
        return int(self.counters[0])

    @property
    def ready(self) -> int:
        """How many were told to the NIC."""
        return int(self.counters[8])

    def address(self, word: int) -> int:
        """Where a counter lies."""
        return int(self.counters.ctypes.data) + 8 * word

    def missing(self) -> int:
        """How many pieces have not come after some time."""
        right = 1 + np.arange(self.total, dtype=np.uint32)[:, None] * 64 + np.arange(16, dtype=np.uint32)
        end = time.monotonic() + WAIT_S
        while (left := int((self.arrived != right).any(axis=1).sum())) and time.monotonic() < end:
            if attach.software_nic().report():
                break
            attach.software_nic().step()
        return left


def check_steps(path: Path) -> list[str]:
    """Seven threads, three requests each, in a ring of eight, on a slow network: each step in its order."""
    with gda.open() as nic:
        shared = Shared(path, nic, 7, 3)
        attach.software_nic().set_faults("delay=30ms")
        steps = shared.launch(1, 7, 4000)
        if not shared.reserved:
            return ["no request was reserved: the counter `reserved` is still 0 (gap 1)", *complaints()]
        problems = _reservations(shared, steps) or _records(steps) or _barriers(steps) or _ends(shared, steps)
        if problems:
            return [*problems, *complaints()]
        if said := complaints():
            return [f"{shared.total} requests through {DEPTH} slots: a slot was taken that was not free", *said]
        if left := shared.missing():
            return [f"{left} of {shared.total} pieces did not arrive", *complaints()]
        return complaints()


def _reservations(shared: Shared, steps: list[Step]) -> list[str]:
    at = shared.address(0)
    added = [s.value for s in steps if s.kind == ADD and s.address == at]
    if len(added) == shared.total:
        return []
    stored = [s.value for s in steps if s.kind == SHARED_STORE and s.address == at]
    twice = next((v for i, v in enumerate(stored) if v in stored[:i]), None)
    if twice is not None:
        return [
            f"two threads took request {twice - 1}: between the read of `reserved` and the store another thread "
            "read the same number; one read-modify-write does both: target::add answers what was there before"
        ]
    if added and len(added) < shared.total:
        told = shared.ready
        return [
            f"{len(added)} of {shared.total} requests were reserved within 4 s, {told} were told to the NIC: somebody "
            "waits for what never comes; is `ready` moved on by each, and does a full ring look for completions (poll)?"
        ]
    return [
        f"`reserved` is {shared.reserved} and target::add moved it {len(added)} times, for {shared.total} requests: "
        "each thread takes one number, by an addition that no other thread can come between"
    ]


def _records(steps: list[Step]) -> list[str]:
    """Each record covers written requests only, and grows."""
    told = 0
    for s in steps:
        if s.kind != RECORD:
            continue
        end = s.end
        if end <= told:
            return [
                f"thread {s.thread} stored {end} in the record when it said {told} already: it went back; only who has "
                "its turn may store it: wait until `ready` is your request"
            ]
        for index in range(told, end):
            fields = formats.wqe_ctrl_seg.unpack(s.slot(index, DEPTH)[:16])
            if fields["wqe_index"] != index or not fields["ds"]:
                return [
                    f"thread {s.thread} stored {end} in the record when request {index} was not written yet (slot "
                    f"{index % DEPTH} holds index {fields['wqe_index']}): its thread is slow; publish in order: wait "
                    "until `ready` is your request"
                ]
        told = end
    return []


def _barriers(steps: list[Step]) -> list[str]:
    """What each thread did before its record, and between it and its doorbell."""
    for number, s in enumerate(steps):
        if s.kind not in (RECORD, DOORBELL):
            continue
        kind = REQUEST_BARRIER if s.kind == RECORD else RECORD_BARRIER
        begins = ADD if s.kind == RECORD else RECORD
        own = [o for o in steps[:number] if o.thread == s.thread]
        while any(o.kind == begins for o in own[1:]):
            own = own[1:]
        if not any(o.kind in (kind, SYSTEM_FENCE) and not o.is_gpu_scope for o in own):
            what = "its request and the record" if s.kind == RECORD else "the record and the doorbell"
            return [f"thread {s.thread}: no barrier of system scope stands between {what} (lab 3 has the table)"]
    return []


def _ends(shared: Shared, steps: list[Step]) -> list[str]:
    """The next thread's turn begins when the record is stored; behind the last record comes a doorbell."""
    for s in steps:
        if s.kind == SHARED_STORE and s.address == shared.address(8) and s.record < s.value:
            return [
                f"thread {s.thread} stored {s.value} in `ready` when the record said {s.record}: the next thread has "
                "its turn and may store its record first, then this one makes it go back; first tell, then move `ready`"
            ]
    records = [i for i, s in enumerate(steps) if s.kind == RECORD]
    doorbells = [i for i, s in enumerate(steps) if s.kind == DOORBELL]
    if not records:
        return ["nothing was told to the NIC: no record was stored (gap 2)"]
    if not doorbells or doorbells[-1] < records[-1]:
        last = steps[doorbells[-1]].record if doorbells else 0
        return [
            f"the record says {steps[records[-1]].end}, the last doorbell was rung at {last}: the NIC never hears of "
            "the rest; whoever leaves the doorbell to another must be sure that there is another"
        ]
    if shared.ready != shared.total:
        return [f"`ready` is {shared.ready} at the end, {shared.total} requests were written"]
    return []


def check_many(path: Path) -> list[str]:
    """Two blocks on two processors, the NIC seeing only what was fenced."""
    with gda.open() as nic:
        attach.software_nic().store_buffer(True)
        shared = Shared(path, nic, 64, 4)
        shared.launch(2, 32, 4000)
        left = shared.missing()
        said = complaints()
        if left or said or shared.sent.sum() != shared.total:
            return [
                f"64 threads on two processors: {int(shared.sent.sum())} of {shared.total} requests were sent, {left} "
                f"pieces did not arrive; `reserved` {shared.reserved}, `ready` {shared.ready}",
                *said,
            ]
        print(f"{shared.total} requests of 64 threads through {DEPTH} slots, each piece there")
        return []


def check_silence(path: Path) -> list[str]:
    """Nothing is answered: the ring stays full, and every thread must come back."""
    with gda.open() as nic:
        shared = Shared(path, nic, 12, 1)
        attach.software_nic().set_faults("drop=100%")
        shared.launch(1, 12, 1000)
        sent = int(shared.sent.sum())
        if sent > DEPTH:
            return [
                f"nothing was completed, and {sent} requests were sent through {DEPTH} slots: "
                "a slot was taken that was not free",
                *complaints(),
            ]
        print(f"a silent network: {sent} requests sent, the other threads gave up in time")
        return complaints()


def check_absence(path: Path) -> list[str]:
    """Request 0 was taken by a thread that is gone: nobody may tell the NIC of what lies behind, or wait for ever."""
    with gda.open() as nic:
        shared = Shared(path, nic, 4, 1)
        shared.counters[0] = 1
        shared.launch(1, 4, 300)
        if told := shared.queue.read_record():
            return [f"request 0 was never written, and the record says {told}", *complaints()]
        print("a thread that is gone: the others gave up in time, and told nothing")
        return complaints()


if __name__ == "__main__":
    CHECKS = (
        ("seven threads, step by step", check_steps),
        ("64 threads on two processors", check_many),
        ("a network that does not answer", check_silence),
        ("a thread that never publishes", check_absence),
    )
    sys.exit(grade(5, HERE, "exercise.cu", CHECKS, sys.argv[1:]))
