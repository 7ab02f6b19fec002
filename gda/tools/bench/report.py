# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m gda bench`: each measures, then shows its table, and writes JSON and a picture if asked.

Each function takes the parsed arguments of bench_arguments.py.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from gda.errors import ArgumentError
from gda.run import Kernel
from gda.tools.bench import show
from gda.tools.bench.post import BYTES, DEPTH, KERNELS, PostCost, measure_post, shapes

__all__ = ["post"]


def post(options: argparse.Namespace) -> None:
    """`bench post`."""
    show.check_outputs(options.json, options.plot)
    if options.launches < 1:
        raise ArgumentError(f"--launches {options.launches}: at least one", "8 or more make a median")
    known = [shape.row for shape in shapes(4, 64)]
    if unknown := [name for name in options.row or () if name not in known]:
        raise ArgumentError(f"there is no row {unknown[0]!r}", f"rows: {', '.join(known)}")
    other = show.read_other(options.beside) if options.beside else show.Other()
    where = Kernel(KERNELS).where
    checks = (True, False) if options.unchecked else (True,)
    costs = measure_post(checks=checks, launches=options.launches, rows=options.row or ())
    for checked in checks:
        _post_table(costs, checked, where, options.launches, other)
    if options.json:
        rows = [asdict(cost) | {"posts_per_second": cost.posts_per_second} for cost in costs]
        result = {"stack": "gda", "bytes": BYTES, "depth": DEPTH, "launches": options.launches, "rows": rows}
        show.write_json(options.json, "bench post", where, result)
    if options.plot:
        _post_plot(options.plot, costs, where, other)


def _by_row(costs: list[PostCost], checked: bool) -> dict[str, dict[bool, PostCost]]:
    rows: dict[str, dict[bool, PostCost]] = {}
    for cost in costs:
        if cost.checks == checked:
            rows.setdefault(cost.row, {})[cost.record] = cost
    return rows


def _post_table(costs: list[PostCost], checked: bool, where: str, launches: int, other: show.Other) -> None:
    head = ["who posts", "with record", "without record"]
    for name in ("with record", "without record") if other.ns else ():
        head += [f"{other.name}, {name}", "ratio"]
    table = []
    for row, by_record in _by_row(costs, checked).items():
        line = [by_record[True].who, *(show.cost_text(by_record[record]) for record in (True, False))]
        for record in (True, False) if other.ns else ():
            mine, ns = by_record[record], other.ns.get((row, record, checked))
            if ns is None:
                line += ["", ""]
            else:
                text = show.time_text(ns) if mine.alone else show.rate_text(1e9 / ns)
                line += [text, f"{ns / mine.ns_per_post:.2f}x"]
        table.append(line)
    state = "all checks on" if checked else "checks left out (GDA_UNCHECKED)"
    show.print_table(
        f"posting alone, {state}: {BYTES}-byte puts, rings of {DEPTH:,}, no NIC; on {where}; median of {launches}",
        head, table,
    )  # fmt: skip


def _post_plot(file: str, costs: list[PostCost], where: str, other: show.Other) -> None:
    from gda.tools.bench import plot

    checks = sorted({cost.checks for cost in costs}, reverse=True)
    first = _by_row(costs, checks[0])
    series: dict[str, list[float | None]] = {}
    for checked in checks:
        rows = _by_row(costs, checked)
        for record in (True, False):
            label = ("with" if record else "without") + " record" + ("" if checked else ", unchecked")
            series[f"gda, {label}" if other.ns else label] = [rows[r][record].posts_per_second / 1e6 for r in first]
            if other.ns:
                values = [other.ns.get((row, record, checked)) for row in first]
                series[f"{other.name}, {label}"] = [1e3 / ns if ns else None for ns in values]
    names = [by_record[True].who for by_record in first.values()]
    plot.bars(file, f"posting alone, {BYTES}-byte puts, no NIC; {where}", "million puts a second", names, series)
