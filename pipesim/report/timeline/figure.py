"""A timeline's static picture for papers, drawn with matplotlib: ranks as rows, actions as bars in the SVG's colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipesim.report.charts.style import WIDTH, Drawing
from pipesim.report.document import Kind, TimelineView
from pipesim.report.formats import clean, human_scale, show
from pipesim.report.timeline.lanes import lanes
from pipesim.report.timeline.look import WORDS, tones
from pipesim.schedules.action import IntArray, Op
from pipesim.simulate.kernel import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP = 0.1  # between rows, in rows
_NUMBER_INCHES = 0.062  # a digit of 6 points, at most


def drawing(view: TimelineView, language: str) -> Drawing:
    rows = view.timeline.schedule.p
    return Drawing(1.5 + min(0.26, 8 / rows) * rows, lambda figure: _paint(figure, view, language))


def _paint(figure: Figure, view: TimelineView, language: str) -> None:
    from matplotlib.ticker import MaxNLocator

    words, timeline, axes = WORDS[language], view.timeline, figure.add_subplot()
    kind: Kind = "seconds" if view.unit_s is None else "number"
    size, sign = human_scale(kind, timeline.makespan_s)
    _bars(axes, view, size)
    axes.set(
        ylim=(timeline.schedule.p - 0.5, -0.5), xlim=(0, max(timeline.makespan_s, view.until_s or 0.0) / size or 1.0)
    )
    axes.set_xlabel(f"{words['time']} ({sign or words['units']})")
    axes.set_ylabel("rank")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    axes.grid(visible=False)
    length = show(timeline.makespan_s, kind) + ("" if sign else f" {words['units']}")
    figures = f"{words['makespan']} {length} · {words['fraction']} {show(timeline.bubble_fraction, 'percent')}"
    axes.set_title(f"{clean(view.title)}\n{figures}", loc="left", fontsize=9, wrap=True)
    handles = [
        axes.barh(0, 0, color=tones(1).colour[2 * op], label=words[Op(op)]) for op in np.unique(timeline.schedule.op)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def _bars(axes: Axes, view: TimelineView, size: float) -> None:
    """Of an overlapped pair the first action lies above the second."""
    from matplotlib.collections import PolyCollection

    timeline, of = view.timeline, lanes(view.timeline.schedule)
    schedule, look = timeline.schedule, tones(of.shades)
    left, right = ((edge - timeline.start_s.min()) / size for edge in (timeline.start_s, timeline.end_s))
    upper, lower = schedule.joined, np.r_[False, schedule.joined[:-1]]
    high, rank = 0.5 - _GAP, schedule.rank_of()
    top, bottom = rank - np.where(lower, 0.0, high), rank + np.where(upper, 0.0, high)
    number = (schedule.op * of.shades + of.shade) * 2 + schedule.micro_batch % 2
    corners = np.stack([left, top, left, bottom, right, bottom, right, top], axis=1).reshape(-1, 4, 2)
    colours = np.array(look.colour)[number]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours.tolist(), edgecolors="white", linewidths=0.2))
    for i in _readable(right - left, view, size).tolist():
        axes.text(
            (left[i] + right[i]) / 2, (top[i] + bottom[i]) / 2, str(schedule.micro_batch[i]), ha="center", va="center_baseline",
            fontsize=6, color="white" if look.light[number[i]] else "black", clip_on=True,
        )  # fmt: skip


def _readable(length: FloatArray, view: TimelineView, size: float) -> IntArray:
    """Actions with room for their micro-batch's number, if most have it and rows are high enough."""
    schedule = view.timeline.schedule
    if schedule.p > 60 or len(schedule) > 3000:
        return np.zeros(0, np.int64)
    inches = length * size / max(view.timeline.makespan_s, view.until_s or 0.0) * (WIDTH - 0.8)
    fits = inches >= _NUMBER_INCHES * np.char.str_len(schedule.micro_batch.astype(str))
    return np.flatnonzero(fits) if fits.mean() > 0.5 else np.zeros(0, np.int64)
