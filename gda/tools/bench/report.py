# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m gda bench`: each measures, then shows its table, and writes JSON and a picture if asked.

Each function takes the parsed arguments of gda/commands/bench.py.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from gda.errors import ArgumentError
from gda.nic import Nic
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.bench import show
from gda.tools.bench.collectives import collectives
from gda.tools.bench.latency import latency
from gda.tools.bench.plot import Bars, Curves
from gda.tools.bench.post import BYTES, DEPTH, KERNELS, USUAL, PostCost, PostCount, count_post, measure_post, shapes
from gda.tools.bench.present import check, lines_of, rows_of, size_text, title_of, write
from gda.tools.bench.rate import rate
from gda.tools.bench.transfer import Cost, ceiling_bytes_per_second, measure_costs

__all__ = ["bandwidth", "collectives", "cpu", "latency", "post", "rate"]


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
    modes = list(dict.fromkeys(options.doorbell or USUAL))
    costs = measure_post(
        doorbells=modes, checks=checks, launches=options.launches, rows=options.row or (), second_lap=options.second_lap
    )
    for checked in checks:
        _post_table(costs, checked, options, where, other)
    counts = count_post(doorbells=modes, rows=options.row or (), second_lap=options.second_lap)
    _count_tables(counts, options)
    if options.json:
        rows = [asdict(cost) | {"posts_per_second": cost.posts_per_second} for cost in costs]
        result = {
            "stack": "gda",
            "bytes": BYTES,
            "depth": DEPTH,
            "launches": options.launches,
            "second_lap": options.second_lap,
            "rows": rows,
            "counts": [asdict(count) for count in counts],
        }
        show.write_json(options.json, "bench post", where, result)
    if options.plot:
        _post_plot(options.plot, costs, where, other)


def _by_row(costs: list[PostCost], checked: bool) -> dict[str, dict[str, PostCost]]:
    rows: dict[str, dict[str, PostCost]] = {}
    for cost in costs:
        if cost.checks == checked:
            rows.setdefault(cost.row, {})[cost.doorbell] = cost
    return rows


def _mode_text(doorbell: str) -> str:
    return {"record": "with record", "no-record": "without record"}.get(doorbell, f'"{doorbell}"')


def _others(other: show.Other, cost: PostCost) -> float | None:
    """Another stack's time for the same, where it has such a doorbell."""
    return other.ns.get((cost.row, cost.record, cost.checks)) if cost.doorbell in USUAL else None


def _post_table(
    costs: list[PostCost], checked: bool, options: argparse.Namespace, where: str, other: show.Other
) -> None:
    rows = _by_row(costs, checked)
    modes = list(dict.fromkeys(cost.doorbell for cost in costs))
    lap = ", second lap" if options.second_lap else ""
    state = "all checks on" if checked else "checks left out (GDA_UNCHECKED)"
    title = (
        f"posting alone, {state}: {BYTES}-byte puts, rings of {DEPTH:,}{lap}, no NIC; on {where}; "
        f"median of {options.launches}"
    )
    if not other.ns:
        table = [[next(iter(of.values())).who, *map(show.cost_text, of.values())] for of in rows.values()]
        show.print_table(title, ("who posts", *map(_mode_text, modes)), table)
        return
    for mode in modes:  # one table would be too wide
        table = []
        for of in rows.values():
            mine, ns = of[mode], _others(other, of[mode])
            text = "" if ns is None else show.time_text(ns) if mine.alone else show.rate_text(1e9 / ns)
            ratio = "" if ns is None else f"{ns / mine.ns_per_post:,.2f}x"
            table.append([mine.who, show.cost_text(mine), text, ratio])
        show.print_table(f"{_mode_text(mode)}; {title}", ("who posts", "gda", other.name, "ratio"), table)


def _count_tables(counts: list[PostCount], options: argparse.Namespace) -> None:
    lap = ", second lap" if options.second_lap else ""
    for mode in dict.fromkeys(count.doorbell for count in counts):
        rows = [
            [
                c.who.replace(", one queue", ""),
                *(show.count_text(n) for n in (c.fences, c.atomics, c.doorbells, c.records)),
            ]
            for c in counts
            if c.doorbell == mode
        ]
        show.print_table(
            f"each put, {_mode_text(mode)}{lap}: counted in a launch of its own",
            ("who posts", "fences", "atomics", "doorbells", "records"), rows,
        )  # fmt: skip


def _post_plot(file: str, costs: list[PostCost], where: str, other: show.Other) -> None:
    from gda.tools.bench import plot

    checks = sorted({cost.checks for cost in costs}, reverse=True)
    first = _by_row(costs, checks[0])
    series: dict[str, list[float | None]] = {}
    for checked in checks:
        rows = _by_row(costs, checked)
        for mode in next(iter(rows.values())):
            label = _mode_text(mode) + ("" if checked else ", unchecked")
            series[f"gda, {label}" if other.ns else label] = [rows[r][mode].posts_per_second / 1e6 for r in first]
            if other.ns:
                values = [_others(other, rows[row][mode]) for row in first]
                series[f"{other.name}, {label}"] = [1e3 / ns if ns else None for ns in values]
    names = [next(iter(of.values())).who for of in first.values()]
    title = f"posting alone, {BYTES}-byte puts, no NIC; {where}"
    plot.draw(file, title, [plot.Bars("million puts a second", names, series)])


# ------------------------------------------------------------------------- puts by a kernel and by the CPU, completed
BANDWIDTH_SIZES = (4096, 16384, 65536, 262144, 1 << 20, 4 << 20)


def bandwidth(options: argparse.Namespace) -> None:
    """`bench bandwidth`."""
    check(options)
    with open_nic() as nic:
        costs = _measure(nic, options, BANDWIDTH_SIZES)
        limits = {size: ceiling_bytes_per_second(nic, size, options.placement) for size in BANDWIDTH_SIZES}
        rows = [
            [c.who, c.beside, size_text(c.bytes), f"{c.bytes_per_second / 1e9:.2f} GB/s",
             f"{100 * c.bytes_per_second / limits[c.bytes][1]:.0f} %"]
            for c in costs
        ]  # fmt: skip
        name = limits[BANDWIDTH_SIZES[-1]][0]
        largest = BANDWIDTH_SIZES[-1]
        notes = [f"ceiling: {name}, {limits[largest][1] / 1e9:.1f} GB/s at {size_text(largest)}"]
        notes += _same_bandwidth(costs)
        head = ("who posts", "beside", "size", "bandwidth", "of the ceiling")
        show.print_heading(title_of("", nic, options))
        show.print_table("bytes a second, 32 puts in flight", head, rows, notes)
        ceilings = {name: [(float(size), limit / 1e9) for size, (_, limit) in limits.items()]}
        result = {"ceiling": name, "ceiling_bytes_per_second": {size: limit for size, (_, limit) in limits.items()}}
        lines = lines_of(costs, lambda c: (c.bytes, c.bytes_per_second / 1e9))
        write(nic, options, result | {"rows": rows_of(costs)}, [Curves(("bytes", "GB/s"), lines, ceilings)])


def _same_bandwidth(costs: list[Cost]) -> list[str]:
    """Whether it matters for large puts who posts, in words."""
    notes = []
    for beside in dict.fromkeys(c.beside for c in costs):
        of = {c.who: c for c in costs if c.beside == beside and c.bytes == BANDWIDTH_SIZES[-1]}
        ratio = of["kernel"].bytes_per_second / of["CPU"].bytes_per_second
        where = f"beside a {beside}" if beside else "alone"
        notes.append(f"{where}, {size_text(BANDWIDTH_SIZES[-1])} puts by the kernel have {ratio:.2f} times the CPU's")
    return notes


def cpu(options: argparse.Namespace) -> None:
    """`bench cpu`."""
    check(options)
    with open_nic() as nic:
        costs = _measure(nic, options, (8, 65536), proxy=True)
        show.print_heading(title_of("", nic, options))
        _cpu_tables(nic, costs)
        names = [f"{c.who}, {size_text(c.bytes)}" + (f", beside {c.beside}" if c.beside else "") for c in costs]
        series: dict[str, list[float | None]] = {
            "CPU": [c.cpu_ns_per_put / 1e3 for c in costs],
            "NIC's thread": [c.nic_cpu_ns_per_put / 1e3 for c in costs],
        }
        if nic.gpu is not None:
            series["SM"] = [c.sm_ns_per_put / 1e3 or None for c in costs]
        panels: list[Bars | Curves] = [Bars("seconds a million puts", names, series)]
        with_load = [(name, c) for name, c in zip(names, costs, strict=True) if c.load_alone_flops]
        if with_load:
            speeds: list[float | None] = [c.load_flops / 1e12 for _, c in with_load]
            alone = {"alone": with_load[0][1].load_alone_flops / 1e12}
            panels.append(Bars("TFLOP/s of the GEMM", [n for n, _ in with_load], {"beside puts": speeds}, alone))
        write(nic, options, {"rows": rows_of(costs)}, panels)


def _cpu_tables(nic: Nic, costs: list[Cost]) -> None:
    """Both columns, always: what the CPU gives and what the GPU gives."""
    first, second, third = [], [], []
    for c in costs:
        what = [c.who, c.beside, size_text(c.bytes)]
        spent = (c.cpu_ns_per_put, c.nic_cpu_ns_per_put, c.sm_ns_per_put)
        on_gpu = nic.gpu is not None
        million = [f"{ns / 1e3:.3f}" for ns in spent[: 2 + on_gpu]]
        first.append([*what, show.rate_text(c.per_second), *million, *([] if on_gpu else [""])])
        lost = f"{100 * c.load_lost:.1f} %" if c.load_alone_flops else ""
        second.append([*what, *(f"{ns / c.bytes:.3g}" for ns in spent[: 2 + on_gpu]), *([] if on_gpu else [""]), lost])
        for name, ns in sorted(c.threads.items(), key=lambda one: -one[1]):
            if ns >= 1:  # a thousandth of a second a million puts
                third.append([*what, name, f"{ns / 1e3:.3f}"])
    notes = ["CPU: this process but for the software NIC's thread, which a card does not have; SM: a block on a "
             "multiprocessor, however little of it"]  # fmt: skip
    if nic.gpu is None:
        notes.append("the kernel ran on the CPU: its own time is in the column CPU, and no GPU was used")
    if all(c.who != "CPU proxy" for c in costs):
        notes.append("no CPU proxy was measured: it needs a C++ compiler (python -m gda doctor)")
    if speed := next((c.load_alone_flops for c in costs if c.load_alone_flops), 0.0):
        notes.append(f"the GEMM alone: {speed / 1e12:,.3g} TFLOP/s")
    head = ("who posts", "beside", "size")
    spent_on = ("CPU", "NIC's thread", "SM")
    show.print_table("seconds a million puts, 32 in flight", (*head, "puts", *spent_on), first)
    show.print_table("seconds a GB, 32 in flight", (*head, *spent_on, "GEMM lost"), second, notes)
    about = ["main is Python's; ended: threads that live for one launch, so kernels on the CPU, and the proxy"]
    show.print_table("CPU by thread: seconds a million puts", (*head, "thread", "CPU"), third, about)


def _measure(nic: Nic, options: argparse.Namespace, sizes: tuple[int, ...], *, proxy: bool = False) -> list[Cost]:
    return measure_costs(
        nic, sizes, (32,), placement=options.placement, queues=options.queues, seconds=options.seconds,
        beside=not options.idle, proxy=proxy,
    )  # fmt: skip
