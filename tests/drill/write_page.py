# SPDX-License-Identifier: Apache-2.0
"""Makes every fault of the drill and writes docs/fault_drill.md. Called by people; test_drill.py compares its rows."""

from __future__ import annotations

from pathlib import Path

from faults import FAULTS, Fault
from harness import Noticed, drill
from plain import tells

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fault_drill.md"
HEAD = "| fault | what gda says | within | what ibv_poll_cq says |\n|---|---|---|---|\n"


def row(fault: Fault, noticed: Noticed) -> str:
    """But for the last column."""
    says = noticed.says.replace("|", "\\|")
    return f"| {fault.name} | {says} | {fault.seconds:g} s |"


def row_of(fault: Fault) -> str:
    """As it stands in the page."""
    return next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {fault.name} |"))


if __name__ == "__main__":
    rows = "".join(f"{row(fault, drill(fault))} {tells(fault)} |\n" for fault in FAULTS)
    PAGE.write_text(PAGE.read_text().partition(HEAD)[0] + HEAD + rows)
