"""A chart as a static SVG, drawn with matplotlib, and what the interactive one shares: units, colours, shapes."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from pipesim.report.document import Axis, Chart, Mark
from pipesim.report.formats import clean, human_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as AnyAxis
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

MAX_LABELS = 15
"""More points than a reader can tell apart by name; the table names the others."""


class Look(NamedTuple):
    """A group's colour and shape, the latter in matplotlib's and plotly's words."""

    colour: str
    marker: str
    symbol: str


# Okabe and Ito, "Color Universal Design", 2008, without yellow and black, which one of light and dark hides.
_LOOKS = (
    Look("#0072b2", "o", "circle"),
    Look("#d55e00", "s", "square"),
    Look("#009e73", "^", "triangle-up"),
    Look("#cc79a7", "D", "diamond"),
    Look("#e69f00", "v", "triangle-down"),
    Look("#56b4e9", "P", "cross"),
    Look("#7f7f7f", "X", "x"),
)
_PLACES = ((8, 0, "left", "center"), (0, 8, "center", "bottom"), (0, -8, "center", "top"), (-8, 0, "right", "center"))
"""Where a name may stand: points to the right and up of its mark, and which of its own edges is there."""

_RC: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "pipesim", "font.family": "DejaVu Sans", "font.size": 10,
    "text.parse_math": False, "text.usetex": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#dddddd",
}  # fmt: skip


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
    x_size, x_title = _axis(chart.x, [*(mark.x for mark in marks), *(limit[:1] if limit else ())])
    y_size, y_title = _axis(chart.y, [mark.y for mark in marks])
    placed = [
        Mark(x=mark.x / x_size, y=mark.y / y_size, label=clean(mark.label), group=clean(mark.group)) for mark in marks
    ]
    groups: dict[str, list[Mark]] = {}
    for mark in placed:
        groups.setdefault(mark.group, []).append(mark)
    return Scaled(placed, groups, x_title, y_title, (limit[0] / x_size, clean(limit[1])) if limit else None)


def look(index: int) -> Look:
    """Unlike those before it: once the colours are used up they come back with other shapes."""
    colour = _LOOKS[index % len(_LOOKS)]
    shape = _LOOKS[(index + index // len(_LOOKS)) % len(_LOOKS)]
    return Look(colour.colour, shape.marker, shape.symbol)


def draw(chart: Chart) -> str:
    """The same bytes every time. Text stays text, so that a viewer's own fonts show Chinese."""
    import matplotlib
    from matplotlib.figure import Figure

    out = io.StringIO()
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the viewer's fonts have it
        figure = Figure(figsize=(8, 5), layout="constrained")
        _plot(figure, figure.add_subplot(), chart)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


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
        _plain_numbers(axes.xaxis)
    if chart.y.log:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
    axes.margins(0.08)
    if groups or x_limit:
        longest = max(map(len, [*groups, *([x_limit[1]] if x_limit else [])]))
        figure.legend(loc="outside lower center", ncols=_columns(longest), frameon=False)
    _label(figure, axes, all_marks)


def _columns(longest: int) -> int:
    """Of a legend whose longest name has so many letters: about 6 points a letter, 45 for its mark, in 576 points."""
    return min(4, max(1, 576 // (6 * longest + 45)))


def _plain_numbers(axis: AnyAxis) -> None:
    """A logarithmic axis's own are mathematics markup, which is off so that no name is taken for it."""
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(LogFormatter())


def _label(figure: Figure, axes: Axes, marks: list[Mark]) -> None:
    """Names the first marks, each where it covers no other name and no mark; where that is nowhere, not at all."""
    figure.draw_without_rendering()  # settles where everything is
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


def _axis(axis: Axis, values: list[float]) -> tuple[float, str]:
    size, unit = human_scale(axis.kind, max(map(abs, values), default=0.0))
    title = clean(axis.title)
    return size, f"{title} ({unit})" if unit else title


def _has_place(value: float, axis: Axis) -> bool:
    return math.isfinite(value) and (value > 0 or not axis.log)
