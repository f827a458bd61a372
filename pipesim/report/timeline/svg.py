"""A timeline as a standalone SVG: ranks as rows, actions as bars, in colours for colour-blind people too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from rich.cells import cell_len

from pipesim.report.formats import clean, human_scale, show
from pipesim.report.timeline import bars as timeline_bars
from pipesim.report.timeline.bars import Grid
from pipesim.report.timeline.lanes import lanes
from pipesim.report.timeline.look import CELL_PX, STYLE, WORDS, Words, legend
from pipesim.schedules.action import IntArray, Schedule
from pipesim.simulate.timeline import Timeline

Unit = Literal["units", "seconds"]

_WIDTH, _LEFT, _RIGHT, _MARGIN, _HEAD = 1000, 72, 40, 16, 66
_PLOT = _WIDTH - _LEFT - _RIGHT
_MOST_CURVES = 16  # more ranks are represented by the one that holds most


def draw(
    timeline: Timeline,
    title: str,
    *,
    unit: Unit = "units",
    language: str = "en",
    lower_bound_s: float | None = None,
    until_s: float | None = None,
) -> str:
    """``unit`` says what the timeline's numbers are; of an overlapped pair the first action lies above the second.

    ``lower_bound_s`` of the makespan is named beside it. ``until_s`` is how long the time axis is, so that several
    pictures can share one; it is at least the makespan.
    """
    words, schedule, of = WORDS[language], timeline.schedule, lanes(timeline.schedule)
    span_s = max(timeline.makespan_s, until_s or 0.0)
    steps = timeline_bars.steps_of(timeline, span_s, _PLOT)
    grid = Grid(_LEFT, 0, _PLOT, _row_height(schedule), steps, steps / (span_s or 1.0), float(timeline.start_s.min()))
    bars = timeline_bars.bars(timeline, of, grid)
    labels = timeline_bars.labels(schedule, of, bars, grid)
    every = None if labels else timeline_bars.guide_step(schedule, grid)
    entries, legend_height = legend(schedule, of, words, every, _WIDTH - _LEFT - _MARGIN)
    top, rows_height = _HEAD + legend_height + 6, schedule.p * grid.row
    curves, curves_height = _inflight(timeline, grid, words)
    height = top + rows_height + 48 + curves_height
    few = len(schedule) <= timeline_bars.MAX_TOOLTIPS
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pt" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f"aria-label={quoteattr(clean(title))}><style>{STYLE}</style>",
        *_head(timeline, title, unit, words, lower_bound_s),
        f'<g transform="translate({_LEFT} {_HEAD})">', *entries, "</g>",
        f'<g transform="translate(0 {top})">',
        *_rows(timeline, grid),
        f'<g class="bars" transform="translate({_LEFT}) scale({grid.px_per_step:.9g} 1)">',
        *(timeline_bars.single(timeline, bars, _kind(unit)) if few else timeline_bars.merged(schedule, bars)),
        *timeline_bars.cuts(bars, grid),
        "</g>",
        *(timeline_bars.numbers(bars, grid, labels) if labels else ()),
        *(timeline_bars.guides(schedule, of, bars, grid, every) if every else ()),
        *_axis(span_s, rows_height, unit, words),
        f'<g transform="translate(0 {rows_height + 48})">', *curves, "</g>",
        "</g>",
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _row_height(schedule: Schedule) -> int:
    """Pixels; an overlapped pair needs room for two numbers, many ranks leave room for none."""
    return 16 if schedule.p > 16 else 36 if schedule.joined.any() else 26


def _head(timeline: Timeline, title: str, unit: Unit, words: Words, lower_bound_s: float | None) -> Iterator[str]:
    title = clean(title)
    size = min(18.0, 1.7 * (_WIDTH - 2 * _MARGIN) / max(1, cell_len(title)))
    yield f'<text x="{_MARGIN}" y="28" style="font-size:{size:.3g}px;font-weight:600">{escape(title)}</text>'

    def length(seconds: float) -> str:
        return show(seconds, _kind(unit)) + (f" {words['units']}" if unit == "units" else "")

    figures = [
        f"{words['fraction']} {show(timeline.bubble_fraction, 'percent')}",
        f"{words['overhead']} {show(timeline.bubble_overhead, 'percent')}",
        f"{words['makespan']} {length(timeline.makespan_s)}",
        *([f"{words['bound']} {length(lower_bound_s)}"] if lower_bound_s is not None else []),
    ]
    text = " · ".join(figures)
    size = min(13.0, 13 * (_WIDTH - 2 * _MARGIN) / (CELL_PX * cell_len(text)))
    yield f'<text class="dim" x="{_MARGIN}" y="50" style="font-size:{size:.3g}px">{text}</text>'


def _rows(timeline: Timeline, grid: Grid) -> Iterator[str]:
    width = timeline.makespan_s * grid.steps_per_s * grid.px_per_step
    for rank in range(timeline.schedule.p):
        y = grid.row * rank
        yield f'<rect class="idle" x="{_LEFT}" y="{y + 2}" width="{width:.7g}" height="{grid.row - 4}"/>'
        yield f'<text class="dim" x="{_LEFT - 8}" y="{y + grid.row / 2 + 4.5:g}" text-anchor="end">rank {rank}</text>'


def _axis(span_s: float, y: int, unit: Unit, words: Words) -> Iterator[str]:
    size, sign = human_scale(_kind(unit), span_s)
    span = span_s / size or 1.0
    step = _tick_step(span)
    yield f'<path class="axis" d="M{_LEFT} {y + 4.5:g}h{_PLOT}"/>'
    for k in range(math.floor(span / step * (1 + 1e-9)) + 1):
        x = round(_LEFT + _PLOT * k * step / span, 1)
        yield f'<path class="axis" d="M{x:g} {y + 4}v5"/>'
        yield f'<text class="dim" x="{x:g}" y="{y + 22}" text-anchor="middle">{k * step:.10g}</text>'
    label = f"{words['time']} ({sign or words['units']})"
    yield f'<text class="dim" x="{_LEFT + _PLOT // 2}" y="{y + 39}" text-anchor="middle">{label}</text>'


def _tick_step(span: float) -> float:
    """1, 2 or 5 times a power of ten, for at most about a dozen ticks."""
    power = 10.0 ** math.floor(math.log10(span / 12))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 12)


def _inflight(timeline: Timeline, grid: Grid, words: Words) -> tuple[list[str], int]:
    """What each rank holds over time, as filled steps of one scale, and the height of all of it."""
    peaks = timeline.peak_inflight
    most = max(peaks)
    ranks = [peaks.index(most)] if len(peaks) > _MOST_CURVES else range(len(peaks))
    height = 40 if len(ranks) == 1 else 22 if len(ranks) <= 8 else 14
    label = words["held"] if len(ranks) == len(peaks) else words["held_most"].format(some=ranks[0])
    parts = [f'<text class="dim small" x="{_LEFT}" y="12">{label}</text>']
    for k, rank in enumerate(ranks):
        base = 18 + (k + 1) * (height + 4)
        place = f"translate({_LEFT} {base}) scale({grid.px_per_step:.9g} {height / max(1, most):.6g})"
        parts += [
            f'<path class="held" transform="{place}" d="{_steps(timeline, rank, grid)}"/>',
            f'<path class="axis" d="M{_LEFT} {base + 0.5}h{_PLOT}"/>',
            f'<text class="dim small" x="{_LEFT - 8}" y="{base - height / 2 + 4:g}" text-anchor="end">rank {rank}</text>',
            f'<text class="dim small" x="{_LEFT + _PLOT + 6}" y="{base - height / 2 + 4:g}">{peaks[rank]}</text>',
        ]
    return parts, 18 + len(ranks) * (height + 4) + 12


def _steps(timeline: Timeline, rank: int, grid: Grid) -> str:
    """The outline, upwards negative; where several changes fall together the highest and the last of them show."""
    when_s, held = timeline.inflight(rank)
    x: IntArray = np.rint((when_s - grid.origin_s) * grid.steps_per_s).astype(np.int64)
    groups = np.flatnonzero(np.r_[True, x[1:] != x[:-1]]) if len(x) else np.zeros(0, np.int64)
    last = held[np.r_[groups[1:] - 1, len(x) - 1]] if len(x) else held
    moves, at, level = ["M0 0"], 0, 0
    for to, then in zip(x[groups].tolist(), last.tolist(), strict=True):
        if then != level:
            moves.append(f"h{to - at}v{level - then}")
            at, level = to, then
    return "".join(moves) + "z"


def _kind(unit: Unit) -> Literal["seconds", "number"]:
    return "seconds" if unit == "seconds" else "number"
