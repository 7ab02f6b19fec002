# SPDX-License-Identifier: Apache-2.0
"""Two ports of one NIC through `gda.open(port=...)`: the cases of second_port_cases.py, in a process that has them."""

from __future__ import annotations

from pathlib import Path

import elsewhere
import pytest

CASES = Path(__file__).with_name("second_port_cases.py")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    return elsewhere.run(CASES, tmp_path_factory.mktemp("meet"), GDA_SIM_PORTS="2")


@pytest.mark.parametrize("name", elsewhere.names(CASES))
def test_case(outcome: str, name: str) -> None:
    assert elsewhere.passed(outcome, CASES, name), outcome
