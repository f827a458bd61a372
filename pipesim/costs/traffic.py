"""The communication of a step as a table: dimension, collective, group, link, how often, how large. It fills reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipesim.costs.collectives import Collective
from pipesim.costs.columns import FloatArray, IntArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.stage import Stages, layer_collectives, recomputed_share, repeated
from pipesim.specs import ModelSpec, Point

EVERY_MICRO_BATCH = ("tp", "cp", "ep", "vocab")
"""Dimensions in which stages talk with every micro-batch."""


def of_layers(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> list[Collective]:
    """What the layers of every stage exchange for one micro-batch, forward, backward and where a forward runs again."""
    found: list[Collective] = []
    again = recomputed_share(cut, stages)
    for layers, moe in ((stages.dense, False), (stages.moe, True)):
        if layers.any():
            forward, backward = layer_collectives(model, point.cluster, point.costs, point.stack, cut, moe=moe)
            once = np.ones_like(again)
            for way, runs in ((forward, once), (repeated(forward, cut), again), (backward, once)):
                found += [each._replace(times=each.times * (layers * runs)) for each in way]
    return found


def sent_bytes(collectives: Sequence[Collective], dimension: str) -> Number:
    """What one rank of every stage sends for this dimension."""
    return sum((each.times * each.sent_bytes() for each in collectives if each.dimension == dimension), 0.0)


def taken(collectives: Sequence[Collective], members: IntArray, kind_of: Sequence[int]) -> tuple[Collective, ...]:
    """Those of some of the points, for every stage instead of every kind of stage: ``kind_of`` (stages,)."""
    return tuple(_taken(each, members, kind_of) for each in collectives)


def _taken(value: Any, members: IntArray, kind_of: Sequence[int]) -> Any:
    if isinstance(value, tuple):
        return type(value)(*(_taken(each, members, kind_of) for each in value))
    if not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    mine = value[members] if len(value) > 1 else value
    return mine[:, kind_of] if mine.shape[1] > 1 else mine


def tables(collectives: Sequence[Collective], holds: FloatArray, sends: int, segments: int, points: int) -> list[str]:
    """For each point a table in JSON, of each dimension's rank that sends most.

    ``holds`` says whether a rank holds a stage, shape (p, stages); ``sends`` how many results and gradients (or their
    ``segments``) the rank of a pipeline that sends most hands on. A line: dimension, collective, ranks of the group,
    whether it leaves its node, groups that share the node's network, messages, bytes of one message, bytes sent for all
    of them.
    """
    tables: list[dict[tuple[object, ...], list[float]]] = [{} for _ in range(points)]
    for dimension in dict.fromkeys(each.dimension for each in collectives):
        mine = [each for each in collectives if each.dimension == dimension]
        for each, (counts, messages, sent) in zip(mine, _busiest(mine, holds, sends, segments, points), strict=True):
            group = [_wide(part, points)[:, 0] for part in (each.group.ranks, each.group.leaves, each.group.sharing)]
            for i in np.flatnonzero((counts > 0) & (group[0] > 1)):
                ranks, leaves, sharing = (part[i] for part in group)
                key = (
                    dimension,
                    each.kind,
                    int(ranks),
                    bool(leaves),
                    int(sharing),
                    float(f"{messages[i] / counts[i]:.12g}"),
                )
                line = tables[i].setdefault(key, [0.0, 0.0])
                line[0] += float(counts[i])
                line[1] += float(sent[i])
    return [json.dumps([[*key[:5], line[0], key[5], line[1]] for key, line in table.items()]) for table in tables]


def _busiest(
    mine: Sequence[Collective], holds: FloatArray, sends: int, segments: int, points: int
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """How often, bytes of all messages and bytes sent, on the rank that sends most; shape (points,) each."""
    if mine[0].dimension == "pp":
        count = np.full(points, float(sends))
        return [(count, *[_wide(each.message_bytes, points)[:, 0] / segments * count] * 2) for each in mine]
    parts = [(each.times, each.times * each.message_bytes, each.times * each.sent_bytes()) for each in mine]
    on_ranks = [[_on_ranks(part, holds, points) for part in three] for three in parts]
    busiest = np.sum([sent for _, _, sent in on_ranks], axis=0).argmax(axis=1)
    every = np.arange(points)
    return [(count[every, busiest], message[every, busiest], sent[every, busiest]) for count, message, sent in on_ranks]


def _wide(value: Any, points: int) -> FloatArray:
    value = np.asarray(value, np.float64)
    return np.broadcast_to(value, (points, value.shape[1] if value.ndim == 2 else 1))


def _on_ranks(per_stage: Number, holds: FloatArray, points: int) -> FloatArray:
    """Summed over what each rank holds: (points, ranks)."""
    wide = np.broadcast_to(np.asarray(per_stage, np.float64), (points, holds.shape[1]))
    return np.asarray((wide[:, None, :] * holds).sum(axis=2))
