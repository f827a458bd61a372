"""Heat maps as a static SVG, and what the interactive ones share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pipesim.report.chart_look import SCALE, axis_of, svg
from pipesim.report.document import HeatMap
from pipesim.report.formats import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3
"""Panels side by side."""


class Mapped(NamedTuple):
    """A map's values in human units, by panel, y and x; None where there is a sign, which stands among the texts."""

    values: list[list[list[float | None]]]
    texts: list[list[list[str]]]
    low: float
    high: float
    title: str


def mapped(shown: HeatMap) -> Mapped:
    every = [value for panel in shown.panels for row in panel.squares for value in row if not isinstance(value, str)]
    size, title = axis_of(shown.value, every)
    values = [
        [[None if isinstance(value, str) else value / size for value in row] for row in panel.squares]
        for panel in shown.panels
    ]
    texts = [
        [[clean(value) if isinstance(value, str) else f"{value / size:.3g}" for value in row] for row in panel.squares]
        for panel in shown.panels
    ]
    if at := shown.best():
        texts[at[0]][at[1]][at[2]] += " ★"
    return Mapped(values, texts, min(every, default=0.0) / size, max(every, default=1.0) / size, title)


def rows(shown: HeatMap) -> int:
    return math.ceil(len(shown.panels) / ACROSS)


def draw(shown: HeatMap) -> str:
    return svg(1.0 + rows(shown) * (0.8 + 0.34 * len(shown.ys)), lambda figure: _paint(figure, shown))


def _paint(figure: Figure, shown: HeatMap) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    found = mapped(shown)
    scale = ScalarMappable(Normalize(found.low, found.high if found.high > found.low else found.low + 1), SCALE)
    across = min(ACROSS, len(shown.panels))
    grid = figure.subplots(rows(shown), across, squeeze=False)
    for k, axes in enumerate(grid.flat):
        if k >= len(shown.panels):
            axes.set_axis_off()
            continue
        numbers = [[math.nan if value is None else value for value in row] for row in found.values[k]]
        axes.pcolormesh(numbers, cmap=colormaps[SCALE], norm=scale.norm, edgecolors="white", linewidth=1)
        _write(axes, found.values[k], found.texts[k], scale)
        axes.set_title(clean(shown.panels[k].title), fontsize=9.5)
        axes.set_xticks([j + 0.5 for j in range(len(shown.xs))], shown.xs, fontsize=8.5)
        axes.set_yticks([i + 0.5 for i in range(len(shown.ys))], shown.ys, fontsize=8.5)
        axes.grid(visible=False)
        axes.set(xlabel=clean(shown.x_title), ylabel=clean(shown.y_title) if k % across == 0 else "")
    figure.suptitle(clean(shown.title), x=0.02, ha="left", fontweight="bold", fontsize=12)
    figure.colorbar(scale, ax=grid, label=found.title, shrink=0.8, pad=0.02)


def _write(axes: Axes, values: list[list[float | None]], texts: list[list[str]], scale: object) -> None:
    """Dark letters on bright squares, bright ones on dark."""
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            value = values[i][j]
            colour = "#555555" if value is None else _ink(scale.to_rgba(value))  # type: ignore[attr-defined]
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7.5, color=colour)


def _ink(background: tuple[float, float, float, float]) -> str:
    red, green, blue, _ = background
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"
