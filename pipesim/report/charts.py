"""Pictures as static SVG, drawn with matplotlib; here the scatter chart, and what the interactive one shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pipesim.report import charts_bars, charts_lines, charts_map
from pipesim.report.chart_look import Drawing, axis_of, legend, plain_numbers, svg
from pipesim.report.chart_look import look as look
from pipesim.report.document import Axis, Bars, Chart, Curves, HeatMap, Mark, Parallel, Picture
from pipesim.report.formats import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

MAX_LABELS = 15
"""More points than a reader can tell apart by name; the table names the others."""


_PLACES = ((8, 0, "left", "center"), (0, 8, "center", "bottom"), (0, -8, "center", "top"), (-8, 0, "right", "center"))
"""Where a name may stand: points to the right and up of its mark, and which of its own edges is there."""


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
    all_marks, groups, x_title, y_title, x_limit = scaled(chart)
    for index, (group, marks) in enumerate(groups.items()):
        style = look(index)
        xs, ys = [mark.x for mark in marks], [mark.y for mark in marks]
        axes.scatter(xs, ys, s=46, c=style.colour, marker=style.marker, edgecolors="white", linewidths=0.6, label=group)
    if x_limit:
        axes.axvline(x_limit[0], color="#555555", linestyle="--", linewidth=1.2, label=x_limit[1])
    axes.set_title(clean(chart.title), loc="left", fontweight="bold")
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
    _label(figure, axes, all_marks)


def _label(figure: Figure, axes: Axes, marks: list[Mark]) -> None:
    """Names the first marks, each where it covers no other name and no mark; where that is nowhere, not at all."""
    figure.draw_without_rendering()  # settles where everything is, once
    figure.set_layout_engine("none")
    frame = axes.get_window_extent()
    taken = [_around(*axes.transData.transform((mark.x, mark.y))) for mark in marks]
    for mark in marks[:MAX_LABELS]:
        for place in _PLACES:
            name = _annotate(axes, mark, *place)
            box = name.get_window_extent()
            if frame.contains(*box.min) and frame.contains(*box.max) and not any(map(box.overlaps, taken)):
                taken.append(box)
                break
            name.remove()


def _annotate(axes: Axes, mark: Mark, dx: int, dy: int, ha: str, va: str) -> Annotation:
    return axes.annotate(
        mark.label, (mark.x, mark.y), (dx, dy), textcoords="offset points", ha=ha, va=va, fontsize=8.5, color="#333333"
    )


def _around(x: float, y: float, reach: float = 4.0) -> Bbox:
    from matplotlib.transforms import Bbox

    return Bbox.from_extents(x - reach, y - reach, x + reach, y + reach)


def _has_place(value: float, axis: Axis) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)
