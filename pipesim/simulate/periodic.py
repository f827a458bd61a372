"""Any number of micro-batches at the cost of a few: the steady state of a static schedule repeats and need not be run.

A schedule is run for a few micro-batches. If at two moments of that run every rank stands at the same place of the
block by which the order grows, and all that the future depends on lies equally far back, then what follows the second
moment is what follows the first, later by the time between them: each further block adds exactly that time. That
the order keeps growing by this block is seen from one block to the next and believed beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules import make_schedule, problems
from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.rules import dependencies, results
from pipesim.simulate import engine
from pipesim.simulate.engine import Setup
from pipesim.simulate.growth import Growth, growth
from pipesim.simulate.kernel import FloatArray, Times
from pipesim.simulate.links import Links
from pipesim.simulate.timeline import Timeline

MOST_PERIODS = 4
"""How many blocks a period is looked for in."""


class Figures(NamedTuple):
    """What a ``Timeline`` of m micro-batches would say, and how that is known.

    ``how`` is "full" (all m were run), "period" (a repetition was found, so the rest follows) or "line" (the order
    grows in several places, and four runs lie on one line: seen, not proven).
    """

    makespan_s: float
    span_s: float
    busy_s: FloatArray  # of each rank
    peak_inflight: tuple[int, ...]
    simulated: int  # micro-batches of the longest run
    how: Literal["full", "period", "line"]

    @property
    def bubble_fraction(self) -> float:
        """Idle / (p * makespan)."""
        return float(1 - self.busy_s.sum() / (len(self.busy_s) * self.makespan_s))

    @property
    def bubble_overhead(self) -> float:
        """Idle / useful."""
        return float(len(self.busy_s) * self.makespan_s / self.busy_s.sum() - 1)


class _Repetition(NamedTuple):
    """By how much ``periods`` blocks lengthen the run, and what work they are for each rank."""

    periods: int
    step_s: float
    work_s: FloatArray


def figures(
    name: str,
    *,
    p: int,
    m: int,
    v: int | None = None,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
    **options: Any,
) -> Figures:
    """Makespan, span, work and peaks of a named schedule at a cost that does not grow with m; times as in ``simulate``.

    Equal to the last bit to the full simulation if the times are such that its sums are exact; otherwise every time is
    rounded to a grid on which they are, by about 1e-16 of the few blocks' makespan. Times are one number or one per
    stage. An order without a period of up to 4 blocks is run in full, as far as ``make_schedule`` goes.
    """
    for label, seconds in (("forward_s", forward_s), ("input_grad_s", input_grad_s), ("weight_grad_s", weight_grad_s)):
        if np.ndim(seconds) > 1:
            raise ValueError(f"{label} has shape {np.shape(seconds)}; here every micro-batch takes the same time.")

    def make(micro_batches: int) -> Schedule:
        return make_schedule(name, p=p, m=micro_batches, v=v, **options)

    def prepare(schedule: Schedule) -> Setup:
        return engine.prepare(
            schedule, forward_s, input_grad_s, weight_grad_s, latency_s, pair_s=pair_s, links=links
        )  # fmt: skip

    for block in _blocks(p, options):
        sizes = [m - max(0, m - low) // block * block for low in (2 * p, 4 * p)]
        if any(problems(name, p, few, v, **options) for few in sizes):
            continue  # only the full m may be legal
        found = _by_period(make, prepare, p, m, block) or _by_line(make, prepare, p, m, block)
        if found is not None:
            return found
    setup = prepare(make(m))
    timeline = engine.run(setup, engine.fresh_state(setup))
    return Figures(timeline.makespan_s, timeline.span_s, timeline.busy_s, timeline.peak_inflight, m, "full")


def _blocks(p: int, options: dict[str, Any]) -> list[int]:
    """Numbers of micro-batches by which orders grow: a pipeline's depth, two, or what a group of micro-batches asks."""
    sizes = [value for value in options.values() if isinstance(value, int) and value > 0]
    return list(dict.fromkeys([p, 2 * p, *(math.lcm(p, size) for size in sizes)]))


def _by_period(
    make: Callable[[int], Schedule], prepare: Callable[[Schedule], Setup], p: int, m: int, block: int
) -> Figures | None:
    few, repeats = m - max(0, m - 4 * p) // block * block, -1
    while few + block < m:
        schedule, before, repetition = make(few), repeats, None
        blocks = (m - few) // block
        grown = growth(schedule, make(few + block))
        if grown is not None:
            if (grown.high - grown.low).max() < grown.block.max():
                return None  # it grows in several places: nothing repeats
            setup = prepare(schedule)
            timeline = _run_exactly(setup, _unit_s(setup))
            repetition = _repetition(timeline, grown)
            repeats = int((grown.high - grown.low).min())
        if repetition is not None:
            if blocks % repetition.periods == 0:
                return _extended(timeline, repetition, blocks // repetition.periods)._replace(simulated=few)
            few += blocks % repetition.periods * block
        elif repeats > before or (grown is None and few < 16 * p):
            few += min(few // block, blocks) * block
        else:
            return None  # the longer the order, the longer what never repeats
    return None


def _unit_s(setup: Setup) -> float:
    """A power of two so large that no sum of its multiples is rounded within one run."""
    return math.ldexp(1.0, math.frexp(2 * float(engine.run(setup, engine.fresh_state(setup)).end_s.max()))[1] - 52)


def _run_exactly(setup: Setup, unit_s: float) -> Timeline:
    """The run with every time rounded to a multiple of ``unit_s``."""

    def rounded(seconds: FloatArray) -> FloatArray:
        return np.round(seconds / unit_s) * unit_s

    wires, sizes = setup.wires, setup.wires.message_bytes
    if wires.s_per_byte.size == 1:  # sizes count in seconds
        wires = wires._replace(message_bytes=rounded(sizes * wires.s_per_byte[0, 0]), s_per_byte=np.ones((1, 1)))
    wires = wires._replace(latency_s=rounded(wires.latency_s))
    times = Times(rounded(setup.times.seconds), rounded(setup.times.pair_s))
    setup = setup._replace(times=times, wires=wires)
    return engine.run(setup, engine.fresh_state(setup))


def _repetition(timeline: Timeline, grown: Growth) -> _Repetition | None:
    """Two moments, as few blocks apart as possible, from which on the run would go on alike."""
    schedule = timeline.schedule
    cut = _cut(timeline, grown)
    if cut is None:
        return None
    rank_of, start = schedule.rank_of(), schedule.rank_start[:-1]
    place = np.arange(len(schedule)) - start[rank_of]
    remote = dependencies(schedule).remote
    before, reads = place < cut[rank_of], remote >= 0
    if (before[reads] & ~before[remote[reads]]).any():
        return None
    pending = remote[reads & ~before]
    pending = pending[before[pending]]
    oldest = cut.copy()  # the first action of each rank on which the future depends
    np.minimum.at(oldest, rank_of[pending], place[pending])
    for periods in range(1, MOST_PERIODS + 1):
        back = periods * grown.block
        oldest = np.minimum(oldest, cut - back)
        if (oldest - back < grown.low).any():
            return None
        window = np.flatnonzero((place >= oldest[rank_of]) & before)
        steps_s = np.concatenate([of[window] - of[window - back[rank_of[window]]] for of in _ends(timeline)])
        if np.ptp(steps_s) == 0:
            own = np.flatnonzero((place >= (cut - back)[rank_of]) & before & np.r_[True, ~schedule.joined[:-1]])
            work_s = np.bincount(
                rank_of[own], timeline.end_s[own] - timeline.start_s[own], minlength=schedule.p
            ).astype(np.float64)
            return _Repetition(periods, float(steps_s[0]), work_s)
    return None


def _cut(timeline: Timeline, grown: Growth) -> IntArray | None:
    """How many actions each rank has ended when the first rank leaves the part of its list that repeats."""
    schedule = timeline.schedule
    start, grows = schedule.rank_start[:-1], grown.block > 0
    if (grown.high[grows] < 1).any() or not grows.any():
        return None
    when_s = timeline.end_s[(start + grown.high - 1)[grows]].min()
    ended = [np.searchsorted(timeline.end_s[a:b], when_s, "right") for a, b in pairwise(schedule.rank_start)]
    cut = np.minimum(ended, np.where(grows, grown.high, np.diff(schedule.rank_start)))
    halves = schedule.joined[np.maximum(start + cut, 1) - 1] & (cut > 0)  # a cut through a pair goes before it
    return np.asarray(cut - halves, np.int64)


def _ends(timeline: Timeline) -> list[FloatArray]:
    """The end of each action, and when its result had left if messages take turns."""
    schedule, deliveries = timeline.schedule, timeline.deliveries
    if deliveries is None or not deliveries.wires.transfers:
        return [timeline.end_s]
    made = results(schedule.stages).made[schedule.op, schedule.stage]
    left_s = np.where(made >= 0, deliveries.left_s[made, schedule.micro_batch], timeline.end_s)
    return [timeline.end_s, left_s]


def _extended(timeline: Timeline, repetition: _Repetition, times: int) -> Figures:
    """The figures with the repetition put in ``times`` more often."""
    last_s = _outline(timeline).last_s + times * repetition.step_s
    busy_s = timeline.busy_s + times * repetition.work_s
    return _figures(timeline, last_s, busy_s, timeline.peak_inflight, "period")


def _by_line(
    make: Callable[[int], Schedule], prepare: Callable[[Schedule], Setup], p: int, m: int, block: int
) -> Figures | None:
    """Four runs at equal distances; all figures of all ranks must grow by the same from each to the next."""
    few, more = m - max(0, m - 2 * p) // block * block, block
    if few + 3 * more >= m:
        return None
    setups = [prepare(make(few + k * more)) for k in range(4)]
    unit_s = _unit_s(setups[-1])
    timelines = [_run_exactly(setup, unit_s) for setup in setups]
    runs = np.array(
        [[*_outline(timeline), timeline.busy_s, timeline.peak_inflight] for timeline in timelines], np.float64
    )
    steps: FloatArray = np.diff(runs, axis=0)
    if (steps != steps[0]).any() or steps[0, 0].any():  # nor may first starts move
        return None
    _, last_s, busy_s, peak = runs[-1] + (m - few - 3 * more) * (steps[0] / more)
    peaks = tuple(int(x) for x in np.round(peak))
    return _figures(timelines[-1], last_s, busy_s, peaks, "line")._replace(simulated=few + 3 * more)


class _Outline(NamedTuple):
    """When each rank's first action starts and its last one ends, shape (p,); 0 for a rank without any."""

    first_s: FloatArray
    last_s: FloatArray


def _outline(timeline: Timeline) -> _Outline:
    start, used = timeline.schedule.rank_start, np.diff(timeline.schedule.rank_start) > 0
    first, last = np.where(used, start[:-1], 0), np.where(used, start[1:] - 1, 0)
    return _Outline(np.where(used, timeline.start_s[first], 0.0), np.where(used, timeline.end_s[last], 0.0))


def _figures(
    timeline: Timeline,
    last_s: FloatArray,
    busy_s: FloatArray,
    peak_inflight: tuple[int, ...],
    how: Literal["period", "line"],
) -> Figures:
    used = np.diff(timeline.schedule.rank_start) > 0
    first_s, last_s = _outline(timeline).first_s[used], last_s[used]
    makespan_s, span_s = float(last_s.max() - first_s.min()), float((last_s - first_s).max())
    return Figures(makespan_s, span_s, busy_s, peak_inflight, timeline.schedule.m, how)
