"""How global ranks may be numbered over the nodes: the orders of t, c, d and p that give some group another link.

The ranks that hold different experts are neighbours among those of c and d, so that the order places e too.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import permutations
from typing import Any

import numpy as np

from pipesim.costs.cut import Cut
from pipesim.estimate import mixed, points_of, priced
from pipesim.specs import Point


def orders(point: Point) -> list[str]:
    """Values of ``parallel.rank_order`` worth trying for a resolved point, innermost degree first: of those that place
    every group, replica and hop on equal links one, those with t innermost before others. Tensor groups that fit into a
    node stay in one.
    """
    found: dict[tuple[Any, ...], str] = {}
    for letters in permutations("tcdp"):
        order = "".join(letters)
        asked = dataclasses.replace(point, layout=dataclasses.replace(point.layout, rank_order=order))
        if _keeps_tensor_groups_whole(asked):
            found.setdefault(_links(asked), order)
    return list(found.values())


def _keeps_tensor_groups_whole(point: Point) -> bool:
    layout, node = point.layout, point.cluster.gpus_per_node
    inner = layout.rank_order[: layout.rank_order.index("t")]
    return layout.t > node or layout.t * math.prod(getattr(layout, each) for each in inner) <= node


def _links(point: Point) -> tuple[Any, ...]:
    """Of everything that is exchanged: who with whom, and over what; equal for orders that no price tells apart."""
    points = points_of([point])
    if point.cluster.parts:
        points, _ = mixed.spread(points)
    prices = priced(points)
    groups = [
        (each.dimension, each.kind, _numbers(each.group))
        for each in prices.collectives
        if np.any(np.asarray(each.group.ranks) > 1) and np.any(np.asarray(each.times) > 0)
    ]
    hops = [
        mixed.boundary_s(
            points, points.shapes[shape], _one(points.cut, cell), prices.hop_bytes[cell : cell + 1, None]
        ).tobytes()
        for cell, shape in enumerate(points.shape_of.tolist())
    ]
    return (*groups, *hops, *(points.shapes if point.cluster.parts else ()))


def _one(cut: Cut, cell: int) -> Cut:
    return cut.taken(np.array([cell]))


def _numbers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    return np.asarray(value, np.float64).tobytes()
