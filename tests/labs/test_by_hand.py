# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 1 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Lab

LAB = Lab("01_by_hand")


def test_solution_passes_on_the_nic() -> None:
    assert "the NIC runs them" in LAB.passes()


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = LAB.grade(LAB.exercise)
    assert code == 1
    assert "rkey is 0x0, should be 0xa0b0c0d: it is not filled in" in text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('">QII"', '"<QII"', "its bytes are reversed"),
        ("qpn << 8 | 3", "qpn << 8 | 1", "counts 16-byte segments"),
        ("3, 0x08, 0)", "3, 0x00, 0)", "the NIC writes no completion"),
        ("written & 0xFFFF", "written", "modulo 2^16"),
        ("request[:8]", "request[8:16]", "first eight bytes"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    LAB.names(tmp_path, right, wrong, said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("while True: pass", "did not come to an end within 5 s: line 21, in doorbell_record"),
        ("return written.no_such_thing", "line 21 of mine.py ends with AttributeError"),
        ("import ctypes; ctypes.string_at(8)", "signal 11: it read or wrote memory that is not there"),
    ],
)
def test_files_that_do_not_end_well(tmp_path: Path, wrong: str, said: str) -> None:
    text = LAB.solution.read_text().replace('return struct.pack(">I", written & 0xFFFF)', wrong)
    (tmp_path / "mine.py").write_text(text)
    code, output = LAB.grade(tmp_path / "mine.py", "--limit", "5")
    assert code == 1 and said in output and output.rstrip().endswith("lab 1: 1 to mend"), output
