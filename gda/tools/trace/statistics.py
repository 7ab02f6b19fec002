# SPDX-License-Identifier: Apache-2.0
"""How long each stage of the requests took: medians, 99 %, histograms, and a table of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from gda.tools.trace.events import Array
from gda.tools.trace.puts import STAGES

__all__ = ["Stage", "histogram", "print_table", "stages", "time_words"]

# What happens between a moment and the next one, and by whom.
WORDS = {
    ("reserve", "write"): "kernel writes the request into its slot",
    ("write", "ring"): "kernel: whose turn it is to ring, barrier",
    ("ring", "seen"): "record, barrier, doorbell, until the NIC has seen it",
    ("seen", "fetch"): "NIC: those before it, then reads the request",
    ("fetch", "wire"): "NIC: keys, first packet leaves",
    ("wire", "peer"): "on the wire, until the peer has carried out all of it",
    ("peer", "ack"): "the answer on its way back",
    ("ack", "cqe"): "NIC writes the completion",
    ("cqe", "done"): "until the kernel has read the completion",
}
WHOLE = "all of it"
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Stage:
    """Times of one stage, in nanoseconds, over all requests that have both ends of it."""

    begin: str
    end: str
    words: str
    times_ns: Array

    @property
    def p50_ns(self) -> float:
        """The median."""
        return float(np.percentile(self.times_ns, 50))

    @property
    def p99_ns(self) -> float:
        """99 % took no longer."""
        return float(np.percentile(self.times_ns, 99))

    def histogram(self, bins: int = 16) -> tuple[Array, Array]:
        """Counts, and the edges of the bins in nanoseconds: equal steps of the logarithm."""
        return histogram(self.times_ns, bins)


def histogram(times_ns: Array, bins: int = 16) -> tuple[Array, Array]:
    """Counts and edges of bins of equal ratio; times below one nanosecond count as one."""
    clipped = np.maximum(times_ns, 1)
    low, high = float(clipped.min()), float(clipped.max())
    edges = np.geomspace(low, max(high, low * 1.01), bins + 1)
    edges[0], edges[-1] = low, max(high, edges[-1])
    counts, _ = np.histogram(clipped, edges)
    return counts, edges


def stages(puts: Array) -> list[Stage]:
    """Each stage that some request has both ends of, and all of it at the end."""
    found = []
    for (begin, end), words in WORDS.items():
        both = puts[(puts[begin] >= 0) & (puts[end] >= 0)]
        if len(both):
            found.append(Stage(begin, end, words, both[end] - both[begin]))
    for begin in STAGES[:5]:  # kernels may not be traced
        for end in reversed(STAGES[5:]):
            both = puts[(puts[begin] >= 0) & (puts[end] >= 0)]
            if len(both):
                return [*found, Stage(begin, end, WHOLE, both[end] - both[begin])]
    return found


def time_words(ns: float) -> str:
    """A time with the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def print_table(puts: Array, console: Console | None = None) -> None:
    """A row for each stage: median, 99 %, a histogram over the logarithm of the time."""
    table = Table(title=f"{len(puts)} request{'s' * (len(puts) != 1)}", title_justify="left")
    for name, justify in (("stage", "left"), ("p50", "right"), ("p99", "right"), ("fastest to slowest", "left"),
                          ("what it is", "left")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for stage in stages(puts):
        counts, edges = stage.histogram()
        most = max(int(counts.max()), 1)
        bars = "".join(" " if n == 0 else _BARS[min(7, int(n * 7 / most + 0.5))] for n in counts.tolist())
        shown = f"{time_words(edges[0])} {bars} {time_words(edges[-1])}"
        if stage.times_ns.min() == stage.times_ns.max():
            shown = time_words(edges[0])
        name = f"{stage.begin} → {stage.end}"
        table.add_row(name, time_words(stage.p50_ns), time_words(stage.p99_ns), shown, stage.words,
                      style="bold" if stage.words == WHOLE else "")  # fmt: skip
    (console or Console()).print(table)
