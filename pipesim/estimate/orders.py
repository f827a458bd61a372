"""What a schedule's order alone decides, once for all points that run it: who holds, runs and sends what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.estimate.points import Shape
from pipesim.schedules import make_schedule
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.remembered import remembered
from pipesim.schedules.rules import dependencies
from pipesim.simulate import peak_counts, peak_held, programs
from pipesim.simulate.programs import Program
from pipesim.specs import Point

BLOCKS = 7
"""Of so many blocks of micro-batches is the shortest order of a program that stands for longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """The orders of one program: of ``m`` micro-batches and of any number of ``block``s more. A rank holds up to k stages.

    What they count grows evenly with every block, by what ``growth`` says.
    """

    schedule: Schedule
    """Of ``m`` micro-batches."""
    program: Program
    m: int
    block: int
    stages: IntArray
    """Which stages each rank holds, shape (p, k); -1 where it has fewer."""
    micro_batches: FloatArray
    """How many micro-batches the rank runs of each of its stages, shape (p, k)."""
    held: FloatArray
    """Activations of each of its stages that the rank holds at once, in the j moments that can matter: (p, j, k)."""
    sends: np.float64
    """Of whole micro-batches, by the rank that sends most in a step."""
    peak_inflight: FloatArray
    """Shape (p,)."""
    growth: dict[str, Any]
    """Of each of ``COUNTED``."""


def order(like: Point, shape: Shape, m: int, times: Sequence[Any]) -> Order:
    """``auto`` makes its order for these ``times``: forward, input and weight gradient of every stage, and a hop."""
    name, options = like.schedule, like.options
    if name == "auto":
        return _order(for_times(name, shape.p, m, shape.v, options, times))
    block = math.lcm(shape.p, 16 if shape.p > 2 else 32)  # a body of the program is at least 64 steps
    few = BLOCKS * block + m % block
    if m >= few + block and name != "custom":
        family = _family(name, shape.p, few, shape.v, options, block)
        if family is not None:
            return family
    return _known(name, shape.p, m, shape.v, options)


def scheduled(like: Point, shape: Shape, m: int, order: Order) -> Schedule:
    """The schedule of m micro-batches that an order stands for."""
    if m == order.m:
        return order.schedule
    return make_schedule(like.schedule, p=shape.p, m=m, v=shape.v, **dict(like.options))


def for_times(name: str, p: int, m: int, v: int, options: Sequence[tuple[str, Any]], times: Sequence[Any]) -> Schedule:
    """The schedule of these sizes; to all but ``auto`` times are nothing."""
    named = (
        zip(("forward_s", "input_grad_s", "weight_grad_s", "latency_s"), times, strict=True) if name == "auto" else ()
    )
    return make_schedule(name, p=p, m=m, v=v, **dict(options), **dict(named))


Options = tuple[tuple[str, Any], ...]


@remembered(maxsize=2048)
def _known(name: str, p: int, m: int, v: int, options: Options) -> Order:
    return _order(make_schedule(name, p=p, m=m, v=v, **dict(options)))


@remembered(maxsize=512)
def _family(name: str, p: int, few: int, v: int, options: Options, block: int) -> Order | None:
    """The order of ``few`` micro-batches and how it grows, if two blocks more only repeat what one block more repeats."""
    first, second, third = (_order(make_schedule(name, p=p, m=few + k * block, v=v, **dict(options))) for k in range(3))
    program = programs.grown(first.program, second.program)
    again = programs.grown(second.program, third.program)
    if program is None or again is None or not np.array_equal(program.grows, again.grows):
        return None
    if not first.held.shape == second.held.shape == third.held.shape:
        return None
    growth = {name: getattr(second, name) - getattr(first, name) for name in COUNTED}
    if any((getattr(third, name) - getattr(second, name) != growth[name]).any() for name in COUNTED):
        return None
    return replace(first, program=program, block=block, growth=growth)


COUNTED = ("micro_batches", "held", "sends", "peak_inflight")


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
    held = np.zeros((schedule.p, max(map(len, greatest)), width))
    for rank, moments in enumerate(greatest):
        own = stages[rank][stages[rank] >= 0]
        held[rank, : len(moments), : len(own)] = moments[:, own] / schedule.segments
    of_stages = np.take_along_axis(runs, np.maximum(stages, 0), axis=1) / schedule.segments
    counted: dict[str, Any] = {
        "micro_batches": np.where(stages >= 0, of_stages, 0.0),
        "held": held,
        "sends": np.float64(sends.max() / schedule.segments),
        "peak_inflight": peak_held(schedule, np.ones(schedule.stages)),
    }
    return Order(
        schedule=schedule,
        program=programs.compile_schedule(schedule),
        m=schedule.m // schedule.segments,
        block=1,
        stages=stages,
        **counted,
        growth={name: np.zeros_like(values) for name, values in counted.items()},
    )
