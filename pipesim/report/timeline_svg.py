"""A timeline as a standalone SVG: ranks as rows, actions as bars, in colours for colour-blind people too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from rich.cells import cell_len

from pipesim.report.formats import clean, human_scale, show
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.simulate.timeline import FloatArray, Timeline

Unit = Literal["units", "seconds"]

_WIDTH, _LEFT, _RIGHT, _TOP = 1000, 72, 16, 92
_PLOT = _WIDTH - _LEFT - _RIGHT
_STEPS = 10  # horizontal positions per pixel: coordinates are whole numbers of them
_MAX_TOOLTIPS = 5000  # more actions are drawn as one path per colour

# Okabe and Ito, "Color Universal Design", 2008; the second tone, for odd micro-batches, is a lighter one of the same.
_COLOURS = {
    Op.F: ("#56b4e9", "#9ad2f2"),
    Op.B: ("#e69f00", "#f4c55c"),
    Op.I: ("#cc79a7", "#e3b1cb"),
    Op.W: ("#009e73", "#66c5ab"),
}
_STYLE = """
svg.pt{background:#fff;font-family:system-ui,sans-serif;--ink:#1f2328;--dim:#59636e;--idle:#eceff2;--line:#c9d1d9}
@media screen and (prefers-color-scheme:dark){
svg.pt{background:#0d1117;--ink:#e6edf3;--dim:#9198a1;--idle:#21262d;--line:#4a525b}}
.pt text{fill:var(--ink);font-size:13px}.pt .dim{fill:var(--dim)}.pt .idle{fill:var(--idle)}
.pt .axis{stroke:var(--line);fill:none}.pt .bars path{fill:none}.pt .no text{fill:#111}
"""
_Words = dict[Op | str, str]
_WORDS: dict[str, _Words] = {
    "en": {
        Op.F: "forward", Op.B: "backward", Op.I: "input gradient", Op.W: "weight gradient",
        "fraction": "bubble fraction (idle/total)", "overhead": "bubble overhead (idle/useful)",
        "makespan": "makespan", "idle": "idle", "units": "units", "time": "time",
    },
    "zh": {
        Op.F: "前向", Op.B: "反向", Op.I: "输入梯度", Op.W: "权重梯度",
        "fraction": "气泡占比 bubble fraction（空闲/总时间）", "overhead": "气泡开销 bubble overhead（空闲/有效时间）",
        "makespan": "总时长", "idle": "空闲", "units": "单位", "time": "时间",
    },
}  # fmt: skip


class _Bars(NamedTuple):
    """Where every action lies: left edge and length in steps, centre and height in pixels, and which colour."""

    x: IntArray
    length: IntArray
    y: FloatArray
    height: FloatArray
    colour: IntArray


def draw(timeline: Timeline, title: str, *, unit: Unit = "units", language: str = "en") -> str:
    """``unit`` says what the timeline's numbers are; of an overlapped pair the first action lies above the second."""
    words = _WORDS[language]
    schedule = timeline.schedule
    row = _row_height(schedule)
    bottom = _TOP + schedule.p * row
    bars = _bars(timeline, row)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pt" viewBox="0 0 {_WIDTH} {bottom + 44}" role="img" '
        f"aria-label={quoteattr(clean(title))}><style>{_STYLE}{_colour_rules(schedule)}</style>",
        *_head(timeline, title, unit, words),
        *_legend(schedule, words),
        *_rows(schedule.p, row),
        f'<g class="bars" transform="translate({_LEFT}) scale({1 / _STEPS} 1)">',
        *(_single_bars(timeline, bars, unit) if len(schedule) <= _MAX_TOOLTIPS else _merged_bars(bars)),
        "</g>",
        *(_numbers(schedule, bars) if row > 20 else ()),
        *_axis(timeline.makespan_s, bottom, unit, words),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row_height(schedule: Schedule) -> int:
    """Pixels; an overlapped pair needs room for two numbers, many ranks leave room for none."""
    return 16 if schedule.p > 16 else 36 if schedule.joined.any() else 26


def _bars(timeline: Timeline, row: int) -> _Bars:
    schedule = timeline.schedule
    steps_per_s = _PLOT * _STEPS / (timeline.makespan_s or 1.0)
    origin_s = timeline.start_s.min()
    x, end = (np.rint((t - origin_s) * steps_per_s).astype(np.int64) for t in (timeline.start_s, timeline.end_s))
    upper, lower = schedule.joined, np.r_[False, schedule.joined[:-1]]
    thick = row - 4.0
    middle = _TOP + row * schedule.rank_of() + row / 2
    return _Bars(
        x=x,
        length=end - x,
        y=middle + thick / 4 * (lower.astype(float) - upper),
        height=np.where(upper | lower, thick / 2, thick),
        colour=2 * schedule.op + schedule.micro_batch % 2,
    )


def _single_bars(timeline: Timeline, bars: _Bars, unit: Unit) -> Iterator[str]:
    """Each action for itself, with a tooltip."""
    for i, look in enumerate(_looks(bars)):
        begin, end = (show(float(t[i]), _kind(unit)) for t in (timeline.start_s, timeline.end_s))
        tooltip = f"{timeline.schedule.action(i)}: {begin} – {end}"
        yield f'<path {look} d="M{bars.x[i]} {bars.y[i]:g}h{bars.length[i]}"><title>{tooltip}</title></path>'


def _merged_bars(bars: _Bars) -> Iterator[str]:
    """One path per colour and height, which runs along the rows and lifts its pen over the gaps."""
    keys = np.stack([bars.colour, bars.height.astype(np.int64), bars.y.astype(np.int64), bars.x])
    order = np.lexsort(keys[::-1])
    order = order[bars.length[order] > 0]
    changes = 1 + np.flatnonzero(np.diff(bars.colour[order]) | (np.diff(bars.height[order]) != 0))
    looks = list(_looks(bars))
    for group in np.split(order, changes):
        pen = _pen(bars.x[group].tolist(), bars.length[group].tolist(), bars.y[group].tolist())
        yield f'<path {looks[group[0]]} d="{pen}"/>'


def _pen(lefts: list[int], lengths: list[int], ys: list[float]) -> str:
    moves = []
    row, at = -1.0, 0
    for x, length, y in zip(lefts, lengths, ys, strict=True):
        moves.append(f"m{x - at} 0h{length}" if y == row else f"M{x} {y:g}h{length}")
        row, at = y, x + length
    return "".join(moves)


def _numbers(schedule: Schedule, bars: _Bars) -> Iterator[str]:
    """The micro-batch's number, where the bar has room for it."""
    digits = np.char.str_len(schedule.micro_batch.astype(str))
    tall = bars.height > 16
    yield '<g class="no" text-anchor="middle">'
    for i in np.flatnonzero(bars.length >= _STEPS * (np.where(tall, 8, 6) * digits + 2)).tolist():
        x = round(_LEFT + (bars.x[i] + bars.length[i] / 2) / _STEPS, 1)
        size, drop = ("", 4.5) if tall[i] else (' style="font-size:11px"', 4)
        yield f'<text x="{x:g}" y="{bars.y[i] + drop:g}"{size}>{schedule.micro_batch[i]}</text>'
    yield "</g>"


def _head(timeline: Timeline, title: str, unit: Unit, words: _Words) -> Iterator[str]:
    title = clean(title)
    size = min(18.0, 2 * (_WIDTH - 2 * _RIGHT) / max(1, cell_len(title)))
    yield f'<text x="{_RIGHT}" y="28" style="font-size:{size:.3g}px;font-weight:600">{escape(title)}</text>'
    makespan = show(timeline.makespan_s, _kind(unit)) + (f" {words['units']}" if unit == "units" else "")
    figures = (
        f"{words['fraction']} {show(timeline.bubble_fraction, 'percent')}",
        f"{words['overhead']} {show(timeline.bubble_overhead, 'percent')}",
        f"{words['makespan']} {makespan}",
    )
    yield f'<text class="dim" x="{_RIGHT}" y="50">{" · ".join(figures)}</text>'


def _legend(schedule: Schedule, words: _Words) -> Iterator[str]:
    x = _LEFT
    for op in (*_used(schedule), None):
        colours = [_COLOURS[op][k] for k in (0, 1)] if op is not None else None
        for k in (0, 1):
            fill = f'fill="{colours[k]}"' if colours else 'class="idle"'
            yield f'<rect x="{x + 10 * k}" y="66" width="10" height="14" {fill}/>'
        label = f"{op.name} {words[op]}" if op is not None else words["idle"]
        yield f'<text class="dim" x="{x + 26}" y="78">{label}</text>'
        x += 50 + 7 * cell_len(label)


def _rows(p: int, row: int) -> Iterator[str]:
    for rank in range(p):
        y = _TOP + row * rank
        yield f'<rect class="idle" x="{_LEFT}" y="{y + 2}" width="{_PLOT}" height="{row - 4}"/>'
        yield f'<text class="dim" x="{_LEFT - 8}" y="{y + row / 2 + 4.5:g}" text-anchor="end">rank {rank}</text>'


def _axis(makespan_s: float, y: int, unit: Unit, words: _Words) -> Iterator[str]:
    size, sign = human_scale(_kind(unit), makespan_s)
    span = makespan_s / size or 1.0
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


def _used(schedule: Schedule) -> list[Op]:
    return [Op(op) for op in np.unique(schedule.op).tolist()]


def _looks(bars: _Bars) -> Iterator[str]:
    """Colour and height of every action's bar."""
    for colour, height in zip(bars.colour.tolist(), bars.height.tolist(), strict=True):
        yield f'class="{Op(colour // 2).name}{colour % 2}" stroke-width="{height:g}"'


def _colour_rules(schedule: Schedule) -> str:
    used = [(op, k) for op in _used(schedule) for k in (0, 1)]
    return "".join(f".pt .{op.name}{k}{{stroke:{_COLOURS[op][k]}}}" for op, k in used) + "\n"


def _kind(unit: Unit) -> Literal["seconds", "number"]:
    return "seconds" if unit == "seconds" else "number"
