# SPDX-License-Identifier: Apache-2.0
"""Grades exercise.cu (or the file named on the command line): every step that it tells the NIC, then what arrives.

usage: python labs/03_a_kernel_that_posts/grade.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from device import (  # noqa: E402
    DEVICE_FENCE,
    DOORBELL,
    RECORD,
    RECORD_BARRIER,
    REQUEST_BARRIER,
    SYSTEM_FENCE,
    Step,
    Witnessed,
)  # fmt: skip
from fields import problems_of  # noqa: E402
from grading import complaints, grade  # noqa: E402

import gda  # noqa: E402
from gda import attach, formats  # noqa: E402

DEPTH, COUNT = 8, 5  # so the second launch goes around the ring's end


class Posted:
    """A queue pair, two pieces of memory, and the learner's kernel launched on them."""

    def __init__(self, code: Witnessed, nic: gda.Nic) -> None:
        self.code = code
        self.source, self.target = nic.register(np.zeros(64 * COUNT, np.uint8)), nic.allocate(64 * COUNT)
        self.queue, self.peer = nic.loopback_pair(depth=DEPTH)
        self.first = 0

    def launch(self) -> tuple[list[Step], bool]:
        """The next requests: the steps of the kernel, and whether it saw its completion."""
        done = np.zeros(1, np.uint32)
        self.code.watch(self.queue)
        self.code.launch("post", 1, 1, self.queue, self.target, self.source, self.first, COUNT, self.seed, done)
        self.first += COUNT
        return self.code.steps(), bool(done[0])

    @property
    def seed(self) -> int:
        """Of the payload of the next launch."""
        return 1000 + self.first

    def values(self, index: int) -> dict[str, int]:
        """What request `index` should ask for."""
        offset = index % COUNT * 64
        return {
            "index": index, "qpn": self.queue.qpn, "remote_address": self.target.address + offset,
            "rkey": self.target.rkey, "local_address": self.source.address + offset, "lkey": self.source.lkey,
            "length": 64,
        }  # fmt: skip


def check_steps(path: Path) -> list[str]:
    """Two launches, looked at step by step."""
    code = Witnessed(path)
    with gda.open() as nic:
        posted = Posted(code, nic)
        for _ in range(2):
            first = posted.first
            steps, done = posted.launch()
            if problems := judge(posted, steps, first):
                return [*problems, *complaints()]
            if not done:
                return ["the NIC was told, but within 3 s it completed nothing, or with an error", *complaints()]
        return complaints()


def judge(posted: Posted, steps: list[Step], first: int) -> list[str]:
    """What is wrong with the steps of one launch."""
    end = first + COUNT
    record = next((i for i, s in enumerate(steps) if s.kind == RECORD), None)
    doorbell = next((i for i, s in enumerate(steps) if s.kind == DOORBELL), None)
    slots = [posted.queue.read_wqe(index)[:48] for index in range(first, end)]
    ring = b"".join(posted.queue.read_wqe(index) for index in range(DEPTH))
    for index, slot in zip(range(first, end), slots, strict=True):
        name = formats.wqe_ctrl_seg.pack(opcode=8, wqe_index=index, qp_or_sq=posted.queue.qpn, ds=3)[:8]
        if slot[:8] != name and (at := ring.find(name)) >= 0:
            return [
                f"request {index} lies at byte {at} of the ring, its slot {index % DEPTH} begins at byte "
                f"{index % DEPTH * 64}: a slot has 64 bytes, and the ring {DEPTH} slots"
            ]
        if slot[0] == 0xFF or int.from_bytes(slot[1:3], "big") == (index - DEPTH) % 0x10000:
            return [f"request {index} is not in slot {index % DEPTH}: nothing was written there; a slot has 64 bytes"]
        if problems := problems_of(slot, posted.values(index)):
            return [f"request {index}, {problem}" for problem in problems]
    if record is None:
        return [
            f"the record was never stored by target::store_record (memory holds {posted.queue.read_record()}): a plain "
            "store may be split, merged or moved by the compiler"
        ]
    if doorbell is None:
        return ["the doorbell was never rung by target::store_doorbell: the NIC does not look at the record by itself"]
    return _values(posted, steps[record], steps[doorbell], end) or _order(posted, steps, record, doorbell, slots, first)


def _values(posted: Posted, record: Step, doorbell: Step, end: int) -> list[str]:
    queue, where = posted.queue, posted.queue.where()
    counter = where["record"][1] + 4
    problems = []
    if record.address != counter:
        problems.append(
            f"the record was stored at 0x{record.address:x}, the send counter lies at 0x{counter:x} (qp->record)"
        )
    if record.end != end:
        reversed_ = int.from_bytes(record.value.to_bytes(4, "little"), "little") == end
        problems.append(
            f"the record says {record.end}, should say {end}: "
            + ("its bytes are reversed, the NIC reads big-endian" if reversed_ else
               "it counts all requests since the queue was made, modulo 2^16")
        )  # fmt: skip
    if doorbell.address != where["doorbell"][1]:
        problems.append(f"the doorbell was rung at 0x{doorbell.address:x}, the register is 0x{where['doorbell'][1]:x}")
    named = int(formats.send_doorbell.unpack(doorbell.value.to_bytes(8, "little"))["qpn"])
    if named != queue.qpn:
        problems.append(
            f"the doorbell's value is 0x{doorbell.value:016x}: it names queue pair 0x{named:x}, this is 0x{queue.qpn:x}"
        )
    elif doorbell.end != end:
        problems.append(f"the doorbell says {doorbell.end}, should say {end} (wqe_index; with ds 0 the one behind)")
    return problems


def _order(
    posted: Posted, steps: list[Step], record: int, doorbell: int, slots: list[bytes], first: int
) -> list[str]:
    if doorbell < record:
        return [
            f"the doorbell (step {doorbell}) is rung before the record (step {record}) is stored: the NIC, woken, may "
            f"read the old record ({steps[doorbell].record}), find nothing new, and not look again"
        ]
    written = [steps[record].slot(index, DEPTH)[:48] == slot for index, slot in enumerate(slots, first)]
    if not all(written):
        return [
            f"the record says {steps[record].end} when request {first + written.index(False)} is not written yet: the "
            "NIC may fetch what lay in the slot before"
        ]

    def whole(step: Step) -> bool:
        return all(step.slot(index, DEPTH)[:48] == slot for index, slot in enumerate(slots, first))

    before = [s for s in steps[:record] if whole(s)]
    between = steps[record:doorbell]
    return _barrier(
        before, REQUEST_BARRIER, "the requests and the record",
        "the NIC may see the new record and fetch an old slot: target::wqe_before_doorbell_record(scope)",
    ) or _barrier(
        between, RECORD_BARRIER, "the record and the doorbell",
        "the NIC may see the doorbell and read the old record, and the doorbell is lost: "
        "target::doorbell_record_before_doorbell(scope)",
    )  # fmt: skip


def _barrier(steps: list[Step], kind: int, where: str, harm: str) -> list[str]:
    """What is missing there: a barrier of this kind, or a fence, of system scope."""
    found = [s for s in steps if s.kind in (kind, SYSTEM_FENCE)]
    if any(not s.is_gpu_scope for s in found):
        return []
    if found:
        return [f"the barrier between {where} has gpu scope, but the queue lies in host memory: scope_system"]
    if any(s.kind == DEVICE_FENCE for s in steps):
        return [f"__threadfence stands between {where}: it is for threads of this GPU; {harm}"]
    return [f"no barrier stands between {where}: {harm}"]


def check_arrival(path: Path) -> list[str]:
    """Four launches with the NIC seeing only what was fenced."""
    code = Witnessed(path)
    with gda.open() as nic:
        attach.software_nic().store_buffer(True)
        posted = Posted(code, nic)
        for _ in range(4):
            seed = posted.seed
            posted.launch()
            got = np.frombuffer(posted.target.read(0, 64 * COUNT), np.uint32)
            wrong = np.flatnonzero(got != np.arange(seed, seed + 16 * COUNT, dtype=np.uint32))
            if wrong.size:
                at = int(wrong[0])
                return [
                    f"word {at} arrived as {got[at]}, should be {seed + at}: the NIC read it before it was made "
                    "visible, or not at all; the payload needs a fence of system scope before the record",
                    *complaints(),
                ]
        print(f"{posted.first} requests in a ring of {DEPTH}, all data there, every store seen in its order")
        return complaints()


if __name__ == "__main__":
    CHECKS = (("every step", check_steps), ("what arrives when the NIC sees only what was fenced", check_arrival))
    sys.exit(grade(3, HERE, "exercise.cu", CHECKS, sys.argv[1:]))
