# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench rate`: puts a second by blocks, threads, queues, size, puts a doorbell and puts in flight."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from gda.nic import Nic
from gda.nic import open as open_nic
from gda.tools.bench import show
from gda.tools.bench.plot import Curves
from gda.tools.bench.post import PostCost, measure_post
from gda.tools.bench.present import Points, check, size_text, title_of, write
from gda.tools.bench.sweep import SMALL, SWEEPS, Ceilings, RateCost, measure_ceilings, measure_sweeps
from gda.tools.bench.transfer import ceiling_bytes_per_second
from gda.tools.bench.triggers import BURST

__all__ = ["rate"]

_POSTING = ("thread_shared", "warp_thread_scope", "blocks_threads")


def rate(options: argparse.Namespace) -> None:
    """Measure and show."""
    check(options)
    with open_nic() as nic:
        show.print_heading(title_of("", nic, options))
        places = {"placement": options.placement, "queues": options.queues}
        ceilings = measure_ceilings(nic, **places)
        alone = measure_post(doorbells=("record",), rows=_POSTING, launches=3)
        costs = measure_sweeps(nic, seconds=options.seconds, beside=not options.idle, **places)
        for sweep, words in SWEEPS.items():
            _show_sweep([cost for cost in costs if cost.sweep == sweep], words, ceilings)
        for note in _notes(ceilings, alone):
            show.print_heading(note)
        result = {
            "nic_alone_per_second": ceilings.nic,
            "proxy_per_second": ceilings.proxy,
            "posting_alone_per_second": {cost.row: cost.posts_per_second for cost in alone},
            "rows": [asdict(cost) | {"bytes_per_second": cost.bytes_per_second} for cost in costs],
        }
        write(nic, options, result, _panels(nic, options, costs, ceilings), columns=2)


def _show_sweep(costs: list[RateCost], words: str, ceilings: Ceilings) -> None:
    rows = []
    for c in costs:
        value = size_text(c.value) if c.sweep == "bytes" else f"{c.value:,}"
        shape = f"{c.blocks} x {c.threads}, {c.queues}" if c.blocks else ""
        of_nic = f"{100 * c.per_second / ceilings.nic[c.bytes]:.0f} %"
        payload = show.bandwidth_text(c.bytes_per_second)
        rows.append([c.who, c.beside, value, shape, show.rate_text(c.per_second), payload, of_nic])
    head = ("who posts", "beside", costs[0].sweep, "grid, queues", "puts", "payload", "of NIC")
    show.print_table(f"puts a second by {words}", head, rows)


def _notes(ceilings: Ceilings, alone: list[PostCost]) -> list[str]:
    sizes = ", ".join(f"{size_text(size)} {show.rate_text(most)}" for size, most in ceilings.nic.items())
    notes = [
        "grid: blocks x threads. of NIC: of its rate on one queue with prepared requests, of which one doorbell tells",
        f"that rate: {sizes}",
    ]
    if ceilings.proxy:
        notes.append(f"a CPU proxy that a warp asks for {BURST} puts at a time: {show.rate_text(ceilings.proxy)}")
    else:
        notes.append("no CPU proxy was measured: it needs a C++ compiler (python -m gda doctor)")
    notes += [f"posting alone, {cost.who}: {show.rate_text(cost.posts_per_second)} (bench post)" for cost in alone]
    return notes


def _panels(nic: Nic, options: argparse.Namespace, costs: list[RateCost], ceilings: Ceilings) -> list[Curves]:
    panels = []
    for sweep, words in SWEEPS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for c in costs:
            if c.sweep == sweep:
                label = f"{c.who}, beside a {c.beside}" if c.beside else c.who
                lines.setdefault(label, []).append((c.value, c.per_second))
        ends = [float(pick(x for line in lines.values() for x, _ in line)) for pick in (min, max)]
        drawn: dict[str, Points] = {"NIC alone, one queue": [(x, ceilings.nic[SMALL]) for x in ends]}
        if sweep == "bytes":
            limits = {size: ceiling_bytes_per_second(nic, size, options.placement) for size in ceilings.nic}
            name = next(iter(limits.values()))[0]
            drawn = {
                "NIC alone, one queue": [(float(size), most) for size, most in ceilings.nic.items()],
                name: [(float(size), most / size) for size, (_, most) in limits.items() if size >= 4096],
            }
        elif ceilings.proxy:
            drawn["CPU proxy"] = [(x, ceilings.proxy) for x in ends]
        panels.append(Curves((words, "puts a second"), lines, drawn))
    return panels
