# SPDX-License-Identifier: Apache-2.0
"""Pictures of measurements, by matplotlib (the extra `plot`): bars and curves, with the ceilings drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["bars", "curves"]

_WIDTH = 10.0  # inches
_TITLE = 120  # letters of a line
_ROW = 0.2  # inches a bar


def bars(
    file: str, title: str, unit: str, names: Sequence[str], series: Mapping[str, Sequence[float | None]], *,
    ceilings: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Horizontal bars on a logarithmic axis, a group for each name; `ceilings` are dashed lines."""
    figure, axes = _axes(1.5 + _ROW * len(names) * (len(series) + 0.5))
    height = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [i + height * (number - (len(series) - 1) / 2) for i in range(len(names))]
        drawn = axes.barh(places, [v or float("nan") for v in values], height, label=label)
        axes.bar_label(drawn, [f"{v:,.3g}" if v else "" for v in values], padding=2, fontsize=6)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(unit)
    axes.margins(x=0.15, y=0.01)
    for label, value in (ceilings or {}).items():
        axes.axvline(value, linestyle="--", linewidth=1, color="black")
        axes.annotate(f" {label}", (value, -0.5), fontsize=8, annotation_clip=False)
    _finish(figure, axes, title, file)


def curves(
    file: str, title: str, labels: tuple[str, str], lines: Mapping[str, Sequence[tuple[float, float]]], *,
    ceilings: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> None:  # fmt: skip
    """Lines of (x, y) on logarithmic axes; `ceilings` are dashed."""
    figure, axes = _axes(6.0)
    for label, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label)
    for label, points in (ceilings or {}).items():
        axes.plot(*zip(*points, strict=True), linestyle="--", linewidth=1, color="black", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.grid(True, which="both", linewidth=0.3)
    _finish(figure, axes, title, file)


def _axes(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # its own canvas: no display and no global state

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _finish(figure: Any, axes: Any, title: str, file: str) -> None:
    axes.set_title(textwrap.fill(title, _TITLE), fontsize=9)
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=120, format="png")
