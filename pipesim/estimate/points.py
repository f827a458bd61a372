"""Points as columns: what all share in words, their numbers as arrays, and how their stages are filled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs import full, lecture
from pipesim.costs.columns import FloatArray, column, kind, stacked
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.costs.stage import Stages, contents
from pipesim.estimate.sites import Site
from pipesim.legality import micro_batches
from pipesim.schedules import ranks_of_stages
from pipesim.schedules.action import IntArray
from pipesim.schedules.remembered import remembered
from pipesim.specs import ClusterSpec, ModelSpec, Point


class Place(NamedTuple):
    """Where stages lie on a cluster of several parts, see ``estimate.mixed``."""

    sites: tuple[Site, ...]
    """Of each kind of stage."""
    hops: tuple[Site, ...]
    """Of each boundary between stages."""
    limits: tuple[float, ...]
    """Bytes that the smallest GPU of each pipeline rank has."""
    limit_parts: tuple[int, ...]
    """The part of that GPU."""
    rank_parts: tuple[int, ...]
    """On which parts each pipeline rank has GPUs, as bits."""
    peak_flops_per_s: float
    """Of the GPUs in use, on average."""


class Shape(NamedTuple):
    """How p * v stages are filled. Stages with equal contents are of one kind and cost the same."""

    p: int
    v: int
    rank_of: tuple[int, ...]
    """Of each stage."""
    kinds: tuple[tuple[float, ...], ...]
    """Embedding, dense layers, layers with experts, head, whether the stage's rank holds the embedding, how many layers
    run again; and in a place, a number for where they lie.
    """
    kind_of: tuple[int, ...]
    """Of each stage."""
    units: tuple[int, ...]
    """Of each stage."""
    place: Place | None = None
    """Where the cluster has several parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """n points that share one ``price_key``: ``like`` is any of them, whose words hold for all.

    Points that differ in nothing that has a price are one cell of k, which is priced once: a grid's batches are many.
    """

    like: Point
    model: ModelSpec
    """Of each cell; its sizes may be columns."""
    cut: Cut
    """Of each cell."""
    stages: Stages
    """Of each cell, by kind of stage: shape (k, kinds)."""
    shapes: tuple[Shape, ...]
    shape_of: IntArray
    """Of each cell, shape (k,)."""
    cell_of: IntArray
    """Of each point, shape (n,)."""
    num_microbatches: IntArray
    """Of each point, shape (n,)."""
    alone: bool
    """Whether no two may share a schedule, because its order is made for a point's own times."""

    def __len__(self) -> int:
        return len(self.cell_of)


def price_key(point: Point) -> tuple[object, ...]:
    """Resolved points with equal keys can be evaluated together, as arrays."""
    layout, training = point.layout, point.training
    return (
        kind(point.model), point.cluster, point.costs, point.stack, layout.zero, layout.sequence_parallel, layout.context,
        layout.rank_order, layout.spread_vocab, layout.shard is None, training.precision, training.recompute,
        training.attention, training.dropout, training.optimizer_barrier, point.schedule, point.options,
    )  # fmt: skip


def points_of(points: Sequence[Point]) -> Points:
    """Resolved points with one ``price_key`` as columns."""
    shapes: dict[Shape, int] = {}
    shape_of = np.array([shapes.setdefault(_shape(point), len(shapes)) for point in points])
    layouts, trainings = [point.layout for point in points], [point.training for point in points]
    numbers = {
        **{key: column([getattr(each, key) for each in layouts]) for key in ("t", "d", "c", "e", "p", "v")},
        "micro_batch": column([training.micro_batch for training in trainings]),
        "seq_length": column([seq_length(point) for point in points]),
    }
    shard = None if layouts[0].shard is None else column([layout.shard for layout in layouts])
    m = np.array([micro_batches(point) for point in points])
    numbers["num_microbatches"] = column(priced_micro_batches(points[0], numbers["p"][:, 0], m))
    model, every = stacked([point.model for point in points]), np.arange(len(points))
    return columns(points[0], model, numbers, shard, tuple(shapes), shape_of, every, m)


def priced_micro_batches(like: Point, p: Any, m: Any) -> Any:
    """As many micro-batches as prices depend on: from ZeRO-2 on each exchanges, else a rank's last p hide an exchange."""
    return m if like.layout.zero >= 2 else np.minimum(p, m)


def columns(
    like: Point,
    model: ModelSpec,
    numbers: dict[str, FloatArray],
    shard: FloatArray | None,
    shapes: tuple[Shape, ...],
    shape_of: IntArray,
    cell_of: IntArray,
    num_microbatches: IntArray,
) -> Points:
    """``numbers`` are t, p, d, c, e, v, micro_batch, seq_length and num_microbatches (those that are priced) of each cell,
    shape (k, 1); ``num_microbatches`` is (n,).
    """
    filled = _filled(shapes)[shape_of]
    layout, training = like.layout, like.training
    cut = Cut(
        **numbers,
        gpus=numbers["t"] * numbers["p"] * numbers["c"] * numbers["d"],
        shard=shard,
        recomputed=filled[:, :, 5],
        zero=layout.zero,
        sequence_parallel=layout.sequence_parallel,
        context=layout.context,
        rank_order=layout.rank_order,
        recompute=training.recompute,
        attention=training.attention,
        precision=training.precision,
        dropout=training.dropout,
    )
    stages = Stages(*(filled[:, :, field] for field in (0, 1, 2, 3, 4, -1)))
    return Points(
        like=like,
        model=model,
        cut=cut,
        stages=stages,
        shapes=shapes,
        shape_of=shape_of,
        cell_of=cell_of,
        num_microbatches=num_microbatches,
        alone=like.schedule == "auto",
    )


def priced(points: Points, cluster: ClusterSpec | None = None) -> Prices:
    """On their cluster of equal nodes, or on another."""
    like = points.like if cluster is None else replace(points.like, cluster=cluster)
    price = lecture.price if like.costs.kind == "lecture" else full.price
    return price(like, points.model, points.cut, points.stages)


def peak_flops_per_s(points: Points) -> Any:
    """Of one GPU; where they differ, the mean of those in use, for each point."""
    if points.shapes[0].place is None:
        return points.like.cluster.peak_flops_per_s[points.like.training.precision]
    peaks = np.array([each.place.peak_flops_per_s for each in points.shapes if each.place is not None])
    return peaks[points.shape_of[points.cell_of]]


def seq_length(point: Point) -> int:
    return point.training.seq_length or point.model.context


def _shape(point: Point) -> Shape:
    layout, model = point.layout, point.model
    assert not isinstance(layout.partition, str)
    return shape(
        model.layers,
        model.dense_layers,
        layout.partition,
        layout.spread_vocab != "none",
        point.training.recompute_layers,
        layout.p,
        layout.v or 1,
        point.schedule,
        point.options,
    )


@remembered(maxsize=10_000)
def shape(
    layers: int,
    dense_layers: int,
    partition: tuple[int, ...],
    spread_vocab: bool,
    recompute_layers: int | tuple[int, ...] | None,
    p: int,
    v: int,
    schedule: str,
    options: tuple[tuple[str, Any], ...],
) -> Shape:
    rank_of = tuple(ranks_of_stages(schedule, p, v, **dict(options)))
    filled = contents(layers, dense_layers, partition, spread_vocab).tolist()
    embedding_on = rank_of[int(np.argmax([held[0] for held in filled]))]
    again = recompute_layers if isinstance(recompute_layers, tuple) else (recompute_layers,) * len(rank_of)
    rows = [
        (*held, float(held[0] > 0 or rank == embedding_on), math.inf if asked is None else float(asked))
        for held, rank, asked in zip(filled, rank_of, again, strict=True)
    ]
    kinds = tuple(dict.fromkeys(rows))
    return Shape(p, v, rank_of, kinds, tuple(kinds.index(row) for row in rows), partition)


def _filled(shapes: Sequence[Shape]) -> FloatArray:
    """The kinds of each shape and how many stages are of each, filled up with empty ones: (shapes, kinds, fields)."""
    most = max(len(each.kinds) for each in shapes)
    nothing = (0.0,) * (1 + len(shapes[0].kinds[0]))
    counted = [[(*row, each.kind_of.count(kind)) for kind, row in enumerate(each.kinds)] for each in shapes]
    return np.array([[*rows, *[nothing] * (most - len(rows))] for rows in counted])
