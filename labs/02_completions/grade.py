# SPDX-License-Identifier: Apache-2.0
"""Grades exercise.py (or the file named on the command line): each function alone, then a ring that the NIC writes.

usage: python labs/02_completions/grade.py [FILE]
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from grading import Wrong, complaints, describe, grade, load  # noqa: E402

import gda  # noqa: E402
from gda import formats  # noqa: E402

ENTRIES, REQUESTS = 8, 40
WAIT_S = 3.0
REMOTE_ACCESS, FLUSHED = 0x13, 0x05


def good(counter: int, owner: int) -> bytes:
    """An entry of a request that is done."""
    return bytes(formats.cqe64.pack(wqe_counter=counter, owner=owner, opcode=formats.MLX5_CQE_REQ))


def bad(counter: int, owner: int, syndrome: int) -> bytes:
    """An entry of a request that failed."""
    return bytes(
        formats.err_cqe.pack(
            wqe_counter=counter, owner=owner, syndrome=syndrome, vendor_error_syndrome=0x88,
            opcode=formats.MLX5_CQE_REQ_ERR,
        )
    )  # fmt: skip


def check_functions(path: Path) -> list[str]:
    """Each function alone, with entries made for it."""
    module = load(path)
    return [*_is_there(module), *_read(module), *_done_after(module), *_consumer_record(module)]


def _is_there(module: ModuleType) -> list[str]:
    untouched = bytes(formats.cqe64.pack(opcode=formats.MLX5_CQE_INVALID))
    cases = (
        (good(0, 0), 0, True, "owner 0 in the first lap is new"),
        (good(8, 1), 1, False, "owner 1 in the first lap: the owner bit is the lap's, not the number's"),
        (bad(0, 0, FLUSHED), 2, True, "an error is an entry, too"),
        (bytes([255]) * 64, 0, False, "a ring that was never written holds 0xff: opcode 0xf is never an entry"),
        (untouched, 0, False, "opcode 0xf with owner 0 was never written: the owner bit alone is not enough"),
        (bytes([255]) * 64, 8, False, "opcode 0xf with owner 1 is no entry of the second lap either"),
        (good(0, 0), 8, False, "owner 0 in the second lap is the first lap's entry, already read"),
        (good(8, 1), 8, True, "owner 1 in the second lap is new"),
        (good(17, 0), 17, True, "in the third lap the owner bit is 0 again"),
    )
    problems = []
    for entry, consumed, right, why in cases:
        got = module.is_there(entry, consumed, ENTRIES)
        if bool(got) != right:
            problems.append(
                f"is_there says {got!r} of completion {consumed} in a ring of {ENTRIES}, byte 63 = 0x{entry[63]:02x}: "
                f"should be {right}; {why}"
            )
    return problems


def _read(module: ModuleType) -> list[str]:
    problems = []
    for entry, right in ((good(0x1234, 0), (0x1234, 0)), (bad(0x0506, 1, REMOTE_ACCESS), (0x0506, REMOTE_ACCESS))):
        got = module.read(entry)
        if got == right:
            continue
        hint = ""
        if not isinstance(got, tuple) or len(got) != 2:
            hint = ": a tuple of two numbers is wanted"
        elif got[0] == int.from_bytes(entry[60:62], "little"):
            hint = ": the index's bytes are reversed; the NIC writes big-endian"
        elif got[1] == 0x88:
            hint = ": that is byte 54, the vendor's syndrome; the syndrome is byte 55"
        elif got[0] == right[0] and got[1] == 0:
            hint = ": opcode 0xd in byte 63 says that the request failed, and this was taken for success"
        elif got[0] == right[0] and right[1] == 0:
            hint = ": it is done; bytes 54 and 55 mean something only where the opcode is 0xd"
        problems.append(f"read of an entry with bytes 54-63 {entry[54:].hex(' ')} is {got!r}, should be {right}{hint}")
    return problems


def _done_after(module: ModuleType) -> list[str]:
    problems = []
    cases = (
        (0, 0, 1, "request 0 is done: one in all"),
        (1, 4, 5, "requests 1 to 4 are done, of which only the last asked for a completion"),
        (0xFFFE, 0xFFFF, 0x10000, "the count has 64 bits and goes on where the 16 of the entry begin again"),
        (0x2FFF0, 0x0003, 0x30004, "the entry's 16 bits have gone round, the count goes on"),
    )
    for done, counter, right, why in cases:
        got = module.done_after(done, counter)
        if got != right:
            problems.append(f"done_after({done:#x}, {counter:#x}) is {describe(got)}, should be {right:#x}: {why}")
    return problems


def _consumer_record(module: ModuleType) -> list[str]:
    for consumed, right in ((5, "00000005"), (0x1000002, "00000002")):
        got = module.consumer_record(consumed)
        if got != bytes.fromhex(right):
            return [
                f"consumer_record({consumed:#x}) is {describe(got)}, should be {right}: 32 bits big-endian, all that "
                "were ever read, modulo 2^24 (not modulo the ring)"
            ]
    return []


class Ring:
    """A queue whose completions the learner's functions read."""

    def __init__(self, module: ModuleType, nic: gda.Nic) -> None:
        self.module, self.posted, self.consumed, self.done = module, 0, 0, 0
        self.source, self.target = nic.allocate(64), nic.allocate(64)
        self.queue, self.peer = nic.loopback_pair(depth=ENTRIES, completion="ring", ignore_overrun=False)

    def post(self, rkey: int, signaled: bool = True) -> None:
        """One write of 64 bytes."""
        request = (
            formats.wqe_ctrl_seg.pack(
                opcode=formats.MLX5_OPCODE_RDMA_WRITE, wqe_index=self.posted % 0x10000, qp_or_sq=self.queue.qpn, ds=3,
                ce=formats.CE_ALWAYS if signaled else formats.CE_ON_ERROR,
            )
            + formats.wqe_raddr_seg.pack(raddr=self.target.address, rkey=rkey)
            + formats.wqe_data_seg.pack(byte_count=64, lkey=self.source.lkey, addr=self.source.address)
        )  # fmt: skip
        self.queue.write_wqe(self.posted, request)
        self.posted += 1
        self.queue.write_record(self.posted)
        self.queue.ring(request[:8])

    def next(self) -> tuple[int, int]:
        """Wait for the next completion: what `read` says of it. The NIC is told that it was read."""
        end = time.monotonic() + WAIT_S
        while True:
            entry = self.queue.read_cqe(self.consumed % ENTRIES)
            if self.module.is_there(entry, self.consumed, ENTRIES):
                break
            if time.monotonic() > end:
                raise Wrong(
                    f"completion {self.consumed} did not come within {WAIT_S:g} s: slot {self.consumed % ENTRIES} "
                    f"holds byte 63 = 0x{entry[63]:02x}; {self.posted} requests were posted",
                    *complaints(),
                )
        index, syndrome = self.module.read(entry)
        self.consumed += 1
        record = self.module.consumer_record(self.consumed)
        ctypes.memmove(self.queue.where()["cq_record"][1], record, 4)
        if syndrome == 0:
            self.done = self.module.done_after(self.done, index)
        return index, syndrome


def check_ring(path: Path) -> list[str]:
    """Five laps of a ring of eight that the NIC must not overrun; every other request asks for a completion."""
    with gda.open() as nic:
        ring = Ring(load(path), nic)
        for number in range(REQUESTS):
            ring.post(ring.target.rkey, signaled=number % 2 == 1)
            if number % 2 == 1:
                ring.next()
                if ring.done != number + 1:
                    return [f"after completion {ring.consumed - 1} the count of done is {ring.done}, not {number + 1}"]
        print(f"{REQUESTS} requests done by {ring.consumed} completions in a ring of {ENTRIES}")
        return complaints()


def check_errors(path: Path) -> list[str]:
    """A request with a wrong key, and two behind it."""
    with gda.open() as nic:
        ring = Ring(load(path), nic)
        ring.post(ring.target.rkey)
        first = ring.next()
        for rkey in (ring.target.rkey ^ 0x100, ring.target.rkey, ring.target.rkey):
            ring.post(rkey)
        got = [first, *(ring.next() for _ in range(3))]
        right = [(0, 0), (1, REMOTE_ACCESS), (2, FLUSHED), (3, FLUSHED)]
        if got != right:
            return [f"of a request with a wrong key and two behind it your functions read {got}, the NIC wrote {right}"]
        print("a refused request and the two that were flushed behind it:", got[1:])
        return complaints(but=("key-unknown", "refused-by-peer"))


if __name__ == "__main__":
    CHECKS = (
        ("each function alone", check_functions),
        ("five laps of a ring", check_ring),
        ("errors", check_errors),
    )
    sys.exit(grade(2, HERE, "exercise.py", CHECKS, sys.argv[1:]))
