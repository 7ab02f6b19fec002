# SPDX-License-Identifier: Apache-2.0
"""Several NICs: the cases of rails_case.py, in a process that has two."""

from __future__ import annotations

from pathlib import Path

from tests.nic.elsewhere import names, passed, run

CASES = Path(__file__).with_name("rails_case.py")


def test_two_nics(tmp_path: Path) -> None:
    outcome = run(CASES, tmp_path / "nics", GDA_SIM_NICS="2")
    assert "failed" not in outcome and " passed" in outcome, outcome
    assert len(names(CASES)) == 2 and passed(outcome, CASES, "test_the_other_team_may_close_first")
