# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance suites on the software NIC and prints a row for each: `make conformance`.

    python -m tests.conformance [--json FILE] [--list] [--only PATTERN] [SUITE ...]

Ends with status 1 when anything failed, was skipped without a line in skips.txt, or stands there in vain.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .results import Row, rules, run_suite
from .suites import SUITES

WIDTH = 120  # of what is not a terminal


def report(rows: list[Row]) -> dict[str, object]:
    """Everything, for a machine."""
    return {
        "ok": not any(row.failures for row in rows),
        "suites": [
            {
                "name": row.suite.name,
                "passed": row.count("passed"),
                "failed": len(row.failures),
                "skipped": row.count("skipped"),
                "seconds": round(row.seconds, 2),
                "results": [vars(result) for result in row.results],
            }
            for row in rows
        ],
    }


def table(rows: list[Row]) -> Table:
    """A row a suite, for people."""
    shown = Table("suite", "what it is", box=None, header_style="bold")
    for heading in ("passed", "failed", "skipped", "seconds"):
        shown.add_column(heading, justify="right")
    for row in rows:
        failed = len(row.failures)
        colour = "red" if failed else "green"
        figures = [str(row.count("passed")), f"[{colour}]{failed}[/]", str(row.count("skipped")), f"{row.seconds:.1f}"]
        shown.add_row(row.suite.name, row.suite.about, *figures)
    return shown


def reasons(rows: list[Row]) -> list[tuple[int, str]]:
    """How many tests were skipped for each reason of skips.txt, most first."""
    allowed, counts = rules(), Counter[str]()
    for row in rows:
        for result in row.results:
            if result.outcome == "skipped":
                counts[next(rule.reason for rule in allowed if rule.allows(result))] += 1
    return [(count, reason) for reason, count in counts.most_common()]


def arguments(given: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__.splitlines()[0])
    names = [suite.name for suite in SUITES]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(names)}; without: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result there")
    parser.add_argument("--list", action="store_true", help="print the cases and run none")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="cases of this name, as a shell pattern")
    options = parser.parse_args(given)
    for name in options.suites:
        if name not in names:
            parser.error(f"no suite is called {name!r}; there are: {', '.join(names)}")
    return options


def main(given: list[str]) -> int:
    """Run what was asked for; 0 when all is well."""
    options = arguments(given)
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    rows: list[Row] = []
    for suite in SUITES:
        if options.suites and suite.name not in options.suites:
            continue
        cases = [case for case in suite.cases() if fnmatch.fnmatchcase(case.name, options.only)]
        if options.list:
            console.print(f"[bold]{suite.name}[/] ({suite.about}; at most {suite.limit_s:.0f} s)")
            for case in cases:
                console.print(f"    {case.name}", markup=False)
        elif cases:
            with tempfile.TemporaryDirectory(prefix="gda-conformance-") as place, console.status(suite.name) as status:
                rows.append(run_suite(suite, cases, Path(place), status.update))
            failed = len(rows[-1].failures)
            console.print(f"{suite.name}: {rows[-1].count('passed')} passed, {failed} failed", markup=False)
    if options.list:
        return 0
    for row in rows:
        for result in row.failures:
            console.rule(f"[red]{row.suite.name}: {result.outcome}", align="left")
            console.print(f"{result.name}\n{result.message}", markup=False)
    skips = reasons(rows)
    if skips:
        console.print("\nskipped, each with its line in tests/conformance/skips.txt:")
        for count, reason in skips:
            console.print(f"{count:5}  {reason}", markup=False)
    console.print()
    console.print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(report(rows), indent=1) + "\n")
    if not rows:
        console.print("nothing ran: no case has this name")
        return 1
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
