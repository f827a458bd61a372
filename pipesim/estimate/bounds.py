"""What a step takes and a rank holds at the very least, from prices alone: no order is made, nothing is simulated."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs.columns import FloatArray, alike, codes
from pipesim.costs.prices import Prices
from pipesim.estimate.points import Points, Shape
from pipesim.estimate.runs import handed_on, members_of, summed
from pipesim.schedules import peak_inflight
from pipesim.schedules.action import IntArray
from pipesim.schedules.families import FAMILIES, WAVES

ROUNDING = 1e-9
"""By this share a bound is lowered, so that sums of another order cannot pass it."""

OTHER_ORDERS = ("auto", "custom", "seq1f1b", "naive")
"""Schedules whose memory law is not asked, and with other ways of passing micro-batches on than whole ones in turn."""
TWO_WAYS = ("dualpipe", "chimera")
"""Schedules that start from both ends: a rank runs half of the micro-batches of each of its two stages."""


class Bounds(NamedTuple):
    """Of each point, shape (n,): no estimate of it is smaller."""

    step_time_s: FloatArray
    memory_bytes: FloatArray


class Ranks(NamedTuple):
    """The kinds of a pipeline's ranks: those with stages of the same kinds do and hold as much."""

    kinds: IntArray
    """The kinds of their stages, shape (kinds of ranks, v)."""
    counts: IntArray
    """How many of their stages are of each kind, shape (kinds of ranks, kinds of stages)."""
    stages: IntArray
    """Those of one rank of each kind."""
    kind_of: IntArray
    """Of each rank."""
    latest: IntArray
    """Of each kind the first stage of that rank where the first micro-batch comes last."""
    every: IntArray
    """The stages of every rank, shape (p, v)."""


def bounds(points: Points, prices: Prices, room_bytes: float = np.inf) -> Bounds:
    """Whatever the order, a rank cannot start before the first micro-batch has come to it, runs everything of its own,
    and after it the last gradient goes back to the first stage; and all that a rank keeps of one micro-batch is held at
    once, before its first backward. Nobody asks for the time of a point that holds more than ``room_bytes``: it is 0.
    """
    step_s, memory = np.zeros(len(points)), np.zeros(len(points))
    totals = np.stack([np.asarray(sum(items.values())) for items in prices.seconds])  # (3, cells, kinds)
    still = (
        prices.weights_bytes
        + prices.gradients_bytes
        + prices.optimizer_bytes
        + prices.logits_bytes
        + prices.buffer_bytes
    )
    for members in members_of(points.shape_of[points.cell_of]):
        shape = points.shapes[points.shape_of[points.cell_of[members[0]]]]
        ranks = _ranks(shape.kind_of, shape.rank_of)
        memory[members] = (1 - ROUNDING) * _memory(points, prices, shape, still, members, ranks)
        fits = members[memory[members] <= room_bytes]
        if len(fits):
            step_s[fits] = (1 - ROUNDING) * _step_s(points, prices, shape, totals, fits, ranks)
    return Bounds(step_s, memory)


def _step_s(
    points: Points,
    prices: Prices,
    shape: Shape,
    totals: FloatArray,
    members: IntArray,
    ranks: Ranks,
) -> FloatArray:
    m, (cells, of) = points.num_microbatches[members], codes(points.cell_of[members])
    op_s = totals[:, cells][:, :, list(shape.kind_of)].transpose(0, 2, 1)
    standing_s, _ = handed_on(points, prices, shape, cells, op_s)
    if standing_s is None:
        pipeline_s = _pipeline_s(points, shape, op_s, m, of, ranks.stages, ranks.latest)
    else:  # what a stage waits for depends on where its neighbours are
        pipeline_s = _pipeline_s(points, shape, standing_s, m, of, ranks.every, ranks.every[:, 0])
    exchange_s, updating_s = (summed(each[cells], ranks.kinds) for each in (prices.dp_s, prices.optimizer_s))
    if points.like.schedule in TWO_WAYS:  # a rank has what two stages exchange, this one among them
        return pipeline_s + prices.step_s
    exposed_s = exchange_s.max(axis=1)[of]
    return np.asarray(pipeline_s + exposed_s + updating_s.max(axis=1)[of] + prices.step_s)


def _pipeline_s(
    points: Points, shape: Shape, op_s: FloatArray, m: IntArray, of: IntArray, stages: IntArray, first: IntArray
) -> FloatArray:
    """``op_s`` (3, stages, cells), of which m micro-batches are run on ranks with these ``stages`` (ranks, v)."""
    like, work_s = points.like, op_s.sum(axis=0)
    if like.schedule in (*TWO_WAYS, *OTHER_ORDERS):
        return np.asarray(m * work_s.sum(axis=0)[of] / shape.p)
    busy_s = _on_ranks(work_s, stages)
    if not like.training.optimizer_barrier:  # fill and drain of neighbouring steps overlap
        return np.asarray(m * busy_s.max(axis=1)[of])
    split = FAMILIES[like.schedule].split  # weight gradients may come after everything else
    fill_s = op_s[0] if split else work_s
    before_s = (np.cumsum(fill_s, axis=0) - fill_s)[first].T
    return np.asarray((m[:, None] * busy_s[of] + before_s[of]).max(axis=1))


def _memory(
    points: Points, prices: Prices, shape: Shape, still: FloatArray, members: IntArray, ranks: Ranks
) -> FloatArray:
    m, (cells, of) = points.num_microbatches[members], codes(points.cell_of[members])
    kinds = np.s_[cells, None, : len(shape.kinds)]
    kept, working = prices.kept_bytes[kinds], prices.working_bytes[kinds]
    standing, one = (np.sum(each * ranks.counts, axis=2) for each in (still[kinds], kept))
    least = np.where(ranks.counts > 0, kept, np.inf).min(axis=2)
    standing += np.where(ranks.counts > 0, working, 0.0).max(axis=2)
    held = np.maximum(one[of], _in_flight(points, shape, m, ranks) * least[of])
    return np.asarray(((1 + prices.slack) * (standing[of] + held) + prices.context_bytes).max(axis=1))


def _in_flight(points: Points, shape: Shape, m: IntArray, ranks: Ranks) -> FloatArray:
    """The most that the schedule's memory law gives a rank of each kind, for every point: (n, kinds of ranks)."""
    like = points.like
    if like.schedule in (*TWO_WAYS, *OTHER_ORDERS, *WAVES):  # no rank of a wave need reach what the law allows it
        return np.ones((len(m), len(ranks.kinds)))
    sizes, which = codes(m)
    most = np.zeros((len(sizes), len(ranks.kinds)))
    for row, size in zip(most, sizes.tolist(), strict=True):
        np.maximum.at(row, ranks.kind_of, _law(like.schedule, shape.p, size, shape.v, like.options))
    return np.asarray(most[which])


@lru_cache(maxsize=10_000)
def _law(schedule: str, p: int, m: int, v: int, options: tuple[tuple[str, Any], ...]) -> IntArray:
    return peak_inflight(schedule, p, m, v, **dict(options))


@lru_cache(maxsize=10_000)
def _ranks(kind_of: tuple[int, ...], rank_of: tuple[int, ...]) -> Ranks:
    by_rank = np.argsort(rank_of, kind="stable").reshape(max(rank_of) + 1, -1)
    kinds = np.array(kind_of)[by_rank]
    at, which = alike(np.sort(kinds, axis=1))
    latest = np.zeros(len(at), np.int64)
    np.maximum.at(latest, which, by_rank[:, 0])
    counts = np.stack([np.bincount(rank, minlength=kinds.max() + 1) for rank in kinds[at]])
    return Ranks(kinds[at], counts, by_rank[at], which, latest, by_rank)


def _on_ranks(of_stages: FloatArray, stages: IntArray) -> FloatArray:
    """(stages, cells) summed over those of each rank (ranks, v): (cells, ranks)."""
    return np.asarray(sum(of_stages[column] for column in stages.T)).T
