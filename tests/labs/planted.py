# SPDX-License-Identifier: Apache-2.0
"""Solutions with a mistake planted in them, and what the lab's grader says. Called by the tests of each lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Lab:
    """A folder of labs/, and the name of what is filled in there."""

    def __init__(self, folder: str, ending: str = "py") -> None:
        self.folder = ROOT / "labs" / folder
        self.number = int(folder[:2])
        self.exercise, self.solution = (self.folder / f"{name}.{ending}" for name in ("exercise", "solution"))

    def grade(self, path: Path, *options: str) -> tuple[int, str]:
        """Status and output of the grader."""
        result = subprocess.run(
            [sys.executable, self.folder / "grade.py", path, *options],
            capture_output=True, text=True, timeout=150, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return result.returncode, result.stdout + result.stderr

    def passes(self) -> str:
        """The solution is right; what the grader says of it."""
        code, text = self.grade(self.solution)
        assert code == 0 and text.rstrip().endswith(f"lab {self.number}: ok"), text
        assert "wrong:" not in text
        return text

    def names(self, folder: Path, right: str, wrong: str, said: str) -> None:
        """The solution with `wrong` in the place of `right` fails, and the grader says `said`, which it else does not.

        It says so in the first sentence or one of the next two: what comes later is no help.
        """
        text = self.solution.read_text()
        assert text.count(right) == 1, f"{text.count(right)} times: {right}"
        path = folder / f"mine{self.solution.suffix}"
        path.write_text(text.replace(right, wrong))
        code, output = self.grade(path)
        sentences = [line for line in output.splitlines() if line.startswith("wrong: ")]
        assert code == 1 and any(said in sentence for sentence in sentences[:3]), output
        assert output.rstrip().endswith(f"lab {self.number}: {len(sentences)} to mend"), output
