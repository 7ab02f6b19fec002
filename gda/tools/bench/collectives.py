# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench collectives`: all-reduce of 2 and 4 ranks of this host, by algorithm, protocol and size, and
mpi4py's beside it. What each rank measures: reduce_rank.py. Figures: docs/figures.md, "Collectives".

On the CPU ranks are processes. On a GPU they are threads: processes take turns on it, and each would wait for a turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gda.comm import threads
from gda.errors import ArgumentError
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.bench import show
from gda.tools.bench.plot import Curves
from gda.tools.bench.present import check, size_text, title_of, write
from gda.tools.bench.processes import answer_of, as_ranks
from gda.tools.bench.reduce_rank import device, times_kernel

__all__ = ["collectives"]

SIZES = (8, 128, 1024, 8192, 65536, 524288, 4 << 20)
RANKS = (2, 4)
_RANK = "gda.tools.bench.reduce_rank"
_SHORT = {"simple": "simple", "ll": "LL", "ll128": "LL128"}
Rows = list[dict[str, Any]]


def collectives(options: argparse.Namespace) -> None:
    """Measure and show."""
    check(options)
    rows: Rows = []
    missing = _why_no_mpi()
    on_gpu = options.placement == "gpu"
    if not on_gpu and options.queues == "gpu":
        raise ArgumentError("--queues gpu with kernels on the CPU", "add --placement gpu")
    if on_gpu:
        missing = "mpi4py: not run, it adds in host memory"
    kernel = times_kernel("gpu") if on_gpu else None
    for size in RANKS:
        found = _device(size, options.seconds) if kernel is None else _as_threads(size, options, kernel)
        if not missing:
            found += _mpi(size, options.seconds)
        rows += [{"ranks": size, **row} for row in found]
    with open_nic() as nic:
        show.print_heading(title_of("all-reduce, float32 sum, in place", nic, options, "gpu" if on_gpu else "host"))
        for size in RANKS:
            _show(size, [row for row in rows if row["ranks"] == size], missing)
        panels = [_panel(size, [row for row in rows if row["ranks"] == size]) for size in RANKS]
        write(nic, options, {"rows": rows, "not_measured": [missing] if missing else []}, panels)


def _why_no_mpi() -> str:
    """Empty if mpi4py can be measured."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py: not run, it is not installed (pip install mpi4py mpich)"
    return "" if _mpirun() else "mpi4py: not run, there is no mpirun (pip install mpich)"


def _mpirun() -> str | None:
    """What pip has put beside this Python, or one on the PATH."""
    return shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")


def _arguments(kind: str, seconds: float) -> list[str]:
    return [kind, str(seconds), *map(str, SIZES)]


def _device(size: int, seconds: float) -> Rows:
    rows: Rows = as_ranks(size, _RANK, *_arguments("device", seconds))
    return rows


def _as_threads(size: int, options: argparse.Namespace, kernel: Kernel) -> Rows:
    carriers = threads(size)

    def work(rank: int) -> Rows:
        # Not LL128: the software NIC's copies within a GPU do not keep its promise; docs/protocols.md.
        return device(
            options.seconds, SIZES, kernel, carrier=carriers[rank], queues=options.queues, protocols=("simple", "ll")
        )

    with ThreadPoolExecutor(size) as pool:
        every = list(pool.map(work, range(size)))  # all of them: another rank may have failed
    return every[0]


def _mpi(size: int, seconds: float) -> Rows:
    command = [str(_mpirun()), "-n", str(size), sys.executable, "-m", _RANK, *_arguments("mpi", seconds)]
    rows: Rows = answer_of([subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)])
    return rows


def _lines(rows: Rows, which: str) -> dict[str, dict[int, float]]:
    """Nanoseconds by size, for each way; `which` is "median_ns" or "fastest_ns"."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        way = f"{row['algorithm']}, {_SHORT[row['protocol']]}" if row["who"] == "kernel" else row["who"]
        if row["who"] == "launch a call":
            way = f"{row['algorithm']}, launched"
        lines.setdefault(way, {})[row["bytes"]] = row[which]
    return lines


def _show(size: int, rows: Rows, missing: str) -> None:
    for which in ("median", "fastest"):
        lines = _lines(rows, f"{which}_ns")
        table = [[way, *(show.time_text(of[bytes]) for bytes in SIZES)] for way, of in lines.items()]
        notes = _verdicts(lines)
        if which == "fastest":
            notes += [missing] if missing else []
            notes.append("a call of ten in a row, in one launch; launched: a launch from Python each; mpi4py: a call")
        show.print_table(f"{size} ranks, {which}", ("way", *map(size_text, SIZES)), table, notes)


def _verdicts(lines: dict[str, dict[int, float]]) -> list[str]:
    """Which protocol wins where, in words."""
    best = {}
    for bytes in SIZES:
        ways = {way: of[bytes] for way, of in lines.items() if way != "mpi4py" and not way.endswith("launched")}
        best[bytes] = min(ways, key=lambda way: ways[way])
    found = "; ".join(f"{size_text(bytes)}: {way}" for bytes, way in best.items())
    notes = [f"fastest on the device: {found}"]
    if "mpi4py" in lines:
        ratios = [f"{lines[best[bytes]][bytes] / lines['mpi4py'][bytes]:.2g}" for bytes in SIZES]
        notes.append(f"its time as a multiple of mpi4py's: {', '.join(ratios)}")
    return notes


def _panel(size: int, rows: Rows) -> Curves:
    ways = _lines(rows, "fastest_ns")
    lines = {way: [(float(bytes), ns / 1e3) for bytes, ns in of.items()] for way, of in ways.items()}
    return Curves(("bytes", "microseconds"), lines, title=f"all-reduce of {size} ranks, fastest ten calls")
