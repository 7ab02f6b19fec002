# SPDX-License-Identifier: Apache-2.0
"""Two ports of one NIC through `gda.open(port=...)`: the cases of second_port_cases.py, in a process that has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("second_port_cases.py")
NAMES = re.findall(r"^def (test_\w+)", CASES.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(CASES)],
        capture_output=True, text=True, timeout=300, check=False,
        env={
            **os.environ, "GDA_NIC": "software", "GDA_SIM_PORTS": "2",
            "GDA_SIM_DIRECTORY": str(tmp_path_factory.mktemp("meet")),
        },
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_case(outcome: str, name: str) -> None:
    assert re.search(rf"^PASSED \S*{CASES.name}::{name}$", outcome, re.MULTILINE), outcome
