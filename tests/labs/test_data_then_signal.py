# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 4 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Lab

LAB = Lab("04_data_then_signal", "cu")
SEND = "return gda_put_signal(qp, dst, to, src, from, bytes, signals, 0, 1, GDA_SIGNAL_ADD);"
AWAIT = "return gda_wait_signal(reinterpret_cast<const uint64_t*>(signals.addr), GDA_REACHED, row + 1, deadline_ns);"
REUSE = "        if (threadIdx.x == 0 && row >= 2) s = gda_wait(qp, sent[place], GDA_S(2));\n"
END = "s = gda_wait(qp, sent[place], GDA_S(2));\n    gda_report"


def test_solution_passes_on_the_nic() -> None:
    text = LAB.passes()
    assert "6 rows of 128 bytes through 2 places" in text and "a refused row is reported: " in text


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = LAB.grade(LAB.exercise)
    assert code == 1 and "row 0 was not put; the ring holds nothing" in text, text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (SEND, "gda_signal(qp, signals, 0, 1, GDA_SIGNAL_ADD); return gda_put(qp, dst, to, src, from, bytes);",
         "request 0 is the signal, request 1 the data of row 0"),
        (SEND, "return gda_put(qp, dst, to, src, from, bytes);", "2 rows need 2 signals, there are 0"),
        ("1, GDA_SIGNAL_ADD", "1, GDA_SIGNAL_SET", "after 2 rows the signal word is 1, should be 2"),
        ("        __syncthreads();\n", "", "thread 0 sent the row before thread 1 had written its word"),
        ("GDA_REACHED", "GDA_EQUAL", "wait until the count is reached, not until it is equal"),
        ("row + 1, deadline_ns", "row, deadline_ns", "row number r is there when the signal has reached r + 1"),
        (AWAIT, AWAIT.replace("return ", "") + " return 0;", "a wait that did not end well"),
        (AWAIT, "while (*reinterpret_cast<volatile uint64_t*>(signals.addr) < row + 1) {} return 0;",
         "kernel consume did not end within 5 s and was given up: which of its loops has no deadline?"),
        (REUSE, "", "a place is written again while its row is still being sent"),
        (END, "s = gda_flush(qp, GDA_S(2));\n    gda_report", "its put was refused, but the kernel ended well"),
        (SEND, "gda_ticket t = gda_put(qp, dst, to, src, from, bytes); gda_signal(qp, signals, 0, 1, GDA_SIGNAL_ADD); "
         "return t;", "no signal behind data that was refused"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    LAB.names(tmp_path, right, wrong, said)
