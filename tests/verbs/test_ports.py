# SPDX-License-Identifier: Apache-2.0
"""A NIC with two ports, by raw verbs: the cases of port_cases.py, in a process that has one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("port_cases.py")
NAMES = re.findall(r"^def (test_\w+)", CASES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(CASES)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "GDA_SIM_PORTS": "2", "GDA_SIM_DIRECTORY": str(tmp_path_factory.mktemp("meet"))},
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_case(outcome: str, name: str) -> None:
    assert re.search(rf"^PASSED \S*{CASES.name}::{name}\b", outcome, re.MULTILINE), outcome
    assert not re.search(rf"^(FAILED|ERROR) \S*{CASES.name}::{name}\b", outcome, re.MULTILINE), outcome
