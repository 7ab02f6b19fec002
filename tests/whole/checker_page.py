# SPDX-License-Identifier: Apache-2.0
"""The table of docs/checker.md, as the software NIC itself has it. Run as a program it rewrites the page."""

from __future__ import annotations

from pathlib import Path

from gda import attach

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checker.md"
HEAD = "| kind | the rule | where it stands | what to try |\n|---|---|---|---|\n"


def table() -> str:
    kinds = attach.software_nic().complaint_kinds().values()
    return HEAD + "".join(f"| `{k.name}` | {k.rule} | {k.source} | {k.advice} |\n" for k in kinds)


def page() -> str:
    """The page with the table of now."""
    return PAGE.read_text().partition(HEAD)[0] + table()


if __name__ == "__main__":
    PAGE.write_text(page())
