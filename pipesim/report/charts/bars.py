"""Stacked bars as a static SVG, and what the interactive ones share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipesim.report.charts.style import Drawing, arrange, axis_of, headline, legend, look, short
from pipesim.report.document import Bars
from pipesim.report.formats import clean, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = 7
"""Of the palette; further items come back to them striped."""

_HALF = 0.36
"""Of a bar's height."""


class Stacked(NamedTuple):
    """The bars in human units: their names, the parts of every item, what each is in all, the axis' title, the limit."""

    names: list[str]
    parts: dict[str, list[float]]
    totals: list[str]
    x_title: str
    x_limit: tuple[float, str] | None


def stacked(bars: Bars) -> Stacked:
    """Without items of which no bar has any."""
    limit = bars.x_limit
    totals = [sum(parts) for _, parts in bars.bars]
    size, title = axis_of(bars.x, [*totals, *(limit[:1] if limit else ())])
    return Stacked(
        [short(name) for name, _ in bars.bars],
        {
            clean(item): [parts[k] / size for _, parts in bars.bars]
            for k, item in enumerate(bars.items)
            if any(parts[k] for _, parts in bars.bars)
        },
        [show(total, bars.x.kind) for total in totals],
        title,
        (limit[0] / size, clean(limit[1])) if limit else None,
    )


def is_striped(index: int) -> bool:
    return index >= _COLOURS


def drawing(bars: Bars) -> Drawing:
    return Drawing(1.8 + 0.3 * len(bars.bars) + 0.08 * len(bars.items), lambda figure: _paint(figure, bars))


def _paint(figure: Figure, bars: Bars) -> None:
    """All parts of an item are one collection, which is drawn sooner than as many rectangles."""
    from matplotlib.collections import PolyCollection

    axes, found = figure.add_subplot(), stacked(bars)
    places, before = range(len(found.names)), [0.0] * len(found.names)
    for index, (item, parts) in enumerate(found.parts.items()):
        ends = [so_far + part for so_far, part in zip(before, parts, strict=True)]
        corners = [
            ((x0, y - _HALF), (x1, y - _HALF), (x1, y + _HALF), (x0, y + _HALF))
            for y, x0, x1 in zip(places, before, ends, strict=True)
            if x1 > x0
        ]
        style: dict[str, Any] = {"facecolors": look(index).colour, "edgecolors": "white", "linewidths": 0.4}
        axes.add_collection(
            PolyCollection(corners, **style, hatch="////" if is_striped(index) else None, label=item), autolim=False
        )
        before = ends
    for place, end, total in zip(places, before, found.totals, strict=True):
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        where = {"textcoords": "offset points", "va": "center", "in_layout": False, "bbox": ground}
        axes.annotate(total, (end, place), (4, 0), fontsize=8, color="#333333", **where)  # type: ignore[arg-type]
    if found.x_limit:
        axes.axvline(found.x_limit[0], color="#555555", linestyle="--", linewidth=1.2, label=found.x_limit[1])
    headline(axes, bars.title)
    axes.set(xlabel=found.x_title, xlim=(0, 1.14 * max([*before, *(found.x_limit[:1] if found.x_limit else ())])))
    axes.set_yticks(places, found.names, fontsize=8.5)
    axes.set_ylim(len(found.names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    legend(figure, [*found.parts, *(found.x_limit[1:] if found.x_limit else ())])
    arrange(figure, axes)
