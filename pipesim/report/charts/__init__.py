"""Pictures as static SVG, drawn with matplotlib; here the scatter chart, and what the interactive one shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pipesim.report.charts import bars as charts_bars
from pipesim.report.charts import lines as charts_lines
from pipesim.report.charts import maps as charts_map
from pipesim.report.charts.style import Drawing, arrange, axis_of, headline, legend, plain_numbers, svg
from pipesim.report.charts.style import look as look
from pipesim.report.document import Axis, Bars, Chart, Curves, HeatMap, Mark, Parallel, Picture
from pipesim.report.formats import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LABELS = 15
"""More points than a reader can tell apart by name; the table names the others."""

_PLACES = ((8, 0, "left", "center"), (0, 8, "center", "bottom"), (0, -8, "center", "top"), (-8, 0, "right", "center"))
"""Where a name may stand: points to the right and up of its mark, and which of its own edges is there."""


_REACH = 4.0
"""Points from a mark's middle to its edge."""

Box = tuple[float, float, float, float]


class Scaled(NamedTuple):
    """A chart's marks in human units, also by group in order of appearance, with the axes' titles and the limit."""

    marks: list[Mark]
    groups: dict[str, list[Mark]]
    x_title: str
    y_title: str
    x_limit: tuple[float, str] | None


def scaled(chart: Chart) -> Scaled:
    """Without the marks that have no place: not finite, or not above 0 on a logarithmic axis."""
    marks = [mark for mark in chart.marks if _has_place(mark.x, chart.x) and _has_place(mark.y, chart.y)]
    limit = chart.x_limit
    x_size, x_title = axis_of(chart.x, [*(mark.x for mark in marks), *(limit[:1] if limit else ())])
    y_size, y_title = axis_of(chart.y, [mark.y for mark in marks])
    placed = [
        Mark(x=mark.x / x_size, y=mark.y / y_size, label=clean(mark.label), group=clean(mark.group)) for mark in marks
    ]
    groups: dict[str, list[Mark]] = {}
    for mark in placed:
        groups.setdefault(mark.group, []).append(mark)
    return Scaled(placed, groups, x_title, y_title, (limit[0] / x_size, clean(limit[1])) if limit else None)


def draw(picture: Picture) -> str:
    """A picture as SVG, the same bytes every time."""
    return svg(drawing(picture))


def drawing(picture: Picture) -> Drawing:
    if isinstance(picture, Bars):
        return charts_bars.drawing(picture)
    if isinstance(picture, HeatMap):
        return charts_map.drawing(picture)
    if isinstance(picture, Curves | Parallel):
        return charts_lines.drawing(picture)
    assert isinstance(picture, Chart)
    chart = picture
    return Drawing(5, lambda figure: _plot(figure, figure.add_subplot(), chart))


def _plot(figure: Figure, axes: Axes, chart: Chart) -> None:
    """The first groups lie over the later ones."""
    all_marks, groups, x_title, y_title, x_limit = scaled(chart)
    for index, (group, marks) in enumerate(groups.items()):
        style = look(index)
        xs, ys = [mark.x for mark in marks], [mark.y for mark in marks]
        axes.scatter(
            xs, ys, s=46, c=style.colour, marker=style.marker, edgecolors="white", linewidths=0.6, label=group,
            zorder=2 - index / 100,
        )  # fmt: skip
    if x_limit:
        axes.axvline(x_limit[0], color="#555555", linestyle="--", linewidth=1.2, label=x_limit[1])
    headline(axes, chart.title)
    axes.set(xlabel=x_title, ylabel=y_title)
    if chart.x.log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    if chart.y.log:
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
    axes.margins(0.08)
    if groups or x_limit:
        legend(figure, [*groups, *([x_limit[1]] if x_limit else [])])
    arrange(figure, axes)
    _label(axes, all_marks)


def _label(axes: Axes, marks: list[Mark]) -> None:
    """Names the first marks, each where it covers no other name and no mark; where that is nowhere, not at all."""
    import numpy as np

    if not marks:
        return
    places = axes.transData.transform([(mark.x, mark.y) for mark in marks])
    (left, low), (right, high) = axes.get_window_extent().get_points()
    taken = np.hstack([places - _REACH, places + _REACH])
    for mark, (x, y) in zip(marks[:MAX_LABELS], places, strict=False):
        offset: dict[str, Any] = {"xytext": (0, 0), "textcoords": "offset points"}
        name = axes.annotate(mark.label, (mark.x, mark.y), fontsize=8.5, color="#333333", **offset)
        size = name.get_window_extent()
        for place in _PLACES:
            x0, y0, x1, y1 = box = _box(x, y, size.width, size.height, *place)
            covers = (taken[:, 0] < x1) & (x0 < taken[:, 2]) & (taken[:, 1] < y1) & (y0 < taken[:, 3])
            if left <= x0 and x1 <= right and low <= y0 and y1 <= high and not covers.any():
                name.set(position=place[:2], ha=place[2], va=place[3])
                taken = np.vstack([taken, box])
                break
        else:
            name.remove()


def _box(x: float, y: float, width: float, height: float, dx: int, dy: int, ha: str, va: str) -> Box:
    """Left, bottom, right and top of a name beside a mark, in points."""
    left = x + dx - width * {"left": 0, "center": 0.5, "right": 1}[ha]
    bottom = y + dy - height * {"bottom": 0, "center": 0.5, "top": 1}[va]
    return left, bottom, left + width, bottom + height


def _has_place(value: float, axis: Axis) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)
