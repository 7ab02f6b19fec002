# SPDX-License-Identifier: Apache-2.0
"""Pictures of measurements, by matplotlib (the extra `plot`): sheets of bars and curves, with the ceilings drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Bars", "Curves", "Points", "draw"]

Points = Sequence[tuple[float, float]]

_WIDTH = 10.0  # inches
_TITLE = 120  # letters of a line
_ROW = 0.2  # inches a bar
_CURVES = 5.0  # inches: the height of a panel that stands alone in its row; two a row are lower
_CURVES_OF_TWO = 3.8
_LEGEND = 0.06  # of the height: a line of it


@dataclass(frozen=True)
class Bars:
    """Horizontal bars on a logarithmic axis, a group for each name; `ceilings` are dashed lines."""

    unit: str
    names: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    ceilings: Mapping[str, float] = field(default_factory=dict)
    title: str = ""

    def height(self, columns: int) -> float:
        """Inches."""
        return 1.2 + _ROW * len(self.names) * (len(self.series) + 0.5)

    def draw(self, axes: Any) -> None:
        """Into a panel."""
        height = 0.8 / len(self.series)
        for number, (label, values) in enumerate(self.series.items()):
            places = [i + height * (number - (len(self.series) - 1) / 2) for i in range(len(self.names))]
            drawn = axes.barh(places, [v or float("nan") for v in values], height, label=label)
            axes.bar_label(drawn, [_number(v or None) for v in values], padding=2, fontsize=6)
        axes.set_yticks(range(len(self.names)), self.names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel(self.unit)
        axes.margins(x=0.15, y=0.01)
        for label, value in self.ceilings.items():
            axes.axvline(value, linestyle="--", linewidth=1, color="black")
            axes.annotate(f" {label}", (value, -0.5), fontsize=8, annotation_clip=False)


@dataclass(frozen=True)
class Curves:
    """Lines of (x, y) on logarithmic axes; `ceilings` are dashed, each with its own pattern.

    `logarithmic` says so of each axis; one that is not begins at zero.
    """

    labels: tuple[str, str]
    lines: Mapping[str, Points]
    ceilings: Mapping[str, Points] = field(default_factory=dict)
    title: str = ""
    logarithmic: tuple[bool, bool] = (True, True)

    def height(self, columns: int) -> float:
        """Inches."""
        return _CURVES if columns == 1 else _CURVES_OF_TWO

    def draw(self, axes: Any) -> None:
        """Into a panel."""
        for label, points in self.lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label)
        for number, (label, points) in enumerate(self.ceilings.items()):
            axes.plot(
                *zip(*points, strict=True), linestyle=("--", ":", "-.")[number % 3], linewidth=1, color="black",
                label=label,
            )  # fmt: skip
        if self.logarithmic[0]:
            axes.set_xscale("log", base=2)
        else:
            axes.set_xlim(left=0)
        if self.logarithmic[1]:
            axes.set_yscale("log")
        else:
            highest = max((y for points in self.lines.values() for _, y in points), default=1.0)
            axes.set_ylim(0, highest * (1.1 + _LEGEND * len(self.lines)))  # room for the legend
        axes.xaxis.set_major_formatter(lambda x, _: _number(x))
        axes.tick_params(axis="both", which="both", labelsize=7)
        axes.set_xlabel(self.labels[0], fontsize=8)
        axes.set_ylabel(self.labels[1], fontsize=8)
        axes.grid(True, which="both", linewidth=0.3)


def _number(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(file: str, title: str, panels: Sequence[Bars | Curves], columns: int = 1) -> None:
    """Write a PNG with the panels, row by row."""
    from matplotlib.figure import Figure  # its own canvas: no display and no global state

    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    heights = [max(panel.height(columns) for panel in row) for row in rows]
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.5), layout="constrained")
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    for number, row in enumerate(rows):
        for place, panel in enumerate(row):
            last = place + 1 == len(row)
            axes = figure.add_subplot(grid[number, place:] if last else grid[number, place])
            panel.draw(axes)
            axes.set_title(panel.title, fontsize=9)
            if len(panel.lines if isinstance(panel, Curves) else panel.series) + len(panel.ceilings) > 1:
                axes.legend(fontsize=7 if columns > 1 else 8)
    figure.suptitle(textwrap.fill(title, _TITLE), fontsize=9)
    figure.savefig(file, dpi=120, format="png")
