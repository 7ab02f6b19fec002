# SPDX-License-Identifier: Apache-2.0
"""How measurements are shown: tables, a JSON file, a PNG. Used by the commands of `python -m gda bench`."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gda import _cuda
from gda.errors import ArgumentError, UnavailableError
from gda.tools.bench.post import PostCost

__all__ = [
    "NO_PLOT",
    "Other",
    "bandwidth_text",
    "bars_text",
    "check_outputs",
    "check_seconds",
    "cost_text",
    "count_text",
    "print_heading",
    "print_table",
    "ranks_of",
    "rate_text",
    "read_other",
    "time_text",
    "write_json",
]

_WIDE = 200
_BARS = "▁▂▃▄▅▆▇█"
NO_PLOT = 'pip install "gda[plot]" (it needs matplotlib), or leave --plot out'


def time_text(ns: float) -> str:
    """Nanoseconds for people."""
    if ns < 1_000:
        return f"{ns:.1f} ns" if ns < 100 else f"{ns:.0f} ns"
    return f"{ns / 1e3:,.2f} us" if ns < 1_000_000 else f"{ns / 1e6:,.2f} ms"


def rate_text(per_second: float) -> str:
    """Millions a second for people, thousands if they are few."""
    if per_second < 1e4:
        return f"{per_second / 1e3:.3g} k/s"
    return f"{per_second / 1e6:,.{0 if per_second >= 1e8 else 1 if per_second >= 1e7 else 2}f} M/s"


def bandwidth_text(per_second: float) -> str:
    """Bytes a second for people."""
    return f"{per_second / 1e9:,.3g} GB/s" if per_second >= 1e9 else f"{per_second / 1e6:,.3g} MB/s"


def count_text(each: float) -> str:
    """A count for each put; rare ones as one in so many."""
    if each == 0:
        return "0"
    return f"{each:.3g}" if each >= 0.1 else f"1 in {1 / each:,.0f}"


def bars_text(counts: Sequence[int]) -> str:
    """A histogram in a line: blanks where there is nothing."""
    most = max(*counts, 1)
    return "".join(" " if n == 0 else _BARS[min(7, int(n * 7 / most + 0.5))] for n in counts)


def check_outputs(json_file: str | None, plot_file: str | None) -> None:
    """Refuse before a long measurement what could not be written after it."""
    for name in (json_file, plot_file):
        if name is not None and not Path(name).resolve().parent.is_dir():
            raise ArgumentError(f"{name} cannot be written: its folder does not exist", "make the folder first")
    if plot_file is None:
        return
    if Path(plot_file).suffix.lower() != ".png":
        raise ArgumentError(f"--plot {plot_file}: the picture is a PNG", "give it a name that ends in .png")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UnavailableError(f"--plot needs matplotlib, which cannot be imported ({error})", NO_PLOT) from None


def check_seconds(seconds: float) -> None:
    """Refuse what would never end, or measure nothing."""
    if not 0.001 <= seconds <= 60:
        raise ArgumentError(f"--seconds {seconds:g} is outside 0.001..60", "0.2 is long enough for most")


def ranks_of(text: str, most: int) -> list[int]:
    """The numbers of --ranks."""
    try:
        ranks = [int(word) for word in text.split(",")]
    except ValueError:
        ranks = []
    if not ranks or not all(1 <= size <= most for size in ranks):
        raise ArgumentError(f"--ranks {text}: numbers from 1 to {most} are wanted", "for example --ranks 2,4,8")
    return ranks


def print_heading(text: str) -> None:
    """A line before the tables, which says what holds for all of them."""
    Console(highlight=False, soft_wrap=True).print(text)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """One table; its first column is text, the others figures."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE  # a file or a pipe does not mind, and figures must not be cut
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(note)


def write_json(file: str, command: str, where: str, result: dict[str, Any]) -> None:
    """What was measured, with all that a reader needs to repeat it."""
    gpu, _ = _cuda.available()
    about = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "kernels": where,
        "machine": platform.machine(),
        "cuda_driver": _cuda.cuDriverGetVersion() if gpu else None,
    }
    Path(file).write_text(json.dumps(about | result, indent=1) + "\n")


@dataclass(frozen=True)
class Other:
    """Another stack's costs of posting: its name, and nanoseconds by (row, record, checks)."""

    name: str = ""
    ns: Mapping[tuple[str, bool, bool], float] = field(default_factory=dict)
    second_lap: bool = False


def read_other(file: str) -> Other:
    """Read another stack's costs of posting.

    The file is JSON as `bench post --json` writes it: "stack" (a name), "rows" with row, record, checks, ns_per_post.
    """
    try:
        data = json.loads(Path(file).read_text())
        rows = {(r["row"], bool(r["record"]), bool(r["checks"])): float(r["ns_per_post"]) for r in data["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{file} is no table of posting costs: {type(error).__name__} {error}",
            "it is JSON as --json writes it, with row, record, checks and ns_per_post in each of its rows",
        ) from None
    name = str(data.get("stack", "gda"))
    return Other(Path(file).stem if name == "gda" else name, rows, bool(data.get("second_lap", False)))


def cost_text(cost: PostCost) -> str:
    """A time where one thread posts alone, a rate else."""
    return time_text(cost.ns_per_post) if cost.alone else rate_text(cost.posts_per_second)
