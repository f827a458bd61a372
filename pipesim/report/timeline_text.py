"""A timeline as text: a line per rank, a cell per time unit, such as ``F0`` ``b0`` and ``··`` for idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.simulate.timeline import Timeline

_LETTERS = {Op.F: "F", Op.B: "b", Op.I: "i", Op.W: "w"}
_IDLE = "·"


class _Run(NamedTuple):
    """Cells ``first:last`` of a rank that show the same label."""

    rank: int
    first: int
    last: int
    label: str


def draw(timeline: Timeline, unit_s: float) -> str:
    """``unit_s`` is the length of a cell. ``ValueError`` if an action does not start and end on whole cells.

    Where a rank has several stages, a capital before the label says which: A is its lowest stage. An overlapped pair
    shows its first action in the first half of its cells and the other in the rest; in a single cell, both.
    """
    first, last = _whole_cells(timeline, unit_s)
    runs = list(_runs(timeline.schedule, first, last))
    width = max([2, *(len(run.label) for run in runs)])
    lines = [[_IDLE * width] * int(last.max()) for _ in range(timeline.schedule.p)]
    for run in runs:
        lines[run.rank][run.first : run.last] = [run.label.ljust(width)] * (run.last - run.first)
    head = len(str(timeline.schedule.p - 1))
    return "\n".join(f"rank {rank:<{head}} | {''.join(line)}" for rank, line in enumerate(lines))


def _whole_cells(timeline: Timeline, unit_s: float) -> IntArray:
    """The first cell of every action, and the one after its last; shape (2, actions)."""
    if not (np.isfinite(unit_s) and unit_s > 0):
        raise ValueError(f"unit_s={unit_s} must be a finite number above 0.")
    cells = (np.stack([timeline.start_s, timeline.end_s]) - timeline.start_s.min()) / unit_s
    whole: IntArray = np.rint(cells).astype(np.int64)
    off = np.flatnonzero((np.abs(cells - whole) > 1e-6).any(axis=0))
    if len(off):
        i = int(off[0])
        raise ValueError(
            f"unit_s={unit_s} does not fit {timeline.schedule.action(i)}, which runs from {timeline.start_s[i]:g} to "
            f"{timeline.end_s[i]:g}; every action must start and end on a whole number of units. "
            "Nearest: a unit that divides all durations, or the SVG, which takes any."
        )
    return whole


def _runs(schedule: Schedule, first: IntArray, last: IntArray) -> Iterator[_Run]:
    labels = _labels(schedule)
    ranks = schedule.rank_of()
    second = False
    for i, label in enumerate(labels):
        rank, start, stop = int(ranks[i]), int(first[i]), int(last[i])
        if schedule.joined[i]:
            middle = (start + stop) // 2
            if stop - start == 1:
                yield _Run(rank, start, stop, label + labels[i + 1])
            else:
                yield _Run(rank, start, middle, label)
                yield _Run(rank, middle, stop, labels[i + 1])
        elif not second:
            yield _Run(rank, start, stop, label)
        second = bool(schedule.joined[i])


def _labels(schedule: Schedule) -> list[str]:
    names = [f"{_LETTERS[Op(op)]}{mb}" for op, mb in zip(schedule.op, schedule.micro_batch, strict=True)]
    edges = zip(schedule.rank_start[:-1], schedule.rank_start[1:], strict=True)
    chunks = [np.unique(schedule.stage[start:stop], return_inverse=True) for start, stop in edges]
    if all(len(stages) <= 1 for stages, _ in chunks):
        return names
    index = np.concatenate([inverse for _, inverse in chunks])
    return [_capital(int(chunk)) + name for chunk, name in zip(index, names, strict=True)]


def _capital(chunk: int) -> str:
    """A to Z, then AA, AB, … as spreadsheets count."""
    before, letter = divmod(chunk, 26)
    return (_capital(before - 1) if before else "") + chr(ord("A") + letter)
