"""The bytes that a rank holds, item by item, at the moment when it holds most."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.costs.prices import Prices
from pipesim.estimate.points import Points
from pipesim.estimate.runs import Run, counted, members_of, summed, with_none
from pipesim.schedules.action import IntArray

MEMORY_ITEMS = ("weights", "gradients", "optimizer", "activation", "logits", "buffers", "slack", "context")
"""In bytes these sum to the memory of the heaviest rank, in this order."""

Columns = dict[str, Any]


def memory(points: Points, prices: Prices, run: Run, details: bool, rank: int | None = None) -> tuple[Columns, Columns]:
    """Memory items of the heaviest rank of a run's members, or of ``rank``, and the totals of all ranks."""
    members, ranks = run.members, run.kinds_on_rank
    still = {
        "weights": prices.weights_bytes, "gradients": prices.gradients_bytes, "optimizer": prices.optimizer_bytes,
        "logits": prices.logits_bytes, "buffers": prices.buffer_bytes,
    }  # fmt: skip
    activation = _in_flight(prices.kept_bytes[members], run) + _working(prices.working_bytes[members], ranks)
    activation += _waiting(points, run) * summed(prices.kept_bytes[members], ranks)
    standing = np.asarray(sum(each[members] for each in still.values()))
    total = (1 + prices.slack) * (summed(standing, ranks) + activation) + prices.context_bytes
    heaviest = np.argmax(total, axis=1)
    shown = heaviest if rank is None else np.full(len(members), rank)
    every, on = np.arange(len(members)), ranks[shown]
    items: Columns = {name: _picked(each[members], on) for name, each in still.items()}
    items["activation"] = activation[every, shown]
    items["slack"] = prices.slack * sum(items.values())
    items["context"] = np.full(len(members), prices.context_bytes)
    figures: Columns = {
        "heaviest_rank": heaviest,
        "params_per_gpu": _picked(prices.parameters[members], ranks[heaviest]),
    }
    if details:
        figures["rank_memory_bytes"] = list(total)
        figures["peak_inflight"] = list(counted(run, "peak_inflight").astype(np.int64))
    return items, figures


def _picked(of_kind: FloatArray, on: IntArray) -> FloatArray:
    """The same on one rank for each point, whose kinds are ``on`` (n, k): (n,)."""
    padded, every = with_none(of_kind), np.arange(len(of_kind))
    return np.asarray(sum(padded[every, column] for column in on.T))


def _in_flight(kept: FloatArray, run: Run) -> FloatArray:
    """Activations held at the moment when they weigh most, shape (n, p)."""
    padded, ranks = with_none(kept), run.kinds_on_rank
    most = np.zeros((len(kept), run.shape.p))
    for order, own in zip(run.orders, members_of(run.order_of), strict=True):
        weights = [padded[own][:, column] for column in ranks.T]
        grows, blocks = order.growth["held"], run.blocks[own][:, None]
        for j in range(order.held.shape[1]):
            held = (
                (order.held[:, j, k] + blocks * grows[:, j, k]) * weight
                if grows.any()
                else order.held[:, j, k] * weight
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
    """Micro-batches more that each rank holds while the head, spread over all ranks, finishes with them.

    Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, sections 4 and 5.
    """
    extra = {"none": 0.0, "algorithm_1": 2.0, "algorithm_2": 1.0, "interlaced": run.shape.p / 2}
    return np.minimum(extra[points.like.layout.spread_vocab], run.m)[:, None]
