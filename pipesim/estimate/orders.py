"""What a schedule's order alone decides, once for all points that run it: who holds, runs and sends what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.estimate.points import Shape
from pipesim.schedules import make_schedule
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate import peak_counts, peak_held
from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """A schedule and its figures. A rank holds up to k stages: ``stages`` (p, k) names them, -1 where it has fewer."""

    schedule: Schedule
    stages: IntArray
    micro_batches: FloatArray
    """How many micro-batches the rank runs of each of its stages, shape (p, k)."""
    held: IntArray
    """Activations of each of its stages that the rank holds at once, in the j moments that can matter: (p, j, k)."""
    sends: int
    """Of the rank that sends most, per step."""
    peak_inflight: tuple[int, ...]


def order(like: Point, shape: Shape, m: int, times: Sequence[Any]) -> Order:
    """``auto`` makes its order for these ``times``: forward, input and weight gradient of every stage, and a hop."""
    if like.schedule != "auto":
        return _known(like.schedule, shape.p, m, shape.v, like.options)
    return _order(for_times(like.schedule, shape.p, m, shape.v, like.options, times))


def for_times(name: str, p: int, m: int, v: int, options: Sequence[tuple[str, Any]], times: Sequence[Any]) -> Schedule:
    """The schedule of these sizes; to all but ``auto`` times are nothing."""
    named = (
        zip(("forward_s", "input_grad_s", "weight_grad_s", "latency_s"), times, strict=True) if name == "auto" else ()
    )
    return make_schedule(name, p=p, m=m, v=v, **dict(options), **dict(named))


@lru_cache(maxsize=512)
def _known(name: str, p: int, m: int, v: int, options: tuple[tuple[str, Any], ...]) -> Order:
    return _order(make_schedule(name, p=p, m=m, v=v, **dict(options)))


def _order(schedule: Schedule) -> Order:
    rank_of, needs = schedule.rank_of(), dependencies(schedule).remote
    travels = np.flatnonzero((needs >= 0) & (rank_of[needs] != rank_of))
    sends = np.bincount(rank_of[needs[travels]], minlength=schedule.p)
    forwards = schedule.op == Op.F
    runs = np.zeros((schedule.p, schedule.stages), np.int64)
    np.add.at(runs, (rank_of[forwards], schedule.stage[forwards]), 1)
    width = int((runs > 0).sum(axis=1).max())
    stages = np.full((schedule.p, width), -1)
    for rank, counts in enumerate(runs):
        own = np.flatnonzero(counts)
        stages[rank, : len(own)] = own
    greatest = peak_counts(schedule)
    held = np.zeros((schedule.p, max(map(len, greatest)), width), np.int64)
    for rank, moments in enumerate(greatest):
        own = stages[rank][stages[rank] >= 0]
        held[rank, : len(moments), : len(own)] = moments[:, own]
    return Order(
        schedule=schedule,
        stages=stages,
        micro_batches=np.where(stages >= 0, np.take_along_axis(runs, np.maximum(stages, 0), axis=1), 0)
        / schedule.segments,
        held=held,
        sends=int(sends.max()),
        peak_inflight=tuple(int(peak) for peak in peak_held(schedule, np.ones(schedule.stages))),
    )
