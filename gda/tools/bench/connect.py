# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench connect`: what connecting costs a rank, by the number of ranks; its parts: connect_cost.py.

Document: docs/programs.md, "Team"; figures: docs/figures.md, "Connecting".
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict

from gda.errors import ArgumentError
from gda.nic import open as open_nic
from gda.tools.bench import show
from gda.tools.bench.connect_cost import Connecting, Law, fit, measure_connecting
from gda.tools.bench.connect_rank import NEIGHBOURS, WAYS
from gda.tools.bench.plot import Curves

__all__ = ["connect"]

_MOST_RANKS = 256
_TITLES = {
    "all": 'connect="all": each rank to each',
    "on demand, all": 'connect="on_demand": each rank to each, by team.connect()',
    NEIGHBOURS: 'connect="on_demand": each rank to the two beside it',
}
# The parts of a rank's time, and all of it.
_STEPS: dict[str, Callable[[Connecting], float]] = {
    "make": lambda row: row.make_s,
    "connect": lambda row: row.connect_s,
    "exchange": lambda row: row.exchange_s,
    "NIC": lambda row: row.nic_s,
    "all": lambda row: row.rank_s,
}


def connect(options: argparse.Namespace) -> None:
    """`bench connect`."""
    show.check_outputs(options.json, options.plot)
    show.check_seconds(options.seconds)
    ranks = show.ranks_of(options.ranks, _MOST_RANKS)
    if "gpu" in {options.placement, options.queues}:
        raise ArgumentError(
            "bench connect moves no payload, and its queue pairs lie in host memory",
            "leave --placement gpu and --queues gpu out",
        )
    if not 1 <= options.depth <= 32768:
        raise ArgumentError(f"--depth {options.depth} is outside 1..32768", "work requests of a queue pair's ring")
    load = os.getloadavg()[0]
    with open_nic() as nic:
        what = "processes with a NIC each" if options.processes else "threads of one process with one NIC"
        title = f"ranks are {what}: {nic.description}; depth {options.depth}; {os.cpu_count()} cores, load {load:.1f}"
    show.print_heading(title)
    rows, missing = measure_connecting(
        ranks, depth=options.depth, seconds=options.seconds, processes=options.processes
    )  # fmt: skip
    for way in WAYS:
        _show(_TITLES[way], [row for row in rows if row.way == way])
    for line in (*missing, *_notes(options.processes)):
        show.print_heading(line)
    if options.json:
        laws = {way: _law([row for row in rows if row.way == way]) for way in WAYS}
        result = {
            "ranks_are": "processes" if options.processes else "threads", "depth": options.depth,
            "cores": os.cpu_count(), "load_before": load, "not_measured": missing,
            "rows": [asdict(row) | {"each_s": row.each_s} for row in rows],
            "laws": {way: asdict(law) for way, law in laws.items() if law is not None},
        }  # fmt: skip
        show.write_json(options.json, "bench connect", "none are launched in what is measured", result)
    if options.plot:
        from gda.tools.bench import plot

        plot.draw(options.plot, title, _panels(rows), columns=2)


# -------------------------------------------------------------------------------------------------------------- tables
def _show(title: str, rows: Sequence[Connecting]) -> None:
    if not rows:
        return
    has_memory = rows[0].way == "all"
    head = ["ranks", "pairs of\na rank"]
    head += [f"{of}:\n{step}" for of in ("rank", "pair") for step in _STEPS]
    head += ["passed", "signal", *(["KiB of a pair:\nown, all told"] if has_memory else [])]
    table = []
    for row in rows:
        line = [str(row.ranks), str(row.queue_pairs)]
        line += [_ms(step(row) / share) for share in (1, row.queue_pairs) for step in _STEPS.values()]
        line += [_ms(row.passed_s), _ms(row.signal_s)]
        if has_memory:
            line.append(", ".join(f"{bytes / 1024:.1f}" for bytes in (row.queue_bytes, row.all_bytes) if bytes))
        table.append(line)
    show.print_table(f"{title}; ms", head, table, _verdict(rows))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f}"


def _verdict(rows: Sequence[Connecting]) -> list[str]:
    """Whether it is a line, in words."""
    law = _law(rows)
    if law is None:
        return []
    within = f"; no figure is off by more than {100 * law.off:.0f} %" if len(rows) > 2 else ""
    return [f"a rank takes {_law_text(law)}{within}"]


def _law(rows: Sequence[Connecting]) -> Law | None:
    """Of one way."""
    return fit([(row.ranks, row.rank_s) for row in rows])


def _law_text(law: Law) -> str:
    return f"{1e3 * law.base_s:.2f} ms {'-' if law.each_s < 0 else '+'} {1e3 * abs(law.each_s):.2f} ms x ranks"


def _notes(processes: bool) -> list[str]:
    notes = [
        "times of a rank and of a queue pair are CPU time, which does not grow while one waits for others or a core;",
        "NIC: the software NIC's thread; exchange: all that is neither make nor connect nor NIC",
        "passed: from the first rank's begin to the last one's end; signal: then, until each had one of its neighbour",
    ]
    if processes:
        return notes
    return [*notes, "Python's garbage collector rests meanwhile: it would look at the objects of all ranks at once"]


# ------------------------------------------------------------------------------------------------------------- picture
def _panels(rows: Sequence[Connecting]) -> list[Curves]:
    """A rank's time is a line, a queue pair's is flat; beside them the three ways, and memory."""
    by_way = {way: [row for row in rows if row.way == way] for way in WAYS}
    every = by_way["all"]
    of_rank = {name: [(float(row.ranks), 1e3 * step(row)) for row in every] for name, step in _STEPS.items()}
    of_pair = {name: [(x, y / x) for x, y in points] for name, points in of_rank.items()}
    ways = {_TITLES[way]: [(float(r.ranks), 1e3 * r.rank_s) for r in of] for way, of in by_way.items() if of}
    all_told = [(float(row.ranks), row.all_bytes / 1024) for row in every if row.all_bytes is not None]
    memory = {"own: rings, records, handle": [(float(row.ranks), row.queue_bytes / 1024) for row in every]}
    if all_told:
        memory["all told: what the process and its NIC grow by"] = all_told
    law, ceilings = _law(every), {}
    if law is not None:
        last = float(every[-1].ranks)
        ceilings[_law_text(law)] = [(0.0, 1e3 * max(0.0, law.base_s)), (last, 1e3 * law.at(last))]
    flat, straight = (True, False), (False, False)
    return [
        Curves(("ranks", "ms of CPU time"), of_rank, ceilings, "a rank that connects to each", straight),
        Curves(("ranks", "ms of CPU time"), of_pair, {}, "each of its queue pairs", flat),
        Curves(("ranks", "ms of CPU time"), ways, {}, "a rank, by the way in which it connects", straight),
        Curves(("ranks", "KiB"), memory, {}, "memory of a queue pair", flat),
    ]
