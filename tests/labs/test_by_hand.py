# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 1 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "labs" / "01_by_hand"


def grade(path: Path) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, LAB / "grade.py", path],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


def test_solution_passes_on_the_nic() -> None:
    code, text = grade(LAB / "solution.py")
    assert code == 0 and text.rstrip().endswith("lab 1: ok"), text
    assert "the NIC runs them" in text


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = grade(LAB / "exercise.py")
    assert code == 1
    assert "rkey is 0x0, should be 0xa0b0c0d: it is not filled in" in text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"\\>QII"', '"<QII"', "its bytes are reversed"),
        ("qpn << 8 | 3", "qpn << 8 | 1", "counts 16-byte segments"),
        ("3, 0x08, 0)", "3, 0x00, 0)", "the NIC writes no completion"),
        ("written & 0xFFFF", "written", "modulo 2^16"),
        ("request[:8]", "request[8:16]", "first eight bytes"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    right = right.replace("\\", "")
    text = (LAB / "solution.py").read_text()
    assert right in text
    (tmp_path / "mine.py").write_text(text.replace(right, wrong))
    code, output = grade(tmp_path / "mine.py")
    assert code == 1 and said in output, output
