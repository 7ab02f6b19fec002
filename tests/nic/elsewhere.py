# SPDX-License-Identifier: Apache-2.0
"""Runs a file of cases in a process of its own, whose software NIC is another one than this process's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def names(cases: Path) -> list[str]:
    """The cases of the file."""
    return re.findall(r"^def (test_\w+)", cases.read_text(), re.MULTILINE)


def run(cases: Path, directory: Path, **settings: str) -> str:
    """All of them with these settings of the software NIC; what pytest said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(cases)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "GDA_NIC": "software", "GDA_SIM_DIRECTORY": str(directory), **settings},
    )  # fmt: skip
    return done.stdout + done.stderr


def passed(outcome: str, cases: Path, name: str) -> bool:
    """Whether that case did."""
    return re.search(rf"^PASSED \S*{cases.name}::{name}$", outcome, re.MULTILINE) is not None
