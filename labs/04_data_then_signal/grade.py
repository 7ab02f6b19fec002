# SPDX-License-Identifier: Apache-2.0
"""Grades exercise.cu (or the file named on the command line): the producer, the consumer, both, and when it goes wrong.

usage: python labs/04_data_then_signal/grade.py [FILE]
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from device import Witnessed  # noqa: E402
from grading import complaints, grade  # noqa: E402

import gda  # noqa: E402
from gda import attach, formats  # noqa: E402
from gda.errors import DeadlineError, DeviceStatusError, GdaError, OutOfBoundsError  # noqa: E402

ROWS, COLUMNS = 6, 32
BYTES = 4 * COLUMNS
_HOOKS: list[object] = []


class Both:
    """The learner's kernels with memory and a queue for them."""

    def __init__(self, path: Path, nic: gda.Nic) -> None:
        self.code = Witnessed(path, whole_library=True, witness=False)
        self.places = np.zeros((2, COLUMNS), np.uint32)
        self.source = nic.register(self.places)
        self.arrived, self.counted = np.zeros((ROWS, COLUMNS), np.uint32), np.zeros(1, np.uint64)
        self.target, self.signals = nic.register(self.arrived), nic.register(self.counted)
        self.queue, self.peer = nic.loopback_pair(depth=64)
        self.sums = np.zeros(COLUMNS, np.uint64)

    @property
    def signal(self) -> int:
        """The word that the consumer waits on."""
        return int(self.counted[0])

    def settles(self, count: int) -> bool:
        """Whether the word becomes so much: what a kernel has not waited for may come after its end."""
        end = time.monotonic() + 1
        while self.signal != count and time.monotonic() < end:
            time.sleep(0.001)
        return self.signal == count

    def produce(self, rows: int) -> None:
        """Run the producer to its end."""
        self.code.launch("produce", 1, COLUMNS, self.queue, self.target, self.source, self.signals, rows)

    def produce_seen(self, rows: int) -> dict[int, np.ndarray]:
        """The same, and each row as it lay in its place when its put was fenced: the NIC may read it from then on."""
        seen: dict[int, np.ndarray] = {}

        def fenced(event: int) -> None:
            for what, row in self.posted():
                if what == "data":
                    seen.setdefault(row, self.places[row % 2].copy())

        hook = ctypes.CFUNCTYPE(None, ctypes.c_int)(fenced)
        _HOOKS.append(hook)  # a kernel that was given up still runs
        with mock.patch.object(attach, "fence_hook_address", lambda: ctypes.cast(hook, ctypes.c_void_p).value):
            self.produce(rows)
        return seen

    def consume(self, rows: int, deadline_ms: int) -> None:
        """Run the consumer to its end."""
        self.code.launch(
            "consume", 1, COLUMNS, self.target, self.signals, rows, deadline_ms * 1_000_000, self.sums
        )  # fmt: skip

    def posted(self) -> list[tuple[str, int]]:
        """The requests in the ring, in order: ("data", row), ("signal", what is added) or (opcode's name, 0)."""
        found, index = [], 0
        while index < self.queue.depth:
            block = self.queue.read_wqe(index)
            control = formats.wqe_ctrl_seg.unpack(block[:16])
            if block[:4] == b"\xff" * 4 or not control["ds"]:
                break
            remote = int(formats.wqe_raddr_seg.unpack(block[16:32])["raddr"])
            row, rest = divmod(remote - self.target.address, BYTES)
            if remote == self.signals.address:
                found.append(("signal", int.from_bytes(block[32:40], "big")))
            elif rest == 0 and 0 <= row < ROWS:
                found.append(("data", row))
            else:
                found.append((f"opcode {int(control['opcode']):#x} to 0x{remote:x}", 0))
            index += (control["ds"] + 3) // 4
        return found


def rows_of(count: int) -> np.ndarray:
    """What the producer makes."""
    return 1000 * np.arange(1, count + 1)[:, None] + np.arange(COLUMNS)


def check_producer(path: Path) -> list[str]:
    """Two rows with nobody waiting: what was posted, in which order, what arrived."""
    with gda.open() as nic:
        both = Both(path, nic)
        sent = both.produce_seen(2)
        posted = both.posted()
        names = ", ".join(f"{number}: {what} {value}" for number, (what, value) in enumerate(posted)) or "nothing"
        for row in (0, 1):
            if ("data", row) not in posted:
                return [f"row {row} was not put; the ring holds {names}", *complaints()]
        signals = [number for number, (what, _) in enumerate(posted) if what == "signal"]
        if len(signals) < 2:
            return [f"2 rows need 2 signals, there are {len(signals)}; the ring holds {names}", *complaints()]
        for row, signal in enumerate(signals[:2]):
            data = posted.index(("data", row))
            if signal < data:
                return [
                    f"request {signal} is the signal, request {data} the data of row {row}: a queue carries requests "
                    "out in order, so who sees this signal does not yet see the row; post the data first"
                ]
        got = both.arrived[:2].copy()
        for row, words in sent.items():
            got[row] = words
        if (wrong := np.argwhere(got != rows_of(2))).size:
            row, column = (int(x) for x in wrong[0])
            return [
                f"word {column} of row {row} was sent as {got[row, column]}, should be {rows_of(2)[row, column]}: "
                f"thread 0 sent the row before thread {column} had written its word; which barrier do all threads of a "
                "block wait at?",
                *complaints(),
            ]
        if not both.settles(2):
            return [
                f"after 2 rows the signal word is {both.signal}, should be 2: each row adds one (GDA_SIGNAL_ADD, 1), "
                "so that it counts rows"
            ]
        return complaints()


def check_consumer(path: Path) -> list[str]:
    """The grader plays the producer: rows that are there, more than are waited for, and none."""
    with gda.open() as nic:
        both = Both(path, nic)
        both.arrived[:] = rows_of(ROWS)
        both.counted[0] = ROWS
        try:
            both.consume(ROWS, 500)
        except DeadlineError as error:
            said = str(error).splitlines()[0]
            return [
                f"all {ROWS} rows are there and the signal says {ROWS}, but the consumer waits on ({said}): a slow "
                "consumer finds more rows than it waits for; wait until the count is reached, not until it is equal"
            ]
        if (both.sums != rows_of(ROWS).sum(axis=0)).any():
            return [f"the consumer's first sum is {both.sums[0]}, should be {rows_of(ROWS).sum(axis=0)[0]}"]
        both.sums[:] = 0
        both.counted[0] = 1
        try:
            both.consume(2, 300)
        except DeadlineError:
            if both.sums[0] == rows_of(1)[0, 0]:
                return complaints()
            return [f"with one row there, the first sum is {both.sums[0]}, should be {rows_of(1)[0, 0]}"]
        return [
            "the signal says that 1 row is there, and the consumer took 2: row number r is there when the signal has "
            "reached r + 1, and a wait that did not end well (its status is not zero) brings no row"
        ]


def check_reuse(path: Path) -> list[str]:
    """The producer alone, and nothing is ever answered: rows 0 and 1 are being sent for as long as it runs."""
    with gda.open() as nic:
        both = Both(path, nic)
        attach.software_nic().set_faults("drop=100%")
        try:
            both.produce(ROWS)
        except GdaError:
            ended_well = False
        else:
            ended_well = True
        for place, row in enumerate(int(words.max()) // 1000 - 1 for words in both.places):
            if row > 1:
                return [
                    f"with {ROWS} rows in 2 places, a place is written again while its row is still being sent: "
                    f"nothing was answered, and row {row} was made in place {place}; wait for the ticket of the row "
                    "that lies there, and make no row when that does not end well"
                ]
        if ended_well:
            return ["nothing was answered, but the kernel ended well: wait for the tickets of what was sent last"]
        print("a silent network: no place was written again, and the kernel says that it failed")
        return []


def check_both(path: Path) -> list[str]:
    """Both at once, on a network that takes its time; the NIC watches what it sends."""
    with gda.open() as nic:
        both = Both(path, nic)
        software = attach.software_nic()
        software.watch_sources(True)
        software.set_faults("delay=3ms")
        consumer = both.code.kernel.consume.start[1, COLUMNS](
            both.target, both.signals, ROWS, 4_000_000_000, both.sums
        )  # fmt: skip
        both.produce(ROWS)
        problems = complaints()
        if problems:
            return [
                f"with {ROWS} rows in 2 places, a place is written again while its row is still being sent: wait for "
                "the ticket of the row that lies there",
                *problems,
            ]
        consumer.wait()
        if (both.sums != rows_of(ROWS).sum(axis=0)).any():
            return [f"the consumer's first sum is {both.sums[0]}, should be {rows_of(ROWS).sum(axis=0)[0]}"]
        print(f"{ROWS} rows of {BYTES} bytes through 2 places, each taken when its signal came")
        return complaints()


def check_refusal(path: Path) -> list[str]:
    """The last row does not fit into the target: nothing may pretend that it was sent."""
    with gda.open() as nic:
        both = Both(path, nic)
        try:
            both.produce(ROWS + 1)
        except OutOfBoundsError as error:
            print(f"a refused row is reported: {error}")
        except DeviceStatusError as error:
            return [f"row {ROWS} lies outside of the target; the kernel says something else: {error}", *complaints()]
        else:
            return [
                f"row {ROWS} lies outside of the target, so its put was refused, but the kernel ended well: a ticket "
                "says whether the put was refused (gda_failed), and gda_wait answers why; look at each, the last too"
            ]
        signals = sum(what == "signal" for what, _ in both.posted())
        if signals > ROWS:
            return [f"{ROWS} rows were sent with {signals} signals: no signal behind data that was refused"]
        return complaints()


if __name__ == "__main__":
    CHECKS = (
        ("the producer alone", check_producer),
        ("the consumer alone", check_consumer),
        ("a network that does not answer", check_reuse),
        ("both at once", check_both),
        ("a row that does not fit", check_refusal),
    )
    sys.exit(grade(4, HERE, "exercise.cu", CHECKS, sys.argv[1:]))
