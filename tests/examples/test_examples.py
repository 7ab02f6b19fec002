# SPDX-License-Identifier: Apache-2.0
"""Every example runs, ends well, and fits on a page or two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_LACK = {"11_numba.py", "19_torch.py"}  # a GPU, or torch: they say so themselves, as their only line
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 100
    result = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    if path.name in MAY_LACK and result.stdout.startswith("not run: "):
        pytest.skip(result.stdout.strip())
    assert result.stdout.rstrip().endswith(": ok"), result.stdout


@pytest.mark.parametrize("name, words", [("13_ping_pong", "for two ranks, not 3"), ("16_break_the_link", "four ranks")])
def test_an_example_for_another_number_of_ranks_says_so(name: str, words: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gda", "launch", "-n", "3", ROOT / "examples" / f"{name}.py"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = result.stdout + result.stderr
    assert result.returncode == 1 and words in said and "Traceback" not in said, said
