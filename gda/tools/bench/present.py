# SPDX-License-Identifier: Apache-2.0
"""What the commands that move bytes have in common: titles, lines of a picture, the JSON file. Used by report.py,
latency.py and rate.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gda.nic import Nic
from gda.run import Kernel
from gda.tools.bench import show
from gda.tools.bench.plot import Bars, Curves
from gda.tools.bench.post import KERNELS
from gda.tools.bench.transfer import Cost

__all__ = ["Points", "check", "lines_of", "rows_of", "size_text", "title_of", "write"]

Points = list[tuple[float, float]]


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot be done, before anything is measured."""
    show.check_outputs(options.json, options.plot)
    show.check_seconds(options.seconds)


def title_of(what: str, nic: Nic, options: argparse.Namespace, target: str | None = None) -> str:
    """What was measured, and where: kernels for `target`, as Kernel takes it."""
    where = Kernel(KERNELS, target=target).where
    parts = (what, nic.description, f"kernels on {where}", f"payload in {options.placement} memory")
    return "; ".join(filter(None, (*parts, "queues in GPU memory" if options.queues == "gpu" else "")))


def size_text(bytes: int) -> str:
    """In the largest whole unit."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes >= unit and bytes % unit == 0:
            return f"{bytes // unit} {name}"
    return f"{bytes} B"


def lines_of(costs: list[Cost], point: Callable[[Cost], tuple[float, float]], what: str = "") -> dict[str, Points]:
    """A line for each side and condition."""
    lines: dict[str, Points] = {}
    for cost in costs:
        label = ", ".join(filter(None, (cost.who, f"beside {cost.beside}" if cost.beside else "", what)))
        lines.setdefault(label, []).append(point(cost))
    return lines


def rows_of(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [asdict(c) | {"bytes_per_second": c.bytes_per_second, "load_lost": c.load_lost} for c in costs]


def write(
    nic: Nic, options: argparse.Namespace, result: dict[str, Any], panels: Sequence[Bars | Curves], columns: int = 1
) -> None:
    """The JSON file and the picture, if they were asked for."""
    if options.json:
        about = {"nic": nic.description, "placement": options.placement, "queues": options.queues}
        show.write_json(options.json, f"bench {options.measure}", Kernel(KERNELS).where, about | result)
    if options.plot:
        from gda.tools.bench import plot

        plot.draw(options.plot, title_of(options.measure, nic, options), panels, columns)
