"""Curves and parallel coordinates as a static SVG, and what the interactive ones share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipesim.report.charts.style import Drawing, arrange, axis_of, headline, legend, look, plain_numbers, short
from pipesim.report.document import Axis, Curves, Line, Parallel
from pipesim.report.formats import clean, human_scale, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FIRST_TO_LAST = ("#d55e00", "#b0b0b0")
"""Colours of the smallest value and of the largest, seen on light and on dark."""


class Scaled(NamedTuple):
    """Curves in human units: each with its points, and the axes' titles."""

    lines: list[tuple[Line, list[float], list[float]]]
    x_title: str
    y_title: str


class Upright(NamedTuple):
    """One of parallel axes: its title, every row's height from 0 to 1, and where which value stands."""

    title: str
    heights: list[float]
    ticks: list[tuple[float, str]]


def scaled(shown: Curves) -> Scaled:
    x_size, x_title = axis_of(shown.x, [x for line in shown.lines for x, _ in line.points])
    y_size, y_title = axis_of(shown.y, [y for line in shown.lines for _, y in line.points])
    lines = [(line, [x / x_size for x, _ in line.points], [y / y_size for _, y in line.points]) for line in shown.lines]
    return Scaled(lines, x_title, y_title)


def ticks(shown: Curves) -> list[float]:
    """The values of x that occur, if they are few enough to write each."""
    values = sorted({x for line in shown.lines for x, _ in line.points})
    return values if len(values) <= 12 else []


def upright(shown: Parallel) -> list[Upright]:
    return [_upright(shown, k, axis) for k, axis in enumerate(shown.axes)]


def _upright(shown: Parallel, k: int, axis: Axis) -> Upright:
    values = [shown.height(k, row[k]) for row in shown.rows]
    if axis.kind == "text":
        most = max(1, len(shown.choices[k]) - 1)
        places = [(i / most, short(name)) for i, name in enumerate(shown.choices[k])]
        return Upright(clean(axis.title), [value / most for value in values], places)
    low, high = min(values), max(values)
    size, unit = human_scale(axis.kind, high)
    title = f"{clean(axis.title)} ({unit})" if unit else clean(axis.title)
    span = high - low or 1.0
    ends = [(share, f"{(low + share * span) / size:.4g}") for share in (0.0, 0.5, 1.0)]
    return Upright(title, [(value - low) / span for value in values], ends)


def drawing(shown: Curves | Parallel) -> Drawing:
    if isinstance(shown, Curves):
        return Drawing(4.6, lambda figure: _curves(figure, figure.add_subplot(), shown))
    return Drawing(4.6, lambda figure: _parallel(figure, figure.add_subplot(), shown))


def _curves(figure: Figure, axes: Axes, shown: Curves) -> None:
    found = scaled(shown)
    for index, (line, xs, ys) in enumerate(found.lines):
        style = look(index)
        axes.plot(xs, ys, color=style.colour, linewidth=1.4, label=short(line.name), marker=style.marker, markersize=5)
        hollow = sorted(line.hollow)
        axes.plot(
            [xs[k] for k in hollow], [ys[k] for k in hollow], color=style.colour, linestyle="none", marker=style.marker,
            markersize=6, markerfacecolor="white",
        )  # fmt: skip
        if line.best is not None:
            axes.plot(
                xs[line.best], ys[line.best], color=style.colour, linestyle="none", marker="*", markersize=15,
                markeredgecolor="white",
            )  # fmt: skip
    headline(axes, shown.title)
    axes.set(xlabel=found.x_title, ylabel=found.y_title)
    _logarithmic(axes, shown)
    axes.margins(0.08)
    legend(figure, [short(line.name) for line in shown.lines])
    arrange(figure, axes)


def _logarithmic(axes: Axes, shown: Curves) -> None:
    from matplotlib.ticker import NullFormatter

    if shown.x.log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        if places := ticks(shown):
            axes.set_xticks(places, [show(place, "number") for place in places])
            axes.xaxis.set_minor_formatter(NullFormatter())
    if shown.y.log:
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)


def _parallel(figure: Figure, axes: Axes, shown: Parallel) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    found, scale = upright(shown), LinearSegmentedColormap.from_list("rank", FIRST_TO_LAST)
    order = sorted(range(len(shown.rows)), key=lambda row: -found[-1].heights[row])  # the smallest on top
    paths = [[(k, each.heights[row]) for k, each in enumerate(found)] for row in order]
    colours = scale([found[-1].heights[row] for row in order])
    axes.add_collection(LineCollection(paths, colors=colours, linewidths=0.8, alpha=0.8), autolim=False)
    axes.set(xlim=(-0.3, len(found) - 0.5), ylim=(-0.05, 1.05))
    slant, titles = _slant(found), [each.title for each in found]
    for k, each in enumerate(found):
        axes.axvline(k, color="#555555", linewidth=0.8)
        for place, text in each.ticks:
            axes.annotate(
                text, (k, place), (3, 2), textcoords="offset points", fontsize=7.5, color="#333333", in_layout=False
            )
    axes.set_xticks(range(len(found)), titles, fontsize=8, rotation=slant, ha="right" if slant else "center")
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    headline(axes, shown.title)
    arrange(figure, axes)


def _slant(found: Sequence[Upright]) -> int:
    """Degrees, where neighbouring titles of about 4.5 points a letter do not fit side by side in 520 points."""
    pairs = itertools.pairwise(found)
    widest = max((len(one.title) + len(other.title) for one, other in pairs), default=0) / 2
    return 20 if 4.5 * widest * (len(found) - 1) > 520 else 0
