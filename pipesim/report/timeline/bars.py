"""The bars of a timeline's picture: every action as a piece of a path, and what stands on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.report.formats import show
from pipesim.report.timeline.lanes import Lanes
from pipesim.report.timeline.look import Tones, tones
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.simulate.timeline import Timeline

FloatArray = NDArray[np.float64]

MAX_TOOLTIPS = 5000
"""More actions are drawn as one path per colour."""

_FINE = 20  # steps in the shortest action, so that the picture may be enlarged
_MOST_STEPS = 1_000_000


class Grid(NamedTuple):
    """Where things lie, in pixels; coordinates along a row are whole numbers of steps."""

    left: int
    top: int
    width: int  # of ``steps`` steps
    row: int
    steps: int
    steps_per_s: float
    origin_s: float

    @property
    def px_per_step(self) -> float:
        return self.width / self.steps


class Bars(NamedTuple):
    """Left edge and length in steps, centre and height in pixels, and number of the colour. Shape (actions,) each."""

    x: IntArray
    length: IntArray
    y: FloatArray
    height: FloatArray
    colour: IntArray
    tones: Tones


def steps_of(timeline: Timeline, span_s: float, px: int) -> int:
    """Steps in ``span_s``: one for each unit of time where all times are whole, which is exact and short."""
    edges_s = np.stack([timeline.start_s, timeline.end_s]) - timeline.start_s.min()
    if 0 < span_s <= _MOST_STEPS and not (edges_s % 1).any() and span_s % 1 == 0:
        return int(span_s)
    took_s = timeline.end_s - timeline.start_s
    shortest_s = took_s[took_s > 0].min(initial=np.inf)
    return int(min(max(10 * px, np.ceil(_FINE * span_s / shortest_s)), _MOST_STEPS))


def bars(timeline: Timeline, of: Lanes, grid: Grid) -> Bars:
    schedule = timeline.schedule
    edges_s = (timeline.start_s, timeline.end_s)
    x, end = (np.rint((t - grid.origin_s) * grid.steps_per_s).astype(np.int64) for t in edges_s)
    upper, lower = schedule.joined, np.r_[False, schedule.joined[:-1]]
    thick = grid.row - 4.0
    middle = grid.top + grid.row * schedule.rank_of() + grid.row / 2
    return Bars(
        x=x,
        length=end - x,
        y=middle + thick / 4 * (lower.astype(float) - upper),
        height=np.where(upper | lower, thick / 2, thick),
        colour=(schedule.op * of.shades + of.shade) * 2 + schedule.micro_batch % 2,
        tones=tones(of.shades),
    )


def single(timeline: Timeline, drawn: Bars, kind: Literal["seconds", "number"]) -> Iterator[str]:
    """Each action for itself, with a tooltip."""
    names = _looks(timeline.schedule, drawn)
    for i, name in enumerate(names):
        begin, end = (show(float(t[i]), kind) for t in (timeline.start_s, timeline.end_s))
        tooltip = f"{timeline.schedule.action(i)}: {begin} – {end}"
        yield f'<path {name} d="M{drawn.x[i]} {drawn.y[i]:g}h{drawn.length[i]}"><title>{tooltip}</title></path>'


def merged(schedule: Schedule, drawn: Bars) -> Iterator[str]:
    """One path per colour and height, which runs along the rows and lifts its pen over the gaps."""
    order = np.lexsort((drawn.x, drawn.y, drawn.height, drawn.colour))
    order = order[drawn.length[order] > 0]
    changes = 1 + np.flatnonzero(np.diff(drawn.colour[order]) | (np.diff(drawn.height[order]) != 0))
    names = _looks(schedule, drawn)
    for group in np.split(order, changes):
        pen = _pen(drawn.x[group].tolist(), drawn.length[group].tolist(), drawn.y[group].tolist())
        yield f'<path {names[int(group[0])]} d="{pen}"/>'


def cuts(drawn: Bars, grid: Grid) -> Iterator[str]:
    """A thin gap between actions, where they are long enough for one."""
    wide = drawn.length * grid.px_per_step >= 6
    places = zip(drawn.x[wide].tolist(), (drawn.y - drawn.height / 2)[wide].tolist(), drawn.height[wide], strict=True)
    edges = "".join(f"M{x} {y:g}v{height:g}" for x, y, height in places if x > 0)
    if edges:
        yield f'<path class="cut" d="{edges}"/>'


class Labels(NamedTuple):
    """What stands on each bar and how large: in pixels, one size for a picture."""

    texts: list[str]
    size: int


def labels(schedule: Schedule, of: Lanes, drawn: Bars, grid: Grid) -> Labels | None:
    """The largest micro-batch numbers that fit into most bars, with their stages' letters if those fit too, or None."""
    plain = [str(number) for number in schedule.micro_batch.tolist()]
    lettered = [letter + text for letter, text in zip(of.letters(), plain, strict=True)]
    for texts, share in ((lettered, 0.9), (plain, 0.5)):
        for size in (13, 11, 9):
            if size + 4 <= drawn.height.min() and _fits(texts, size, drawn, grid).mean() >= share:
                return Labels(texts, size)
    return None


def numbers(drawn: Bars, grid: Grid, on: Labels) -> Iterator[str]:
    yield f'<g class="no" style="font-size:{on.size}px">'
    for i in np.flatnonzero(_fits(on.texts, on.size, drawn, grid)).tolist():
        x = grid.left + (drawn.x[i] + drawn.length[i] / 2) * grid.px_per_step
        light = ' class="light"' if drawn.tones.light[int(drawn.colour[i])] else ""
        yield f'<text x="{x:.5g}" y="{drawn.y[i] + 0.36 * on.size:.5g}"{light}>{on.texts[i]}</text>'
    yield "</g>"


def guide_step(schedule: Schedule, grid: Grid) -> int:
    """For bars too short for numbers: how many micro-batches to go on between marks, 1, 2 or 5 times a power of ten."""
    apart_px = grid.width / schedule.m
    steps = (factor * 10**power for power in range(20) for factor in (1, 2, 5))
    return int(next(step for step in steps if step * apart_px >= 64))


def guides(schedule: Schedule, of: Lanes, drawn: Bars, grid: Grid, every: int) -> Iterator[str]:
    """Where forwards of every so many micro-batches start on each rank's first stage: ticks, and numbers with room."""
    marked = (schedule.op == Op.F) & (schedule.micro_batch % every == 0) & (of.chunk == 0)
    at = np.flatnonzero(marked & (drawn.length > 0))
    at = at[np.lexsort((drawn.x[at], schedule.rank_of()[at]))]
    edges = "".join(f"M{drawn.x[i]} {drawn.y[i] - drawn.height[i] / 2:g}v{drawn.height[i]:g}" for i in at.tolist())
    yield f'<g transform="translate({grid.left}) scale({grid.px_per_step:.9g} 1)" class="bars"><path class="at" d="{edges}"/></g>'
    yield '<g class="guide">'
    rank_of, labelled = schedule.rank_of(), max(1, schedule.p // 8 if schedule.p > 16 else 1)
    row, free_px = -1, 0.0
    for i in at.tolist():
        if rank_of[i] % labelled:
            continue
        x = grid.left + drawn.x[i] * grid.px_per_step + 3
        free_px = 0.0 if rank_of[i] != row else free_px
        row, label = rank_of[i], str(schedule.micro_batch[i])
        right = x + 6.5 * len(label) + 4
        if x >= free_px and right <= grid.left + grid.width:
            yield f'<text x="{x:.7g}" y="{grid.top + grid.row * row + grid.row / 2 + 3.5:g}">{label}</text>'
            free_px = right
    yield "</g>"


def _pen(lefts: list[int], lengths: list[int], ys: list[float]) -> str:
    moves = []
    row, at = -1.0, 0
    for x, length, y in zip(lefts, lengths, ys, strict=True):
        moves.append(f"m{x - at} 0h{length}" if y == row else f"M{x} {y:g}h{length}")
        row, at = y, x + length
    return "".join(moves)


def _looks(schedule: Schedule, drawn: Bars) -> list[str]:
    """Attributes of every action's bar."""
    colours = drawn.tones.colour
    return [
        f'class="{Op(op).name}" stroke="{colours[colour]}" stroke-width="{height:g}"'
        for op, colour, height in zip(schedule.op.tolist(), drawn.colour.tolist(), drawn.height.tolist(), strict=True)
    ]


def _fits(texts: list[str], size: int, drawn: Bars, grid: Grid) -> NDArray[np.bool_]:
    widths_px = 0.64 * size * np.char.str_len(np.array(texts)) + 2
    return np.asarray(drawn.length * grid.px_per_step >= widths_px)
