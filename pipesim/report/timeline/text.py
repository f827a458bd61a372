"""A timeline as text: a line per rank, a cell per time unit, such as ``F0`` ``b0`` and ``··`` for idle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipesim.report.document import TimelineView
from pipesim.report.timeline.lanes import BACK, Lanes, chunk_names, lanes
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


def draw(timeline: Timeline, unit_s: float, *, wide: bool = False) -> str:
    """``unit_s`` is the length of a cell. ``ValueError`` if an action does not start and end on whole cells.

    Narrow, each cell has a label. Where a rank has several stages, a capital before it says which: A is the first that
    the micro-batch passes. ``‹`` marks micro-batches that run the other way. An overlapped pair shows its first action
    in the first half of its cells and the other in the rest; in a single cell, both.

    Wide, each slot shows once what runs in it, as the schedule prints it, under a ruler; at the end of a line stands
    how many activations the rank holds at most.

    >>> from pipesim.schedules import make_schedule
    >>> from pipesim.simulate import simulate
    >>> print(draw(simulate(make_schedule("1f1b", p=2, m=2)), 1.0, wide=True))
    time   | 0   1   2   3   4   5   6   7   8   | peak
    rank 0 | 0F0 0F1 ·   ·   0B0──── ·   0B1──── | 2
    rank 1 | ·   1F0 1B0──── 1F1 1B1──── ·   ·   | 1
    """
    first, last = _whole_cells(timeline, unit_s)
    return _wide(timeline, first, last) if wide else _narrow(timeline.schedule, first, last)


def view(shown: TimelineView, language: str) -> list[str]:
    """The drawing that a report's view asks for and, where its signs need one, the legend; nothing if it wants none."""
    if shown.unit_s is None or shown.text == "none":
        return []
    signs = legend(shown.timeline, language)
    return [draw(shown.timeline, shown.unit_s, wide=shown.text == "wide"), *([signs] if signs else [])]


def legend(timeline: Timeline, language: str = "en") -> str:
    """What the labels' signs mean, or "" where there are none."""
    schedule, of = timeline.schedule, lanes(timeline.schedule)
    english = language == "en"
    signs = []
    if of.chunks > 1:
        names = chunk_names(of.chunks)
        signs.append(f"{names}: a rank's stages, in order" if english else f"{names}：同一 rank 上的阶段，按先后")
    if of.back_micro_batches:
        signs.append(
            f"{BACK}: micro-batches {of.back_micro_batches}, which enter at rank {of.back_ranks}"
            if english
            else f"{BACK}：微批次 {of.back_micro_batches}，从 rank {of.back_ranks} 进入"
        )
    if schedule.segments > 1:
        signs.append(
            f"a micro-batch is cut into {schedule.segments} segments, which are numbered through"
            if english
            else f"每个微批次切成 {schedule.segments} 段，各段连续编号"
        )
    return ("; " if english else "；").join(signs)


def _narrow(schedule: Schedule, first: IntArray, last: IntArray) -> str:
    runs = list(_runs(schedule, first, last))
    width = max([2, *(len(run.label) for run in runs)])
    lines = [[_IDLE * width] * int(last.max()) for _ in range(schedule.p)]
    for run in runs:
        lines[run.rank][run.first : run.last] = [run.label.ljust(width)] * (run.last - run.first)
    return "\n".join(f"{head} | {''.join(line)}" for head, line in zip(_heads(schedule), lines, strict=True))


def _wide(timeline: Timeline, first: IntArray, last: IntArray) -> str:
    schedule = timeline.schedule
    slots = list(_slots(schedule, first, last))
    width = max([2, *(math.ceil((len(slot.label) + 1) / (slot.last - slot.first)) for slot in slots)])
    cells = int(last.max())
    lines = [[_IDLE.ljust(width)] * cells for _ in range(schedule.p)]
    for rank, begin, end, label in slots:
        filler = "─" if end - begin > 1 else " "
        lines[rank][begin:end] = [label.ljust((end - begin) * width - 1, filler) + " "] + [""] * (end - begin - 1)
    heads = _heads(schedule)
    ruler = f"{'time':<{len(heads[0])}} | {_ruler(cells, width)}| peak"
    rows = zip(heads, lines, timeline.peak_inflight, strict=True)
    return "\n".join([ruler, *(f"{head} | {''.join(line)}| {peak}" for head, line, peak in rows)])


def _ruler(cells: int, width: int) -> str:
    """Every cell's number, or every second's, fifth's, tenth's …, as there is room."""
    room = len(str(cells)) + 1
    step = next(f * 10**k for k in range(20) for f in (1, 2, 5) if f * 10**k * width >= room)
    return "".join(str(cell).ljust(step * width) for cell in range(0, cells, step))[: cells * width]


def _heads(schedule: Schedule) -> list[str]:
    digits = len(str(schedule.p - 1))
    return [f"rank {rank:<{digits}}" for rank in range(schedule.p)]


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
    labels = _labels(schedule, lanes(schedule))
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


def _slots(schedule: Schedule, first: IntArray, last: IntArray) -> Iterator[_Run]:
    """What takes any time: an action, or a pair as ``0F2&0B0``."""
    ranks, letters = schedule.rank_of().tolist(), [op.name for op in Op]
    columns = (schedule.stage.tolist(), schedule.op.tolist(), schedule.micro_batch.tolist(), lanes(schedule).marks())
    names = [f"{stage}{letters[op]}{number}{mark}" for stage, op, number, mark in zip(*columns, strict=True)]
    joined, begin, end = schedule.joined.tolist(), first.tolist(), last.tolist()
    opens = np.r_[True, ~schedule.joined[:-1]] & (last > first)
    for i in np.flatnonzero(opens).tolist():
        yield _Run(ranks[i], begin[i], end[i], f"{names[i]}&{names[i + 1]}" if joined[i] else names[i])


def _labels(schedule: Schedule, of: Lanes) -> list[str]:
    actions = zip(schedule.op.tolist(), schedule.micro_batch.tolist(), of.letters(), of.marks(), strict=True)
    return [f"{letter}{_LETTERS[Op(op)]}{number}{mark}" for op, number, letter, mark in actions]
