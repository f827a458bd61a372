"""Points whose stages are filled alike, the orders that they run, and what each of their stages takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray, codes
from pipesim.costs.prices import Prices
from pipesim.estimate import mixed
from pipesim.estimate.orders import Order, order
from pipesim.estimate.points import Points, Shape
from pipesim.schedules.action import IntArray, Op

OPS = (Op.F, Op.I, Op.W)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """``members`` are indices into the points, n of them; they share a shape, and run one of several orders. They are of
    k ``cells``, indices into the prices.
    """

    members: IntArray
    cells: IntArray
    cell_of: IntArray
    """Which of ``cells`` each member is, shape (n,)."""
    shape: Shape
    m: IntArray
    orders: tuple[Order, ...]
    order_of: IntArray
    blocks: IntArray
    """Blocks of micro-batches more than the order's own, shape (n,)."""
    op_s: FloatArray
    """What computing takes on each stage for one micro-batch: forward, input and weight gradient, shape (3, stages, k)."""
    standing_s: FloatArray | None
    """The same with what a rank stands still for while its results go on, where its stack blocks."""
    hop_s: FloatArray
    """Seconds that a result travels while its sender goes on, shape (k,)."""

    @property
    def stages(self) -> IntArray:
        """The stages of each rank, shape (p, k), -1 where it has fewer."""
        return self.orders[0].stages

    @property
    def kinds_on_rank(self) -> IntArray:
        """The kinds of ``stages``."""
        return np.where(self.stages >= 0, np.array(self.shape.kind_of)[self.stages], -1)

    @property
    def whole_s(self) -> FloatArray:
        """What each stage takes, standing still included, shape (3, stages, k)."""
        return self.op_s if self.standing_s is None else self.standing_s


def counted(run: Run, name: str, at: Any = ...) -> FloatArray:
    """One of ``orders.COUNTED`` for every member, or the part ``at`` of it: (n, …)."""
    first = np.stack([np.asarray(getattr(each, name)[at]) for each in run.orders])[run.order_of]
    more = np.stack([np.asarray(each.growth[name][at]) for each in run.orders])[run.order_of]
    blocks = run.blocks.reshape(-1, *[1] * (first.ndim - 1))
    return np.asarray(first + blocks * more)


def summed(of_kind: FloatArray, ranks: IntArray) -> FloatArray:
    """(cells, kinds) summed over the stages of each rank, whose kinds are ``ranks`` (p, stages), -1 for none: (cells, p)."""
    padded = with_none(of_kind)
    return np.asarray(sum(padded[:, column] for column in ranks.T))


def with_none(of_kind: FloatArray) -> FloatArray:
    """(cells, kinds) with a last column of nothing, which kind -1 finds."""
    return np.column_stack([of_kind, np.zeros(len(of_kind))])


def runs(points: Points, prices: Prices) -> Iterator[Run]:
    totals = np.stack([np.asarray(sum(items.values())) for items in prices.seconds])  # (3, cells, kinds)
    for members in _groups(points):
        shape = points.shapes[points.shape_of[points.cell_of[members[0]]]]
        cells, cell_of = codes(points.cell_of[members])
        op_s = np.ascontiguousarray(totals[:, cells].transpose(2, 0, 1)[list(shape.kind_of)].transpose(1, 0, 2))
        standing_s, hop_s = handed_on(points, prices, shape, cells, op_s)
        times = [*(op_s if standing_s is None else standing_s)[:, :, 0], float(hop_s[0])]
        m = points.num_microbatches[members]
        sizes, size_of = codes(m)
        found: dict[Order, int] = {}
        known = [found.setdefault(order(points.like, shape, size, times), len(found)) for size in sizes.tolist()]
        order_of = np.array(known)[size_of]
        for own, orders in _same_stages(tuple(found), np.array(known)[size_of]):
            order_of = codes(np.array(known)[size_of][own])[1]
            fewest, block = (np.array(each)[order_of] for each in zip(*((o.m, o.block) for o in orders), strict=True))
            yield Run(
                members=members[own], cells=cells, cell_of=cell_of[own], shape=shape, m=m[own], orders=orders,
                order_of=order_of, blocks=(m[own] - fewest) // block, op_s=op_s, standing_s=standing_s, hop_s=hop_s,
            )  # fmt: skip


def _same_stages(orders: Sequence[Order], order_of: IntArray) -> Iterator[tuple[IntArray, tuple[Order, ...]]]:
    """Members whose orders have the same stages on each rank, and those orders: some leave a stage's copy idle where
    micro-batches are few.
    """
    classes: dict[tuple[Any, ...], int] = {}
    class_of = [classes.setdefault((each.stages.shape, each.stages.tobytes()), len(classes)) for each in orders]
    for kind, own in enumerate(members_of(np.array(class_of)[order_of])):
        yield own, tuple(each for each, its in zip(orders, class_of, strict=True) if its == kind)


def handed_on(
    points: Points, prices: Prices, shape: Shape, cells: IntArray, op_s: FloatArray
) -> tuple[FloatArray | None, FloatArray]:
    """``standing_s`` and ``hop_s`` of a run."""
    nothing = np.zeros(len(cells))
    if points.like.costs.kind != "full" or len(shape.rank_of) == 1:
        return None, nothing
    sent = prices.hop_bytes[cells][:, None]
    boundary_s = mixed.boundary_s(points, shape, points.cut.taken(cells), sent).T  # (stages - 1, n)
    if not points.like.stack.blocking_hops:
        return None, boundary_s.max(axis=0)
    standing_s = op_s.copy()
    standing_s[0, :-1] += boundary_s
    standing_s[1, 1:] += boundary_s
    return standing_s, nothing


def _groups(points: Points) -> list[IntArray]:
    """Indices of points with one shape."""
    if points.alone:
        return list(np.arange(len(points))[:, None])
    return members_of(points.shape_of[points.cell_of])


def members_of(code: IntArray, codes: int = 0) -> list[IntArray]:
    """Where each of the codes 0, 1, … stands; of at least so many ``codes``."""
    by_code = np.argsort(code.astype(np.int16) if code.max(initial=0) < 2**15 else code, kind="stable")
    return np.split(by_code, np.cumsum(np.bincount(code, minlength=codes))[:-1])
