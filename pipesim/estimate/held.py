"""The bytes that a rank holds, item by item, at the moment when it holds most."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray, distinct
from pipesim.costs.prices import Prices
from pipesim.estimate.points import Points
from pipesim.estimate.runs import Run, counted, members_of, summed, with_none
from pipesim.schedules.action import IntArray

MEMORY_ITEMS = ("weights", "gradients", "optimizer", "activation", "logits", "buffers", "slack", "context")
"""In bytes these sum to the memory of the heaviest rank, in this order."""

Columns = dict[str, Any]


def memory(points: Points, prices: Prices, run: Run, details: bool, rank: int | None = None) -> tuple[Columns, Columns]:
    """Memory items of the heaviest rank of a run's members, or of ``rank``, and the totals of all ranks."""
    first, which = _alike(points, run)
    cells, ranks = run.cells[run.cell_of[first]], run.kinds_on_rank
    still = {
        "weights": prices.weights_bytes, "gradients": prices.gradients_bytes, "optimizer": prices.optimizer_bytes,
        "logits": prices.logits_bytes, "buffers": prices.buffer_bytes,
    }  # fmt: skip
    kept = prices.kept_bytes[cells]
    activation = _in_flight(kept, run, first) + _working(prices.working_bytes[cells], ranks)
    activation += _waiting(points, run)[first, None] * summed(kept, ranks)
    standing = np.asarray(sum(each[cells] for each in still.values()))
    total = (1 + prices.slack) * (summed(standing, ranks) + activation) + prices.context_bytes
    place = run.shape.place
    heaviest = np.argmax(total if place is None else total - place.limits, axis=1)  # the rank with least to spare
    shown = heaviest if rank is None else np.full(len(first), rank)
    every, on = np.arange(len(first)), ranks[shown]
    items: Columns = {name: _picked(each[cells], on) for name, each in still.items()}
    items["activation"] = activation[every, shown]
    items["slack"] = prices.slack * sum(items.values())
    items["context"] = np.full(len(first), prices.context_bytes)
    figures: Columns = {
        "heaviest_rank": heaviest,
        "params_per_gpu": _picked(prices.parameters[cells], ranks[heaviest]),
    }
    if place is not None:
        figures["memory_limit_bytes"] = np.array(place.limits)[heaviest]
        figures["limit_part"] = np.array(place.limit_parts)[heaviest]
    items, figures = ({name: values[which] for name, values in each.items()} for each in (items, figures))
    if details:
        figures["rank_memory_bytes"] = list(total[which])
        figures["stage_activation_bytes"] = list(((1 + prices.slack) * kept[:, list(run.shape.kind_of)])[which])
        if place is not None:
            figures["rank_parts"] = [place.rank_parts] * len(run.members)
        figures["peak_inflight"] = list(counted(run, "peak_inflight").astype(np.int64))
    return items, figures


def _alike(points: Points, run: Run) -> tuple[IntArray, IntArray]:
    """Members hold the same if their cell, their orders' peaks and what waits are the same: one of each, and which it is
    for every member.
    """
    classes: dict[tuple[object, ...], int] = {}
    grows = any(order.growth["held"].any() for order in run.orders)
    class_of = np.array(
        [classes.setdefault((order.held.shape, order.held.tobytes()), len(classes)) for order in run.orders]
    )
    order_of, blocks = (run.order_of, run.blocks) if grows else (class_of[run.order_of], np.zeros_like(run.blocks))
    waits = np.ceil(_waiting(points, run)).astype(np.int64)
    return distinct([run.cell_of, order_of, blocks, waits])


def _picked(of_kind: FloatArray, on: IntArray) -> FloatArray:
    """The same on one rank for each point, whose kinds are ``on`` (n, k): (n,)."""
    padded, every = with_none(of_kind), np.arange(len(of_kind))
    return np.asarray(sum(padded[every, column] for column in on.T))


def _in_flight(kept: FloatArray, run: Run, members: IntArray) -> FloatArray:
    """Activations held by ``members`` of the run at the moment when they weigh most, shape (members, p)."""
    padded, ranks = with_none(kept), run.kinds_on_rank
    most = np.zeros((len(kept), run.shape.p))
    blocks, order_of = run.blocks[members], run.order_of[members]
    for order, own in zip(run.orders, members_of(order_of, len(run.orders)), strict=True):
        weights = [padded[own][:, column] for column in ranks.T]
        grows = order.growth["held"]
        more = blocks[own, None] if grows.any() else None
        for j in range(order.held.shape[1]):
            held = (
                order.held[:, j, k] * weight if more is None else (order.held[:, j, k] + more * grows[:, j, k]) * weight
                for k, weight in enumerate(weights)
            )
            most[own] = np.maximum(most[own], np.asarray(sum(held)))
    return most


def _working(of_kind: FloatArray, ranks: IntArray) -> FloatArray:
    """What one block's backward brings back: the largest of each rank's stages, shape (n, p)."""
    padded = with_none(of_kind)
    most = padded[:, ranks[:, 0]]
    for column in ranks.T[1:]:
        most = np.maximum(most, padded[:, column])
    return np.asarray(most)


def _waiting(points: Points, run: Run) -> FloatArray:
    """Micro-batches more that each rank holds while the head, spread over all ranks, finishes with them, shape (n,).

    Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, sections 4 and 5.
    """
    extra = {"none": 0.0, "algorithm_1": 2.0, "algorithm_2": 1.0, "interlaced": run.shape.p / 2}
    return np.minimum(extra[points.like.layout.spread_vocab], run.m)
