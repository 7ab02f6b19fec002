# SPDX-License-Identifier: Apache-2.0
"""Prints a report for people: the verdict first, then the lines by group. Pleasant at 80 columns and in a pipe."""

from __future__ import annotations

import re

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gda.tools.doctor.examine import Report
from gda.tools.doctor.line import Line, Status

__all__ = ["picture", "show"]

_STYLES = {
    Status.OK: "green", Status.MISSING: "yellow", Status.PROBLEM: "bold red", Status.NOT_APPLICABLE: "dim",
    Status.UNKNOWN: "magenta",
}  # fmt: skip
_WORDS = {Status.NOT_APPLICABLE: "-", Status.UNKNOWN: "unknown"}
_MOST_STEPS = 5


def show(report: Report, console: Console) -> None:
    """Print it."""
    verdict = report.verdict
    console.print(Text("What you can run here", style="bold"))
    console.print(Padding(Text(verdict.can), (0, 0, 0, 2)))
    console.print(_table([(name, Text(text)) for name, text in verdict.uses.items()]))
    if verdict.steps:
        console.print(Text("\nWhat to do next", style="bold"))
        for number, step in enumerate(verdict.steps[:_MOST_STEPS], 1):
            console.print(_hanging(f"{number}. ", step))
        if len(verdict.steps) > _MOST_STEPS:
            console.print(f"  and {len(verdict.steps) - _MOST_STEPS} more below")
    groups = dict.fromkeys(line.group for line in report.lines)
    for group in groups:
        console.print(Text(f"\n{group[0].upper()}{group[1:]}", style="bold"))
        lines = [line for line in report.lines if line.group == group]
        console.print(_lines(lines))


def picture(console: Console) -> str:
    """What a recording console has shown, as SVG; nothing in it is fetched from elsewhere."""
    svg = console.export_svg(title="python -m gda doctor", unique_id="doctor")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)


def _lines(lines: list[Line]) -> Padding:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=8)
    table.add_column(width=20)
    table.add_column(ratio=1, overflow="fold")
    for line in lines:
        words = Text(line.value)
        if line.meaning:
            words.append(f"\n{line.meaning}", style="dim")
        if line.next:
            words.append(f"\nnext: {line.next}", style="cyan" if line.status is not Status.UNKNOWN else "dim")
        word = _WORDS.get(line.status, line.status.value)
        table.add_row(Text(word, style=_STYLES[line.status]), Text(line.name), words)
    return Padding(table, (0, 0, 0, 2))


def _table(rows: list[tuple[str, Text]]) -> Padding:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=10, style="dim")
    table.add_column(ratio=1, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, 2))


def _hanging(mark: str, text: str) -> Padding:
    table = Table.grid()
    table.add_column(width=len(mark))
    table.add_column(ratio=1, overflow="fold")
    table.add_row(mark, Text(text))
    return Padding(table, (0, 0, 0, 2))
