"""Points on a cluster of several parts: each replica that lies differently is priced part by part, and the slowest counts.

Replicas run their pipelines on their own and meet once a step; where they share experts or what ZeRO-3 gathers they meet with
every micro-batch, and are one. A stage is as slow as the slowest of its GPUs. A cluster of equal nodes has none of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipesim import schedules
from pipesim.costs import hops
from pipesim.costs.collectives import Collective
from pipesim.costs.columns import BoolArray, FloatArray, distinct, taken
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.costs.stage import StageSeconds
from pipesim.estimate.points import Place, Points, Shape, columns, priced
from pipesim.estimate.sites import Degrees, Pair, Placed, Replica, Site, clusters_at, parts_of, placed
from pipesim.schedules.action import IntArray
from pipesim.schedules.remembered import remembered
from pipesim.specs import Point

MIRRORED = ("chimera", "dualpipe")
"""Each of their stages lies on two ranks: r and p - 1 - r."""


def spread(points: Points) -> tuple[Points, IntArray]:
    """A point for every replica of every point that lies differently, and which of the points each stands for."""
    cut, shard = points.cut, points.cut.shard
    shards = np.asarray(cut.shards if shard is None else shard, np.float64)
    wide = [
        np.broadcast_to(np.reshape(each, -1), len(points.shape_of))
        for each in (cut.t, cut.p, cut.d, cut.c, cut.e, shards)
    ]
    first, which = distinct([*(each.astype(np.int64) for each in wide), points.shape_of])
    shapes: dict[Shape, int] = {}
    found = []
    for at in first:
        shape = points.shapes[points.shape_of[at]]
        where = placement(points.like, Degrees(*(int(each[at]) for each in wide)), shape)
        own = [_shape(points.like, shape, where, replica) for replica in where.replicas]
        found.append([shapes.setdefault(each, len(shapes)) for each in own])
    count = np.array([len(each) for each in found])[which]  # replicas of each cell
    cell = np.repeat(np.arange(len(which)), count)
    shape_of = np.concatenate([found[each] for each in which])
    begins = np.cumsum(count) - count
    replicas = count[points.cell_of]
    asked = np.repeat(np.arange(len(points)), replicas)
    nth = np.arange(len(asked)) - np.repeat(np.cumsum(replicas) - replicas, replicas)
    names = ("t", "p", "d", "c", "e", "v", "micro_batch", "seq_length", "num_microbatches")
    numbers = {name: np.asarray(getattr(cut, name))[cell] for name in names}
    return columns(
        points.like, taken(points.model, cell), numbers, None if shard is None else np.asarray(shard)[cell], tuple(shapes),
        shape_of, begins[points.cell_of[asked]] + nth, points.num_microbatches[asked],
    ), asked  # fmt: skip


def slowest(step_s: FloatArray, asked: IntArray) -> IntArray:
    """The first of each asked point's replicas whose step takes longest."""
    order = np.lexsort([np.arange(len(asked)), -step_s, asked])
    return order[np.unique(asked[order], return_index=True)[1]]


def placement(like: Point, degrees: Degrees, shape: Shape) -> Placed:
    """``shards`` are reckoned with from ZeRO-1 on, and experts where the model has any."""
    moe = like.model.moe is not None and degrees.e > 1
    degrees = degrees._replace(e=degrees.e if moe else 1)
    coupled = moe or (like.layout.zero >= 2 and degrees.shards > 1)
    gpus = tuple(part.gpus for part in like.cluster.parts)
    return placed(gpus, degrees, like.layout.rank_order, coupled, _pairs(like, shape))


def _pairs(like: Point, shape: Shape) -> tuple[tuple[Pair, ...], ...]:
    """The ranks that hand on what crosses each boundary between stages."""
    pairs = list(zip(shape.rank_of[:-1], shape.rank_of[1:], strict=True))
    if like.schedule in MIRRORED:
        last = shape.p - 1
        return tuple(((here, there), (last - here, last - there)) for here, there in pairs)
    return tuple((pair,) for pair in pairs)


def _shape(like: Point, shape: Shape, where: Placed, replica: Replica) -> Shape:
    """The shape with stages of one kind only where they run on the same parts too."""
    holders = _holders(like.schedule, like.options, shape.rank_of, shape.p)
    sites = [_together([replica.ranks[rank] for rank in ranks]) for ranks in holders]
    known = list(dict.fromkeys(sites))
    rows = [(*shape.kinds[kind], float(known.index(site))) for kind, site in zip(shape.kind_of, sites, strict=True)]
    kinds = tuple(dict.fromkeys(rows))
    memory = [part.cluster.memory_bytes for part in like.cluster.parts]
    peaks = [part.cluster.peak_flops_per_s[like.training.precision] for part in like.cluster.parts]
    smallest = tuple(min(parts_of(on), key=memory.__getitem__) for on in where.rank_parts)
    place = Place(
        sites=tuple(known[int(row[-1])] for row in kinds),
        hops=replica.hops,
        limits=tuple(memory[part] for part in smallest),
        limit_parts=smallest,
        rank_parts=where.rank_parts,
        peak_flops_per_s=sum(used * peak for used, peak in zip(where.gpus, peaks, strict=True)) / sum(where.gpus),
    )
    return shape._replace(kinds=kinds, kind_of=tuple(kinds.index(row) for row in rows), place=place)


@remembered(maxsize=1000)
def _holders(
    schedule: str, options: tuple[tuple[str, Any], ...], rank_of: tuple[int, ...], p: int
) -> tuple[tuple[int, ...], ...]:
    """Every rank that holds a stage, by stage."""
    if schedule == "custom":
        read = schedules.read_schedule(dict(options)["path"])
        ranks = read.rank_of()
        return tuple(tuple(np.unique(ranks[read.stage == stage]).tolist()) for stage in range(len(rank_of)))
    return tuple((rank, p - 1 - rank) if schedule in MIRRORED else (rank,) for rank in rank_of)


def _together(sites: Sequence[Site]) -> Site:
    """Of a stage that lies on several ranks."""
    parts, stretched = 0, dict[str, int]()
    for site in sites:
        parts |= site.parts
        stretched |= {dimension: stretched.get(dimension, 0) | bits for dimension, bits in site.stretched}
    return Site(parts, tuple(stretched.items()))


def prices(points: Points) -> Prices:
    """Every kind of stage as the slowest of its parts has it, operation by operation."""
    masks: dict[Any, BoolArray] = {}
    found: list[Prices] = []
    for index, shape in enumerate(points.shapes):
        assert shape.place is not None
        for kind, site in enumerate(shape.place.sites):
            for part, cluster in clusters_at(points.like.cluster, site):
                key = (part, site.stretched)
                if key not in masks:
                    masks[key] = np.zeros(points.stages.head.shape, np.bool_)
                    found.append(priced(points, cluster))
                masks[key][points.shape_of == index, kind] = True
    applies = list(masks.values())
    return dataclasses.replace(
        found[0],
        seconds=StageSeconds(*(_slowest_op([each.seconds[op] for each in found], applies) for op in range(3))),
        dp_s=_most([each.dp_s for each in found], applies),
        optimizer_s=_most([each.optimizer_s for each in found], applies),
        collectives=tuple(_chosen(each, applies) for each in zip(*(price.collectives for price in found), strict=True)),
    )


def _slowest_op(ops: Sequence[dict[str, FloatArray]], applies: Sequence[BoolArray]) -> dict[str, FloatArray]:
    totals = [np.where(mask, sum(op.values()), -1.0) for op, mask in zip(ops, applies, strict=True)]
    which = np.argmax(totals, axis=0)
    return {item: np.choose(which, [np.broadcast_to(op[item], which.shape) for op in ops]) for item in ops[0]}


def _most(values: Sequence[FloatArray], applies: Sequence[BoolArray]) -> FloatArray:
    return np.asarray(np.max([np.where(mask, each, 0.0) for each, mask in zip(values, applies, strict=True)], axis=0))


def _chosen(each: Sequence[Any], applies: Sequence[BoolArray]) -> Any:
    """One collective whose parts are those of the first price that applies."""
    if isinstance(each[0], tuple):
        return type(each[0])(*(_chosen(parts, applies) for parts in zip(*each, strict=True)))
    if isinstance(each[0], str | bool) or all(np.array_equal(each[0], other) for other in each[1:]):
        return each[0]
    return np.select(applies, np.broadcast_arrays(*each, applies[0])[:-1], 0)


def boundary_s(points: Points, shape: Shape, cut: Cut, sent: FloatArray) -> FloatArray:
    """``hops.boundary_s`` of points of one shape, as the slowest of the parts at each boundary has it."""
    if shape.place is None:
        return hops.boundary_s(points.like, cut, sent, shape.rank_of)
    found = np.zeros((len(sent), len(shape.place.hops)))
    for site in dict.fromkeys(shape.place.hops):
        here = np.array([each == site for each in shape.place.hops])
        for _, cluster in clusters_at(points.like.cluster, site):
            like = dataclasses.replace(points.like, cluster=cluster)
            found = np.where(here, np.maximum(found, hops.boundary_s(like, cut, sent, shape.rank_of)), found)
    return found


def sends(points: Points, shape: Shape, cut: Cut, sent: FloatArray) -> Collective:
    """``hops.sends`` over the boundary that is the slowest."""
    if shape.place is None or not shape.place.hops:
        return hops.sends(points.like, cut, sent, shape.rank_of)
    slow = shape.place.hops[int(boundary_s(points, shape, cut, sent)[0].argmax())]
    _, cluster = next(clusters_at(points.like.cluster, slow))
    return hops.sends(dataclasses.replace(points.like, cluster=cluster), cut, sent, shape.rank_of)


def unwise(points: Points) -> Any:
    """What of a placement runs but is slow for no need, as texts (n,); None where there is nothing."""
    said = np.array([*(_unwise(points.like, shape.place) for shape in points.shapes), None], object)
    return said[:-1][points.shape_of[points.cell_of]]


def _unwise(like: Point, place: Place | None) -> str | None:
    assert place is not None
    found = []
    stretched = {dimension for site in place.sites for dimension, _ in site.stretched}
    talking = [key for key, dimension in (("t", "tp"), ("c", "cp"), ("e", "ep")) if dimension in stretched]
    keys = [f"parallel.{key}" for key in talking]
    if like.layout.zero >= 2 and "dp" in stretched:
        keys.append(f"parallel.zero={like.layout.zero}")
    if keys:
        found.append(
            f"{' and '.join(keys)}: ranks that talk with every micro-batch lie on several of cluster.parts. "
            "Another parallel.rank_order or smaller degrees may keep them on one."
        )
    chips = [part.cluster.chip for part in like.cluster.parts]
    torn = [rank for rank, on in enumerate(place.rank_parts) if len({chips[part] for part in parts_of(on)}) > 1]
    if torn:
        found.append(
            f"GPUs of different kinds share pipeline rank{'s' * (len(torn) > 1)} {_listed(torn)}: the slower decide. "
            "With d and t inside p in parallel.rank_order, and parallel.p to match, each rank has one kind."
        )
    return " ".join(found) or None


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) if len(ranks) < 9 else f"{ranks[0]} to {ranks[-1]}"
