"""Heat maps as a static SVG, and what the interactive ones share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pipesim.report.charts.style import SCALE, WIDTH, Drawing, axis_of
from pipesim.report.document import HeatMap
from pipesim.report.formats import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
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


def drawing(shown: HeatMap) -> Drawing:
    height = _TOP + rows(shown) * _high(shown)
    return Drawing(height, lambda figure: _paint(figure, shown, height))


_TOP, _SQUARE, _LEFT, _ABOVE, _BELOW, _SCALE = 0.5, 0.27, 0.55, 0.3, 0.55, 0.9
"""Inches: the title, a square's height, around each panel, and what the scale on the right takes."""


def _high(shown: HeatMap) -> float:
    return _ABOVE + _SQUARE * len(shown.ys) + _BELOW


def _paint(figure: Figure, shown: HeatMap, height: float) -> None:
    """All panels in one plane of inches, the first on top."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    found = mapped(shown)
    scale = ScalarMappable(Normalize(found.low, found.high if found.high > found.low else found.low + 1), SCALE)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    axes.text(0.15, 0.3, clean(shown.title), fontsize=12, fontweight="bold", va="center")
    across = min(ACROSS, len(shown.panels))
    wide = (WIDTH - _SCALE) / across
    for k, panel in enumerate(shown.panels):
        left, top = (k % across) * wide + _LEFT, _TOP + (k // across) * _high(shown) + _ABOVE
        size = min((wide - _LEFT - 0.1) / len(shown.xs), 3 * _SQUARE)
        axes.text(left + size * len(shown.xs) / 2, top - 0.12, clean(panel.title), ha="center", fontsize=9.5)
        _squares(axes, found, k, scale, (left, top, size))
        _names(axes, shown, (left, top, size), y_title=k % across == 0)
    bar = figure.add_axes((1 - 0.8 / WIDTH, 0.15, 0.15 / WIDTH, 0.65))
    figure.colorbar(scale, cax=bar, label=found.title)


def _squares(axes: Axes, found: Mapped, k: int, scale: ScalarMappable, place: tuple[float, float, float]) -> None:
    """Dark letters on bright squares, bright ones on dark; the first row of values stands lowest."""
    left, top, size = place
    numbers = [[math.nan if value is None else value for value in row] for row in reversed(found.values[k])]
    xs = [left + j * size for j in range(len(numbers[0]) + 1)]
    ys = [top + i * _SQUARE for i in range(len(numbers) + 1)]
    axes.pcolormesh(xs, ys, numbers, cmap=SCALE, vmin=found.low, vmax=found.high, edgecolors="white", linewidth=1)
    for i, row in enumerate(reversed(found.texts[k])):
        for j, text in enumerate(row):
            if text:
                value = numbers[i][j]
                colour = (
                    "#555555"
                    if math.isnan(value)
                    else _ink(scale.get_cmap()((value - found.low) / ((found.high - found.low) or 1.0)))
                )
                middle = xs[j] + size / 2, ys[i] + _SQUARE / 2
                axes.text(*middle, text, ha="center", va="center", fontsize=7.5, color=colour)


def _names(axes: Axes, shown: HeatMap, place: tuple[float, float, float], *, y_title: bool) -> None:
    left, top, size = place
    foot = top + _SQUARE * len(shown.ys)
    for j, name in enumerate(shown.xs):
        axes.text(left + (j + 0.5) * size, foot + 0.12, name, ha="center", va="center", fontsize=8)
    for i, name in enumerate(reversed(shown.ys)):
        axes.text(left - 0.06, top + (i + 0.5) * _SQUARE, name, ha="right", va="center", fontsize=8)
    axes.text(left + size * len(shown.xs) / 2, foot + 0.3, clean(shown.x_title), ha="center", va="center", fontsize=9)
    if y_title:
        axes.text(left - 0.42, (top + foot) / 2, clean(shown.y_title), ha="center", va="center", fontsize=9)


def _ink(background: tuple[float, ...]) -> str:
    red, green, blue = background[:3]
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"
