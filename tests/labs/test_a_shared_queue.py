# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 5 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Lab

LAB = Lab("05_a_shared_queue", "cu")
TAKE = "    *index = target::add(c.reserved, 1);\n"
ROOM = "*index - target::load_shared_acquire(c.done) >= depth"
TURN = "target::load_shared_acquire(c.ready) != index"
TELL = "    tell(qp, index + 1);\n"
MOVE = "    target::store_shared_release(c.ready, index + 1);\n"
GIVE_UP = "        if (target::clock_ns() > give_up) return false;\n"


def test_solution_passes_on_the_nic() -> None:
    text = LAB.passes()
    assert "256 requests of 64 threads through 8 slots" in text
    assert "a silent network: 8 requests sent, the other threads gave up in time" in text
    assert "a thread that is gone: the others gave up in time, and told nothing" in text


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = LAB.grade(LAB.exercise)
    assert code == 1 and "no request was reserved: the counter `reserved` is still 0" in text, text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (TAKE, "    *index = target::load_shared(c.reserved);\n    target::store_shared(c.reserved, *index + 1);\n",
         "two threads took request 0: between the read of `reserved` and the store"),
        (TAKE, "    *index = (*c.reserved)++;\n", "target::add moved it 0 times, for 21 requests"),
        (ROOM, "false", "a slot was taken that was not free"),
        (ROOM, ROOM.replace(">=", ">"), "a slot was taken that was not free"),
        ("        poll(qp, c);\n", "", "does a full ring look for completions (poll)?"),
        (TURN, "false", "in the record when"),
        (TELL + MOVE, MOVE + TELL, "in `ready` when the record said 0: the next thread has its turn"),
        (MOVE, "", "is `ready` moved on by each"),
        (TELL, "    if (index % 4 == 3) tell(qp, index + 1);\n", "`ready` when the record said 0"),
        ("    target::store_doorbell(", "    if (end % 4 == 0) target::store_doorbell(",
         "the record says 21, the last doorbell was rung at 20: the NIC never hears of the rest"),
        ("    target::wqe_before_doorbell_record(target::scope_system);\n", "",
         "no barrier of system scope stands between its request and the record"),
        ("    target::doorbell_record_before_doorbell(target::scope_system);\n", "",
         "no barrier of system scope stands between the record and the doorbell"),
        (GIVE_UP + "        poll(qp, c);\n", "        poll(qp, c);\n",
         "kernel share did not end within 5 s and was given up"),
        (TURN + ") {\n" + GIVE_UP, TURN + ") {\n", "kernel share did not end within 5 s and was given up"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    LAB.names(tmp_path, right, wrong, said)
