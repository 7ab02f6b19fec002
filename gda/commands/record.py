# SPDX-License-Identifier: Apache-2.0
"""`python -m gda record`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gda.errors import ArgumentError

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    record = command(
        "record",
        help="write down what a NIC answers, and compare two such records",
        description="Runs the demo and a sequence of commands, operations and deliberate errors, and writes every "
        "command, work request, completion and syndrome to a file of JSON. Two of them, of a card and of the software "
        "NIC, are compared by `record diff`. docs/hardware.md.",
        epilog="example: python -m gda record --out card.json; GDA_NIC=software python -m gda record --out soft.json; "
        "python -m gda record diff card.json soft.json",
    )
    record.set_defaults(run=run, action=None)
    record.add_argument("--out", metavar="FILE", help="where to write the record")
    record.add_argument("--nic", metavar="NAME", help="which NIC (default: what gda.open() takes)")
    record.add_argument("--peer", default="", metavar="HOST:PORT", help="where the other end is (default: here)")
    record.add_argument("--listen", type=int, metavar="PORT", help="be the other end for one recording")
    record.add_argument("--no-demo", action="store_true", help="leave the demo and doctor's lines out")
    actions = record.add_subparsers(dest="action", metavar="ACTION")
    diff = actions.add_parser(
        "diff", help="the differences of two records",
        description="Prints what differs, in the order of what it means. Exit status 0: nothing; 1: something does.",
    )  # fmt: skip
    diff.set_defaults(run=run_diff)
    diff.add_argument("first", metavar="A.json")
    diff.add_argument("second", metavar="B.json")
    diff.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    """Record; 0 when the sequence ran, whatever the NIC answered."""
    if options.listen is not None:
        from gda.tools.record.peer import listen

        listen(options.listen, nic=options.nic)
        return 0
    if not options.out:
        raise ArgumentError("record needs a file to write to", "python -m gda record --out FILE.json")
    from gda.tools.record.sequence import record

    out = Path(options.out)
    if not out.parent.is_dir():  # before minutes of work are lost
        raise ArgumentError(f"there is no directory {str(out.parent)!r}", "make it first")
    doctor = None
    if not options.no_demo:  # first: its probes are children, which CUDA would not survive
        from gda.tools.doctor import examine

        doctor = examine().to_json()
    data = record(peer=options.peer, with_demo=not options.no_demo, nic=options.nic) | {"doctor": doctor}
    out.write_text(json.dumps(data, indent=1) + "\n")
    failed = [s for s in data["steps"] if s["outcome"] != "ok" and not s["name"].startswith("error:")]
    print(f"{data['nic']['description']}, kernels on {data['machine']['kernels']}")
    print(f"{len(data['steps'])} steps, {len(data['commands'])} commands written to {out}")
    for step in failed:
        print(f"step [{step['name']}] failed: {step['error']['text']}")
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Compare; 0 for no difference, 1 otherwise."""
    from gda.tools.record.compare import compare

    comparison = compare(_read(options.first), _read(options.second))
    if options.json:
        rows = [vars(d) for d in comparison.differences]
        print(json.dumps({"compared": comparison.compared, "differences": rows}, indent=1))
        return 1 if rows else 0
    area, alike = "", Counter(d.kind for d in comparison.differences)
    for difference in comparison.differences:
        if difference.area != area:
            area = difference.area
            print(f"{area}:")
        count = alike.pop(difference.kind, 0)
        if count:  # the others of the same kind are counted here
            print(f"  {difference}" + (f"   (and at {count - 1} more places)" if count > 1 else ""))
    print(f"{comparison.compared} values compared, {len(comparison.differences)} differ")
    print("compared by order of appearance: numbers of queues, keys, pages, regions; addresses")
    print("not compared:", "; ".join(f"{name} ({why})" for name, why in comparison.not_compared.items()))
    return 1 if comparison.differences else 0


def _read(name: str) -> Any:
    try:
        return json.loads(Path(name).read_text())
    except (OSError, ValueError) as error:
        advice = "python -m gda record --out FILE.json makes one"
        raise ArgumentError(f"{name} cannot be read as a record: {error}", advice) from error
