# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench latency`: who triggers, the steps of a kernel's put, and one put by size."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise

from gda.nic import open as open_nic
from gda.tools.bench import show
from gda.tools.bench.plot import Bars, Curves
from gda.tools.bench.post import PostCost, measure_post
from gda.tools.bench.present import check, lines_of, rows_of, size_text, title_of, write
from gda.tools.bench.steps import Stage, Step, measure_stages, measure_steps
from gda.tools.bench.transfer import Cost, measure_costs
from gda.tools.bench.triggers import BURST, Turn, measure_triggers

__all__ = ["latency"]

SIZES = (8, 64, 512, 4096, 65536, 1 << 20)
_SMALL = SIZES[0]


def latency(options: argparse.Namespace) -> None:
    """Measure and show."""
    check(options)
    with open_nic() as nic:
        show.print_heading(title_of("", nic, options))
        places = {"placement": options.placement, "queues": options.queues}
        turns, missing = measure_triggers(nic, _SMALL, seconds=options.seconds, beside=not options.idle, **places)
        _show_turns(turns, missing)
        steps = measure_steps(nic, _SMALL, **places)
        _show_steps(steps)
        stages = measure_stages(nic, _SMALL, **places)
        _show_stages(stages)
        costs = measure_costs(nic, SIZES, (1,), seconds=options.seconds, beside=not options.idle, **places)
        (posting,) = measure_post(doorbells=("record",), rows=("thread_shared",), launches=3)
        _show_sizes(costs, posting)
        result = {
            "triggers": [asdict(turn) for turn in turns],
            "not_measured": missing,
            "steps": [asdict(step) for step in steps],
            "stages": [asdict(stage) for stage in stages],
            "posting_alone_ns": posting.ns_per_post,
            "rows": rows_of(costs),
        }
        write(nic, options, result, [*_turn_panels(turns), _step_panel(steps), _size_panel(costs, posting)])


# -------------------------------------------------------------------------------------------------------- who triggers
def _show_turns(turns: list[Turn], missing: list[str]) -> None:
    for burst in dict.fromkeys(turn.burst for turn in turns):
        these = [turn for turn in turns if turn.burst == burst]
        rows = []
        for t in these:
            times = [show.time_text(ns) for ns in (t.median_ns, t.p99_ns)]
            rows.append([t.who, t.beside, *times, show.bars_text(t.counts), f"{t.rounds:,}"])
        what = f"an {_SMALL}-byte put" if burst == 1 else f"{burst} puts of {_SMALL} bytes to computed addresses"
        title = f'{what}: "a kernel decides" to "a kernel knows"'
        notes = [*_verdicts(these), *(missing if burst == 1 else ())]
        show.print_table(title, ("who triggers", "beside", "median", "99 %", "histogram", "rounds"), rows, notes)


def _verdicts(turns: Iterable[Turn]) -> list[str]:
    """The kernel against a proxy, in words."""
    notes = []
    by_condition: dict[str, dict[str, Turn]] = {}
    for turn in turns:
        by_condition.setdefault(turn.beside, {})[turn.who] = turn
    for beside, of in by_condition.items():
        if {"CPU proxy", "kernel"} <= of.keys():
            ratio = of["kernel"].median_ns / of["CPU proxy"].median_ns
            where = f"beside a {beside}" if beside else "alone"
            verdict = "slower" if ratio > 1 else "faster"
            notes.append(f"{where}, the kernel takes {ratio:.3g} times what the CPU proxy takes: it is {verdict}")
    return notes


def _turn_panels(turns: list[Turn]) -> list[Bars | Curves]:
    panels: list[Bars | Curves] = []
    for burst in (1, BURST):
        these = [turn for turn in turns if turn.burst == burst]
        names = list(dict.fromkeys(turn.who for turn in these))
        series: dict[str, list[float | None]] = {}
        for beside in dict.fromkeys(turn.beside for turn in these):
            of = {turn.who: turn for turn in these if turn.beside == beside}
            for label, pick in (("median", "median_ns"), ("99 %", "p99_ns")):
                values = [getattr(of[who], pick) / 1e3 if who in of else None for who in names]
                series[f"{label}, beside a {beside}" if beside else label] = values
        what = f"one {_SMALL}-byte put" if burst == 1 else f"{burst} puts to computed addresses"
        panels.append(Bars("microseconds, kernel decides to kernel knows", names, series, title=what))
    return [*panels, _histogram(turns)]


def _histogram(turns: list[Turn]) -> Curves:
    """Of one put, alone: the part of the rounds in each bin, at the bin's middle."""
    lines = {}
    for t in turns:
        if t.burst == 1 and not t.beside:
            middles = [(low * high) ** 0.5 / 1e3 for low, high in pairwise(t.edges_ns)]
            lines[t.who] = [(x, 100 * n / t.rounds) for x, n in zip(middles, t.counts, strict=True) if n]
    return Curves(("microseconds", "per cent of the rounds"), lines, title=f"one {_SMALL}-byte put, alone")


# --------------------------------------------------------------------------------------------------------------- steps
def _show_steps(steps: list[Step]) -> None:
    rows: list[list[str]] = []
    for record in dict.fromkeys(step.record for step in steps):
        of = [step for step in steps if step.record == record]
        name = "with" if record else "without"
        rows += [[s.what, name, *(show.time_text(ns) for ns in (s.mean_ns, s.median_ns, s.p99_ns))] for s in of]
        whole = sum(s.mean_ns for s in of if s.step != "clock")
        rows.append(["all of it", name, show.time_text(whole), "", ""])
    title = f"steps of an {_SMALL}-byte put by a kernel that owns its queue"
    notes = ["the clock is read after each step, and may advance in large ones; means are of the fastest 99 %"]
    show.print_table(title, ("step", "record", "mean", "median", "99 %"), rows, notes)


def _show_stages(stages: list[Stage]) -> None:
    if not stages:
        show.print_heading("no stages by a trace: this process notes one already (GDA_TRACE)")
        return
    rows = [[s.what, show.time_text(s.median_ns), show.time_text(s.p99_ns)] for s in stages]
    notes = ["a trace takes time itself; a card notes nothing, so there stand the kernel's moments only: docs/trace.md"]
    show.print_table(f"stages of an {_SMALL}-byte put by gda_put, traced", ("stage", "median", "99 %"), rows,
                     notes)  # fmt: skip


def _step_panel(steps: list[Step]) -> Bars:
    order = list(dict.fromkeys(step.step for step in steps))
    words = {step.step: step.what for step in reversed(steps)}  # those with record
    series: dict[str, list[float | None]] = {}
    for record in dict.fromkeys(step.record for step in steps):
        of = {step.step: step.mean_ns for step in steps if step.record == record}
        series["with record" if record else "without record"] = [of[step] for step in order]
    return Bars("nanoseconds, mean", [words[step] for step in order], series, title="steps of a kernel's put")


# ------------------------------------------------------------------------------------------------------------- by size
def _show_sizes(costs: list[Cost], posting: PostCost) -> None:
    rows = []
    for c in costs:
        times = [show.time_text(ns) for ns in (c.median_ns, c.p99_ns, c.fastest_ns)]
        rows.append([c.who, c.beside, size_text(c.bytes), *times, f"{c.rounds:,}"])
    notes = [
        f"of a kernel's put, posting alone takes {show.time_text(posting.ns_per_post)} (bench post)",
        *_compared(costs),
    ]
    head = ("who posts", "beside", "size", "median", "99 %", "fastest", "puts")
    title = "one put from post to completion, by the clock of who posts"
    show.print_table(title, head, rows, notes)


def _compared(costs: list[Cost]) -> list[str]:
    """Who is the faster for the smallest put, in words."""
    notes = []
    for beside in dict.fromkeys(c.beside for c in costs):
        of = {c.who: c for c in costs if c.beside == beside and c.bytes == _SMALL}
        ratio = of["kernel"].median_ns / of["CPU"].median_ns
        where = f"beside a {beside}" if beside else "alone"
        notes.append(f"{where}, an {_SMALL}-byte put by the kernel takes {ratio:.2f} times the CPU's")
    return notes


def _size_panel(costs: list[Cost], posting: PostCost) -> Curves:
    lines = lines_of(costs, lambda c: (c.bytes, c.median_ns / 1e3), "median")
    lines |= lines_of(costs, lambda c: (c.bytes, c.p99_ns / 1e3), "99 %")
    floor = {"posting alone": [(float(size), posting.ns_per_post / 1e3) for size in SIZES]}
    return Curves(("bytes", "microseconds, post to completion"), lines, floor, "one put, by size")
