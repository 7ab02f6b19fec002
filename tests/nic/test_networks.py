# SPDX-License-Identifier: Apache-2.0
"""Two NICs in one process, on a network that changes: the cases of network_cases.py, in a process that has two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import elsewhere
import pytest

CASES = Path(__file__).with_name("network_cases.py")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    return elsewhere.run(CASES, tmp_path_factory.mktemp("meet"), GDA_SIM_NICS="2")


@pytest.mark.parametrize("name", elsewhere.names(CASES))
def test_case(outcome: str, name: str) -> None:
    assert elsewhere.passed(outcome, CASES, name), outcome


def test_an_address_of_the_host_is_in_the_table() -> None:
    """GDA_SIM_ADDRESS: behind the slot's own entries, RoCE v2; a kernel's neighbour for it is assumed."""
    script = (
        "import gda.nic; nic = gda.nic.open(); print([(g.index, str(g), g.type) for g in nic.gids][4:]);"
        "one, other = nic.loopback_pair(gid_index=4); print(one.state, other.gid.index)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "GDA_NIC": "software", "GDA_SIM_ADDRESS": "127.9.8.7"},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[(4, '127.9.8.7', 'RoCE v2')]", "RTS 4"], done.stdout + done.stderr
