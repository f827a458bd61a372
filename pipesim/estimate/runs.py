"""Points that run the same schedule with the same stages, and what each of its stages takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesim.costs import full
from pipesim.costs.columns import FloatArray
from pipesim.costs.prices import Prices
from pipesim.estimate.orders import Order, order
from pipesim.estimate.points import Points, Shape
from pipesim.schedules.action import IntArray, Op


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """``members`` are indices into the points, n of them."""

    members: IntArray
    order: Order
    shape: Shape
    m: int
    op_s: FloatArray
    """What computing takes on each stage for one micro-batch: forward, input and weight gradient, shape (3, stages, n)."""
    standing_s: FloatArray | None
    """The same with what a rank stands still for while its results go on, where its stack blocks."""
    hop_s: FloatArray
    """Seconds that a result travels while its sender goes on, shape (n,)."""

    @property
    def kind_of(self) -> IntArray:
        """Of each stage."""
        return np.array(self.shape.kind_of)

    @property
    def kinds_on_rank(self) -> IntArray:
        """Kinds of the stages of ``order.stages``; -1 where a rank has fewer."""
        stages = self.order.stages
        return np.where(stages >= 0, self.kind_of[stages], -1)

    @property
    def whole_s(self) -> FloatArray:
        """What each stage takes, standing still included, shape (3, stages, n)."""
        return self.op_s if self.standing_s is None else self.standing_s


OPS = (Op.F, Op.I, Op.W)


def summed(of_kind: FloatArray, ranks: IntArray) -> FloatArray:
    """(n, kinds) summed over the stages of each rank, whose kinds are ``ranks`` (p, k), -1 for none: (n, p)."""
    padded = with_none(of_kind)
    return np.asarray(sum(padded[:, column] for column in ranks.T))


def with_none(of_kind: FloatArray) -> FloatArray:
    """(n, kinds) with a last column of nothing, which kind -1 finds."""
    return np.column_stack([of_kind, np.zeros(len(of_kind))])


def runs(points: Points, prices: Prices) -> Iterator[Run]:
    like = points.like
    totals = np.stack([np.asarray(sum(items.values())) for items in prices.seconds])  # (3, n, kinds)
    stride = np.broadcast_to(np.asarray(points.cut.stride("p"), np.float64), (len(points), 1))
    for members in _groups(points):
        shape, m = points.shapes[points.shape_of[members[0]]], int(points.num_microbatches[members[0]])
        op_s = np.ascontiguousarray(totals[:, members][:, :, list(shape.kind_of)].transpose(0, 2, 1))
        standing_s, hop_s = None, np.zeros(len(members))
        if like.costs.kind == "full" and len(shape.rank_of) > 1:
            sent = prices.hop_bytes[members][:, None]
            boundary_s = full.boundary_s(like, stride[members], sent, shape.rank_of).T  # (stages - 1, n)
            if like.stack.blocking_hops:
                standing_s = op_s.copy()
                standing_s[0, :-1] += boundary_s
                standing_s[1, 1:] += boundary_s
            else:
                hop_s = boundary_s.max(axis=0)
        times = list((op_s if standing_s is None else standing_s)[:, :, 0])
        made = order(like.schedule, shape.p, m, shape.v, like.options, times, float(hop_s[0]))
        yield Run(members=members, order=made, shape=shape, m=m, op_s=op_s, standing_s=standing_s, hop_s=hop_s)


def _groups(points: Points) -> list[IntArray]:
    """Indices of points with one shape and one number of micro-batches."""
    n = len(points)
    if points.alone:
        return list(np.arange(n)[:, None])
    key = points.shape_of * (1 + points.num_microbatches.max(initial=0)) + points.num_microbatches
    by_key = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[by_key])) + 1
    return np.split(by_key, starts)
