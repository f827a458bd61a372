"""What one point costs with its stages filled in many ways: seconds of a step and bytes of every rank, by the estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import BoolArray, FloatArray, IntArray
from pipesim.costs.stage import contents
from pipesim.estimate import evaluate_columns, points_of, priced
from pipesim.estimate.held import memory
from pipesim.estimate.orders import Order
from pipesim.estimate.runs import runs
from pipesim.estimate.splits import splits_of
from pipesim.specs import Point


class Found(NamedTuple):
    """Of n partitions (n, stages): which layers run again, (n, stages) or None, what a step takes, and what the rank with
    least to spare holds and may hold.
    """

    again: IntArray | None
    step_time_s: FloatArray
    memory_bytes: FloatArray
    limit_bytes: FloatArray


def evaluated(point: Point, partitions: IntArray, recompute: bool) -> Found:
    """With ``recompute`` each rank runs no more layers again than it must to fit."""
    filled = contents_of(point, partitions)
    again = least_again(point, filled) if recompute else None
    whole = None if again is None else again.astype(np.int64)
    points = splits_of(point, filled, again)
    if point.cluster.parts:  # where stages that are filled alike differ by the GPUs that they lie on
        points = points_of(
            [_at(point, partitions[k], None if whole is None else whole[k]) for k in range(len(partitions))]
        )
    batch = evaluate_columns(points)
    held = np.asarray(sum(batch.bytes.values()))
    limit = batch.columns.get("memory_limit_bytes", np.full(len(held), point.cluster.memory_bytes))
    return Found(whole, np.asarray(sum(batch.seconds.values())), held, limit)


def _at(point: Point, partition: IntArray, again: IntArray | None) -> Point:
    layout = dataclasses.replace(point.layout, partition=tuple(partition.tolist()))
    if again is None:
        return dataclasses.replace(point, layout=layout)
    training = dataclasses.replace(point.training, recompute_layers=tuple(again.tolist()))
    return dataclasses.replace(point, layout=layout, training=training)


def contents_of(point: Point, partitions: IntArray) -> FloatArray:
    model = point.model
    return contents(model.layers, model.dense_layers, partitions, point.layout.spread_vocab != "none")


def order_of(point: Point) -> Order:
    """The order that every partition of the point runs."""
    points = splits_of(point, contents_of(point, np.array([point.layout.partition])))
    (run,) = runs(points, priced(points))
    return run.orders[0]


def rank_bytes(point: Point, filled: FloatArray, again: FloatArray | None = None) -> FloatArray:
    """What every rank holds, shape (n, p)."""
    points = splits_of(point, filled, again)
    prices = priced(points)
    (run,) = runs(points, prices)
    return np.array(memory(points, prices, run, details=True)[1]["rank_memory_bytes"])


def groups(stages_on_rank: IntArray) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Stages, and the ranks that hold them, that share no rank with others: with one stage on each rank, each stage."""
    found: list[tuple[set[int], set[int]]] = []
    for rank, row in enumerate(stages_on_rank.tolist()):
        stages, ranks = {stage for stage in row if stage >= 0}, {rank}
        for other in [each for each in found if each[0] & stages]:
            found.remove(other)
            stages, ranks = stages | other[0], ranks | other[1]
        found.append((stages, ranks))
    return tuple(sorted((tuple(sorted(stages)), tuple(sorted(ranks))) for stages, ranks in found))


MOST_TRIED = 2048
"""So many ways are tried at once in the search for the fewest layers."""


def least_again(point: Point, filled: FloatArray) -> FloatArray:
    """The fewest layers of each stage that must run again so that every rank fits, all where it never does; (n, stages).

    Stages of one rank take turns: the one that has most micro-batches in flight first, because there each saves most.
    """
    order = order_of(point)
    each = groups(order.stages)
    layers, turns = filled[:, :, 1] + filled[:, :, 2], _turns(order, each)
    whole = np.stack([layers[:, stages].sum(axis=1) for stages in turns], axis=1)

    def spread(total: FloatArray) -> FloatArray:
        again = np.zeros((len(total), layers.shape[1]))
        room = np.tile(layers, (len(total) // len(layers), 1))
        for k, stages in enumerate(turns):
            before = np.cumsum(room[:, stages], axis=1) - room[:, stages]
            again[:, stages] = np.clip(total[:, [k]] - before, 0, room[:, stages])
        return again

    def fit(totals: FloatArray) -> BoolArray:
        """Of some numbers of layers, (tries, n, groups)."""
        flat = totals.reshape(-1, totals.shape[2])
        held = rank_bytes(point, np.tile(filled, (len(totals), 1, 1)), spread(flat))
        most = np.stack([held[:, list(ranks)].max(axis=1) for _, ranks in each], axis=1)
        return np.asarray((most <= point.cluster.memory_bytes).reshape(totals.shape))

    low, high = np.minimum(1.0, whole), whole  # what one layer that runs again brings back, two bring no more
    while (left := int((high - low).max())) > 0:
        count = max(1, min(left, MOST_TRIED // len(filled)))
        shares = np.arange(1, 1 + count)[:, None, None] / (1 + count)
        tried = low + np.floor((high - low) * shares)
        fits = fit(tried)
        high = np.where(fits, tried, high).min(axis=0)
        low = np.minimum(np.where(fits, low, tried + 1).max(axis=0), high)
    return spread(np.where(fit(0 * high[None])[0], 0.0, high))


def _turns(order: Order, each: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[list[int]]:
    """The stages of each group, that which has most micro-batches in flight first."""
    flying = np.zeros(order.stages.max() + 1)
    for rank, row in enumerate(order.stages):
        own = row >= 0
        flying[row[own]] = np.maximum(flying[row[own]], order.held[rank].max(axis=0)[own])
    return [sorted(stages, key=lambda stage: -flying[stage]) for stages, _ in each]
