"""What each rank costs by how many layers it holds, for the dynamic program: from the same prices as every estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.costs.columns import FloatArray, IntArray
from pipesim.estimate import priced
from pipesim.estimate.runs import counted, runs, summed, with_none
from pipesim.estimate.splits import splits_of
from pipesim.plan.partition.many import contents_of, groups, least_again, order_of, rank_bytes
from pipesim.schedules.action import Op, Schedule
from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Of each group of stages that share ranks (usually those of one rank) and of every two borders between which its
    layers can lie, shape (groups, layers + 1, layers + 1): infinite where they may not, without a layer in the middle.

    Where ranks hold several stages, only how many layers lie between counts; each stage gets about as many, of mixed
    kinds in the model's proportion.
    """

    stages: tuple[tuple[int, ...], ...]
    """Of each group."""
    single: bool
    """Whether every group is one stage: only then are the costs of two borders exactly those of the stage between them."""
    busy_s: FloatArray
    """What the slowest of the group's ranks computes and hands on in a step."""
    passed_s: FloatArray
    """The same with the shortest way through the stages before it, there and back: no step's pipeline is shorter."""
    exchange_s: FloatArray
    optimizer_s: FloatArray
    held_bytes: FloatArray


def tables(point: Point, recompute: bool) -> Tables:
    """Of a resolved point; with ``recompute`` each rank runs as few layers again as it must to fit."""
    assert not isinstance(point.layout.partition, str)
    every = contents_of(point, np.array([point.layout.partition]))
    order = order_of(point)
    each = groups(order.stages)
    single = len(each) == every.shape[1]
    counts, cell_of = _kinds(point) if single else _numbers(point)
    filled = np.repeat(every, len(counts), axis=0)
    for stages, _ in each:
        filled[:, list(stages), 1:3] = _spread(counts, _ends(every.shape[1])[list(stages)])
    again = least_again(point, filled) if recompute else None
    found = cells_of(point, filled, again)
    borders = np.arange(point.model.layers + 1)
    least = [np.maximum(1 - _ends(every.shape[1])[list(stages)], 0).sum() for stages, _ in each]
    allowed = borders - borders[:, None] >= np.array(least)[:, None, None]

    def between(of_rank: FloatArray) -> FloatArray:
        of_group = np.stack([of_rank[:, list(ranks)].max(axis=1) for _, ranks in each])
        return np.where(allowed, of_group[:, cell_of], np.inf)

    busy_s = between(found.busy_s)
    way_s = _way_s(found if again is None else cells_of(point, filled, 0 * again), order.schedule)
    return Tables(
        stages=tuple(stages for stages, _ in each),
        single=single,
        busy_s=busy_s,
        passed_s=busy_s + (way_s[:, cell_of[0], None] if single else 0.0),
        exchange_s=between(found.exchange_s),
        optimizer_s=between(found.optimizer_s),
        held_bytes=between(rank_bytes(point, filled, again)),
    )


def part_layers(stages: Sequence[int], count: int, of: int) -> list[int]:
    """How ``count`` layers lie on a group's stages, of ``of`` in all, as ``tables`` prices them."""
    return [round(layers) for layers in _spread(np.array([[1.0 * count, 0.0]]), _ends(of)[list(stages)])[0, :, 0]]


def _ends(stages: int) -> IntArray:
    """How many ends, embedding and head, each stage holds."""
    ends = np.zeros(stages, np.int64)
    ends[0] += 1
    ends[-1] += 1
    return ends


def _kinds(point: Point) -> tuple[FloatArray, IntArray]:
    """Every number of dense layers and of those with experts that can lie on a stage, and which lie between two borders."""
    model, borders = point.model, np.arange(point.model.layers + 1)
    moe = model.layers - model.dense_layers
    counts = np.stack(np.meshgrid(np.arange(model.dense_layers + 1), np.arange(moe + 1), indexing="ij"), axis=-1)
    before = np.minimum(borders, model.dense_layers), np.maximum(borders - model.dense_layers, 0)
    between = [np.maximum(each - each[:, None], 0) for each in before]
    return counts.reshape(-1, 2).astype(np.float64), between[0] * (moe + 1) + between[1]


def _numbers(point: Point) -> tuple[FloatArray, IntArray]:
    """Every number of layers, of each kind its share of the model, and how many lie between two borders."""
    model, borders = point.model, np.arange(point.model.layers + 1)
    share = model.dense_layers / model.layers
    return borders[:, None] * np.array([share, 1 - share]), np.maximum(borders - borders[:, None], 0)


def _spread(counts: FloatArray, ends: IntArray) -> FloatArray:
    """Layers of both kinds (n, 2) on some stages as evenly as units can be, (n, stages, 2); what is left over goes first
    where no end is.
    """
    if len(ends) == 1:
        return counts[:, None]
    whole = np.round(counts.sum(axis=1)).astype(np.int64)
    base, extra = np.divmod(whole + ends.sum(), len(ends))
    place = np.argsort(np.argsort(ends, kind="stable"), kind="stable")
    layers = np.maximum(base[:, None] + (place < extra[:, None]) - ends, 0)
    return np.asarray(counts[:, None] * (layers / np.maximum(whole, 1)[:, None])[:, :, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Of n ways to fill the stages: ops (3, stages, n) and of each rank (n, p)."""

    op_s: FloatArray
    hop_s: FloatArray
    busy_s: FloatArray
    exchange_s: FloatArray
    optimizer_s: FloatArray


def cells_of(point: Point, filled: FloatArray, again: FloatArray | None) -> Cells:
    points = splits_of(point, filled, again)
    prices = priced(points)
    (run,) = runs(points, prices)
    stage_s = with_none(run.whole_s.sum(axis=0).T)
    micro_batches = counted(run, "micro_batches")
    busy_s = sum(micro_batches[:, :, k] * stage_s[:, column] for k, column in enumerate(run.stages.T))
    return Cells(
        op_s=run.whole_s,
        hop_s=run.hop_s,
        busy_s=np.asarray(busy_s),
        exchange_s=summed(prices.dp_s, run.stages) * (point.layout.zero < 3),
        optimizer_s=summed(prices.optimizer_s, run.stages),
    )


def _way_s(cells: Cells, schedule: Schedule) -> FloatArray:
    """One micro-batch through all stages before each, and back unless weight gradients run apart, for every number of
    layers on the first stage as if all of them were there: (stages, n).
    """
    split = bool((schedule.op == Op.W).any())
    there_and_back = cells.op_s[0] if split else cells.op_s.sum(axis=0)
    hops_s = np.full(len(there_and_back), cells.hop_s[0] * (1 if split else 2))
    empty_s = there_and_back[:, 0] + hops_s
    way_s = np.zeros_like(there_and_back)
    way_s[1:] = there_and_back[0] + hops_s[0] + np.r_[0.0, np.cumsum(empty_s[1:-1])][: len(way_s) - 1, None]
    return np.asarray(way_s / schedule.segments)
