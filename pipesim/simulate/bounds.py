"""What no order can beat: the longest chain of dependencies, and the busiest rank's work with its way in and out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import results
from pipesim.simulate import engine
from pipesim.simulate.engine import Setup
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.links import Links


class Bounds(NamedTuple):
    """Lower bounds of the makespan, for the schedule's placement of stages and its pairs but any order of slots.

    ``path_s``: one micro-batch through all stages and back. ``work_s``: for the worst rank, the shortest way to its
    first action, all its work, and the shortest way from its last action to the end. ``span_s`` bounds the longest
    rank's span.
    """

    path_s: float
    work_s: float
    span_s: float

    @property
    def makespan_s(self) -> float:
        return max(self.path_s, self.work_s)


def lower_bounds(
    schedule: Schedule,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    *,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
) -> Bounds:
    """Arguments as in ``simulate``; waiting for links, readers and blocked sends is left out, so bounds stay bounds."""
    setup = engine.prepare(schedule, forward_s, input_grad_s, weight_grad_s, latency_s, pair_s=pair_s, links=links)
    took_s, opens = _slot_seconds(setup)
    before_s, after_s = _ways(setup, took_s)
    rank_of, infinite = schedule.rank_of(), np.full(schedule.p, np.inf)
    way_in_s, way_out_s = infinite.copy(), infinite.copy()
    np.minimum.at(way_in_s, rank_of, before_s)
    np.minimum.at(way_out_s, rank_of, after_s)
    used = np.diff(schedule.rank_start) > 0
    work_s = np.bincount(rank_of, np.where(opens, took_s, 0.0), minlength=schedule.p)
    return Bounds(
        path_s=float((before_s + took_s + after_s).max()),
        work_s=float((way_in_s + work_s + way_out_s)[used].max()),
        span_s=float(work_s.max()),
    )


def _slot_seconds(setup: Setup) -> tuple[FloatArray, np.ndarray]:
    """Seconds of each action's slot, and whether the action opens it."""
    schedule, (seconds, pair_s) = setup.schedule, setup.times
    kind = schedule.op.astype(np.int64) * schedule.stages + schedule.stage
    took_s = seconds[kind, schedule.micro_batch if seconds.shape[1] > 1 else 0]
    first = np.flatnonzero(schedule.joined)
    at = (schedule.stage[first], schedule.stage[first + 1]) if len(pair_s) > 1 else (0, 0)
    fused_s = np.broadcast_to(pair_s[at], first.shape)
    took_s[first] = np.where(np.isnan(fused_s), took_s[first] + took_s[first + 1], fused_s)
    took_s[first + 1] = took_s[first]
    return took_s, np.r_[True, ~schedule.joined[:-1]]


def _ways(setup: Setup, took_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each action the longest chain of dependencies that must run before its start, and after its end."""
    schedule, rows = setup.schedule, results(setup.schedule.stages)
    rank_of = schedule.rank_of()
    rank_at = np.zeros((schedule.stages, schedule.m), np.int64)
    rank_at[schedule.stage, schedule.micro_batch] = rank_of
    before_s, after_s = np.zeros((2, len(schedule)))
    made_s, needed_s = np.zeros((2, 2 * schedule.stages, schedule.m))  # a result is there; what still follows it
    order = list(_in_order(schedule))
    for op, stage, own in order:
        k = schedule.micro_batch[own]
        for row in (rows.remote[op, stage], rows.local[op, stage]):
            if row >= 0:
                hop_s = _hop_s(setup, row, rank_at[row % schedule.stages, k], rank_of[own])
                before_s[own] = np.maximum(before_s[own], made_s[row, k] + hop_s)
        if rows.made[op, stage] >= 0:
            made_s[rows.made[op, stage], k] = before_s[own] + took_s[own]
    for op, stage, own in reversed(order):
        k = schedule.micro_batch[own]
        if rows.made[op, stage] >= 0:
            after_s[own] = needed_s[rows.made[op, stage], k]
        for row in (rows.remote[op, stage], rows.local[op, stage]):
            if row >= 0:
                hop_s = _hop_s(setup, row, rank_at[row % schedule.stages, k], rank_of[own])
                needed_s[row, k] = np.maximum(needed_s[row, k], hop_s + took_s[own] + after_s[own])
    return before_s, after_s


def _in_order(schedule: Schedule) -> Iterator[tuple[Op, int, IntArray]]:
    """The actions of each op and stage, such that what a group needs comes before it."""
    kind = schedule.op.astype(np.int64) * schedule.stages + schedule.stage
    by_kind = np.argsort(kind, kind="stable")
    start = np.searchsorted(kind[by_kind], np.arange(len(Op) * schedule.stages + 1))
    stages = range(schedule.stages)
    groups = [(Op.F, s) for s in stages] + [(op, s) for s in reversed(stages) for op in (Op.B, Op.I, Op.W)]
    for op, stage in groups:
        at = op * schedule.stages + stage
        yield op, stage, by_kind[start[at] : start[at + 1]]


def _hop_s(setup: Setup, row: int, sender: IntArray, reader: IntArray) -> FloatArray:
    """Seconds of a message without waiting; 0 on one rank."""
    wires = setup.wires
    latency_s = wires.latency_s[(sender, reader) if len(wires.latency_s) > 1 else (0, 0)]
    s_per_byte = wires.s_per_byte[(sender, reader) if len(wires.s_per_byte) > 1 else (0, 0)]
    return np.where(sender == reader, 0.0, wires.message_bytes[row] * s_per_byte + latency_s)
