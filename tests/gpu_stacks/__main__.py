# SPDX-License-Identifier: Apache-2.0
"""Other people's GPU stacks, unmodified, on the software NIC: `make test-gpu-stacks`.

    python -m tests.gpu_stacks [--json FILE] [--only WORD]

Two processes of a program of ours put, signal and wait from kernels through NVSHMEM's IBGDA and NCCL's GIN; every value
is checked. A stack that this machine does not have is "not run", with the reason. Status 1 when a value was wrong or a
process did not end.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .machine import Machine
from .stacks import CASES, Case, Outcome, build, run

WIDTH = 120  # of what is not a terminal


def judge(machine: Machine, cases: list[Case]) -> tuple[list[Outcome], dict[str, str]]:
    """Run what can run; the rest with its reason."""
    outcomes: list[Outcome] = []
    left_out: dict[str, str] = {}
    for case in cases:
        reason = machine.missing(case.stack)
        if reason:
            left_out[case.name] = reason
            continue
        program = build(machine, case.program)
        with machine.shared() as shared:  # anew for each: a case that had to be killed leaves the service unusable
            outcomes.append(run(machine, case, program, shared))
    return outcomes, left_out


def report(machine: Machine, outcomes: list[Outcome], left_out: dict[str, str]) -> dict[str, object]:
    """Everything, for a machine."""
    return {
        "ok": all(outcome.ok for outcome in outcomes),
        "gpus": machine.gpus,
        "cases": [
            {
                "name": outcome.case.name,
                "ok": outcome.ok,
                "seconds": round(outcome.seconds, 1),
                "statuses": outcome.statuses,
                "wrong": outcome.checks,
                "measures": {name: {"value": value, "unit": unit} for name, (value, unit) in outcome.measures.items()},
            }
            for outcome in outcomes
        ],
        "not run": left_out,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_stacks")
    parser.add_argument("--json", type=Path, help="where every result goes")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    options = parser.parse_args(argv)
    machine = Machine()
    cases = [case for case in CASES if options.only.lower() in case.name.lower()]
    outcomes, left_out = judge(machine, cases)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    table = Table("case", "result", box=None, header_style="bold")
    for heading in ("checks", "seconds"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        result = "[green]every value right[/]" if outcome.ok else f"[red]failed, statuses {outcome.statuses}[/]"
        table.add_row(outcome.case.name, result, str(len(outcome.checks)), f"{outcome.seconds:.1f}")
    for name, reason in left_out.items():
        table.add_row(name, f"not run: {reason}", "", "")
    console.print(table)
    for outcome in outcomes:
        if not outcome.ok:
            wrong = {name: count for name, count in outcome.checks.items() if count}
            console.print(f"{outcome.case.name}: wrong values: {wrong}; it said\n{outcome.words}", markup=False)
        for name, (value, unit) in outcome.measures.items():
            console.print(f"{outcome.case.name}: {name}: {value:g} {unit}", markup=False)
    if options.json:
        options.json.write_text(json.dumps(report(machine, outcomes, left_out), indent=1) + "\n")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
