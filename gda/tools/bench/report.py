# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m gda bench`: each measures, then shows its table, and writes JSON and a picture if asked.

Each function takes the parsed arguments of gda/commands/bench.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gda.errors import ArgumentError
from gda.nic import Nic
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.bench import show
from gda.tools.bench.post import BYTES, DEPTH, KERNELS, PostCost, measure_post, shapes
from gda.tools.bench.transfer import Cost, ceiling_bytes_per_second, measure_costs

__all__ = ["bandwidth", "cpu", "latency", "post", "rate"]


def post(options: argparse.Namespace) -> None:
    """`bench post`."""
    show.check_outputs(options.json, options.plot)
    if options.launches < 1:
        raise ArgumentError(f"--launches {options.launches}: at least one", "8 or more make a median")
    known = [shape.row for shape in shapes(4, 64)]
    if unknown := [name for name in options.row or () if name not in known]:
        raise ArgumentError(f"there is no row {unknown[0]!r}", f"rows: {', '.join(known)}")
    other = show.read_other(options.beside) if options.beside else show.Other()
    if other.ns and other.second_lap != options.second_lap:
        raise ArgumentError(
            f"{options.beside} was measured {'in the second lap' if other.second_lap else 'with new rings'}",
            "measure both with --second-lap, or both without",
        )
    where = Kernel(KERNELS).where
    checks = (True, False) if options.unchecked else (True,)
    costs = measure_post(
        checks=checks, launches=options.launches, rows=options.row or (), second_lap=options.second_lap
    )
    for checked in checks:
        _post_table(costs, checked, options, where, other)
    if options.json:
        rows = [asdict(cost) | {"posts_per_second": cost.posts_per_second} for cost in costs]
        result = {
            "stack": "gda",
            "bytes": BYTES,
            "depth": DEPTH,
            "launches": options.launches,
            "second_lap": options.second_lap,
            "rows": rows,
        }
        show.write_json(options.json, "bench post", where, result)
    if options.plot:
        _post_plot(options.plot, costs, where, other)


def _by_row(costs: list[PostCost], checked: bool) -> dict[str, dict[bool, PostCost]]:
    rows: dict[str, dict[bool, PostCost]] = {}
    for cost in costs:
        if cost.checks == checked:
            rows.setdefault(cost.row, {})[cost.record] = cost
    return rows


def _post_table(
    costs: list[PostCost], checked: bool, options: argparse.Namespace, where: str, other: show.Other
) -> None:
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
    lap = ", second lap" if options.second_lap else ""
    state = "all checks on" if checked else "checks left out (GDA_UNCHECKED)"
    show.print_table(
        f"posting alone, {state}: {BYTES}-byte puts, rings of {DEPTH:,}{lap}, no NIC; on {where}; "
        f"median of {options.launches}",
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


# ------------------------------------------------------------------------- puts by a kernel and by the CPU, completed
LATENCY_SIZES = (8, 64, 512, 4096, 65536, 1 << 20)
BANDWIDTH_SIZES = (4096, 16384, 65536, 262144, 1 << 20, 4 << 20)
IN_FLIGHT = (1, 8, 32, 128)
Points = list[tuple[float, float]]


def latency(options: argparse.Namespace) -> None:
    """`bench latency`."""
    _check(options)
    with open_nic() as nic:
        costs = _measure(nic, options, LATENCY_SIZES, (1,))
        (posting,) = measure_post(record=(True,), rows=("thread_shared",), launches=3)
        rows = []
        for c in costs:
            times = [show.time_text(ns) for ns in (c.median_ns, c.p99_ns, c.fastest_ns)]
            rows.append([c.who, c.beside, _size(c.bytes), *times, f"{c.rounds:,}"])
        notes = [
            f"of a kernel's put, posting alone takes {show.time_text(posting.ns_per_post)} (bench post)",
            *_compared(costs),
        ]
        head = ("who posts", "beside", "size", "median", "99 %", "fastest", "puts")
        show.print_table(_title("one put in flight", nic, options), head, rows, notes)
        result = {"posting_alone_ns": posting.ns_per_post}
        floor = {"posting alone": [(float(size), posting.ns_per_post / 1e3) for size in LATENCY_SIZES]}
        lines = _lines(costs, lambda c: (c.bytes, c.median_ns / 1e3), "median")
        lines |= _lines(costs, lambda c: (c.bytes, c.p99_ns / 1e3), "99 %")
        _write(nic, options, costs, result, Picture(("bytes", "microseconds"), lines, floor))


def _compared(costs: list[Cost]) -> list[str]:
    """Who is the faster for the smallest put, in words."""
    notes = []
    for beside in dict.fromkeys(c.beside for c in costs):
        of = {c.who: c for c in costs if c.beside == beside and c.bytes == LATENCY_SIZES[0]}
        ratio = of["kernel"].median_ns / of["CPU"].median_ns
        where = f"beside a {beside}" if beside else "alone"
        notes.append(f"{where}, an {LATENCY_SIZES[0]}-byte put by the kernel takes {ratio:.2f} times the CPU's")
    return notes


def rate(options: argparse.Namespace) -> None:
    """`bench rate`."""
    _check(options)
    with open_nic() as nic:
        shapes_of = [(1, 1), (1, 32), (32, 32)] if nic.gpu is not None else [(1, 1), (1, 32)]
        costs = _measure(nic, options, (8,), IN_FLIGHT, shapes_of)
        alone = measure_post(record=(True,), rows=("thread_shared", "warp_thread_scope", "blocks_threads"), launches=3)
        rows = [[c.who, c.beside, f"{c.burst:,}", show.rate_text(c.per_second)] for c in costs]
        notes = [f"posting alone, {cost.who}: {show.rate_text(cost.posts_per_second)} (bench post)" for cost in alone]
        title = _title("8-byte puts", nic, options)
        show.print_table(title, ("who posts", "beside", "in flight", "puts a second"), rows, notes)
        ends = (1.0, float(max(c.burst for c in costs)))
        ceilings = {f"posting alone, {c.who}": [(x, c.posts_per_second) for x in ends] for c in alone}
        result = {"posting_alone_per_second": {cost.row: cost.posts_per_second for cost in alone}}
        lines = _lines(costs, lambda c: (c.burst, c.per_second))
        _write(nic, options, costs, result, Picture(("puts in flight", "puts a second"), lines, ceilings))


def bandwidth(options: argparse.Namespace) -> None:
    """`bench bandwidth`."""
    _check(options)
    with open_nic() as nic:
        costs = _measure(nic, options, BANDWIDTH_SIZES, (32,))
        limits = {size: ceiling_bytes_per_second(nic, size, options.placement) for size in BANDWIDTH_SIZES}
        rows = [
            [c.who, c.beside, _size(c.bytes), f"{c.bytes_per_second / 1e9:.2f} GB/s",
             f"{100 * c.bytes_per_second / limits[c.bytes][1]:.0f} %"]
            for c in costs
        ]  # fmt: skip
        name = limits[BANDWIDTH_SIZES[-1]][0]
        notes = [f"ceiling: {name}, {limits[BANDWIDTH_SIZES[-1]][1] / 1e9:.1f} GB/s at {_size(BANDWIDTH_SIZES[-1])}"]
        head = ("who posts", "beside", "size", "bandwidth", "of the ceiling")
        show.print_table(_title("32 puts in flight", nic, options), head, rows, notes)
        ceilings = {name: [(float(size), limit / 1e9) for size, (_, limit) in limits.items()]}
        result = {"ceiling": name, "ceiling_bytes_per_second": {size: limit for size, (_, limit) in limits.items()}}
        lines = _lines(costs, lambda c: (c.bytes, c.bytes_per_second / 1e9))
        _write(nic, options, costs, result, Picture(("bytes", "GB/s"), lines, ceilings))


def cpu(options: argparse.Namespace) -> None:
    """`bench cpu`."""
    _check(options)
    with open_nic() as nic:
        costs = _measure(nic, options, (8, 65536), (32,))
        rows = []
        for c in costs:
            lost = f"{100 * c.load_lost:.1f} %" if c.load_alone_flops else ""
            times = [f"{ns / 1e3:.3f} s" for ns in (c.cpu_ns_per_put, c.nic_cpu_ns_per_put, c.sm_ns_per_put)]
            rows.append([c.who, c.beside, _size(c.bytes), show.rate_text(c.per_second), *times,
                         f"{c.cpu_ns_per_put / c.bytes:.3f} s", lost])  # fmt: skip
        head = ("who posts", "beside", "size", "puts", "CPU", "NIC's thread", "SM", "CPU a GB", "GEMM lost")
        notes = ["CPU, NIC's thread (software NIC only) and SM (a block on a multiprocessor): seconds a million puts"]
        if nic.gpu is None:
            notes.append("the kernel ran on the CPU: its own time is in the column CPU, and no GPU was used")
        if speed := next((c.load_alone_flops for c in costs if c.load_alone_flops), 0.0):
            notes.append(f"the GEMM alone: {speed / 1e12:,.3g} TFLOP/s")
        show.print_table(_title("32 puts in flight", nic, options), head, rows, notes)
        _write(nic, options, costs, {}, None)
        if options.plot:
            from gda.tools.bench import plot

            names = [f"{c.who}, {_size(c.bytes)}" + (f", beside {c.beside}" if c.beside else "") for c in costs]
            series: dict[str, list[float | None]] = {
                "CPU": [c.cpu_ns_per_put / 1e3 for c in costs],
                "NIC's thread": [c.nic_cpu_ns_per_put / 1e3 for c in costs],
                "SM": [c.sm_ns_per_put / 1e3 or None for c in costs],
            }
            plot.bars(options.plot, _title("32 puts in flight", nic, options), "seconds a million puts", names, series)


def _check(options: argparse.Namespace) -> None:
    show.check_outputs(options.json, options.plot)
    if not 0.001 <= options.seconds <= 60:
        raise ArgumentError(f"--seconds {options.seconds:g} is outside 0.001..60", "0.2 is long enough for most")


def _measure(
    nic: Nic, options: argparse.Namespace, sizes: tuple[int, ...], bursts: tuple[int, ...],
    threads: list[tuple[int, int]] | None = None,
) -> list[Cost]:  # fmt: skip
    return measure_costs(
        nic, sizes, bursts, placement=options.placement, queues=options.queues, seconds=options.seconds,
        beside=not options.idle, shapes=threads or [(1, 1)],
    )  # fmt: skip


def _title(what: str, nic: Nic, options: argparse.Namespace) -> str:
    where = Kernel(KERNELS).where
    return f"{what}; {nic.description}; kernels on {where}; payload in {options.placement} memory"


def _size(bytes: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes >= unit and bytes % unit == 0:
            return f"{bytes // unit} {name}"
    return f"{bytes} B"


def _lines(costs: list[Cost], point: Callable[[Cost], tuple[float, float]], what: str = "") -> dict[str, Points]:
    """A line for each side and condition."""
    lines: dict[str, Points] = {}
    for cost in costs:
        label = ", ".join(filter(None, (cost.who, f"beside {cost.beside}" if cost.beside else "", what)))
        lines.setdefault(label, []).append(point(cost))
    return lines


@dataclass(frozen=True)
class Picture:
    """What `bench latency`, `rate` and `bandwidth` draw."""

    labels: tuple[str, str]
    lines: dict[str, Points]
    ceilings: dict[str, Points]


def _write(
    nic: Nic, options: argparse.Namespace, costs: list[Cost], result: dict[str, Any], picture: Picture | None
) -> None:
    if options.json:
        rows = [asdict(c) | {"bytes_per_second": c.bytes_per_second, "load_lost": c.load_lost} for c in costs]
        about = {"nic": nic.description, "placement": options.placement, "queues": options.queues}
        show.write_json(
            options.json, f"bench {options.measure}", Kernel(KERNELS).where, about | result | {"rows": rows}
        )
    if options.plot and picture is not None:
        from gda.tools.bench import plot

        title = _title(options.measure, nic, options)
        plot.curves(options.plot, title, picture.labels, picture.lines, ceilings=picture.ceilings)
