"""Which constants may be fitted to measured runs: where each lives, how far it may move, and how sure we were before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipesim.specs import Point


class Constant(NamedTuple):
    """``spread`` is the factor of one standard deviation before any run was seen; ``low`` and ``high`` are physics."""

    name: str
    spread: float
    low: float
    high: float


CONSTANTS = (
    Constant("stack.gemm_efficiency", 1.15, 0.2, 0.98),
    Constant("stack.forward_launch_s", 1.5, 1e-6, 0.1),
    Constant("stack.backward_launch_s", 1.5, 1e-6, 0.1),
    Constant("stack.norm_bytes", 1.5, 2.0, 400.0),
    Constant("stack.logits_bytes", 1.5, 2.0, 200.0),
    Constant("stack.tp_overlap", 1.3, 0.01, 0.99),
    Constant("stack.dp_overlap", 1.3, 0.01, 0.99),
    Constant("cluster.network", 1.3, 1e8, 1e13),
)
"""At most seven of a stack, its efficiency on the cluster's chip among them, and the network of the cluster.

Spreads are what separates the stacks of ``conf/stack`` from each other, roughly; a constant that is 0 is not fitted.
"""


def value(point: Point, name: str) -> float:
    """The constant's value behind a point."""
    if name == "stack.gemm_efficiency":
        known = point.stack.gemm_efficiency
        return known.get(point.cluster.chip, known["default"])
    if name == "cluster.network":
        return point.cluster.inter_node.bandwidth_bytes_per_s
    return float(getattr(point.stack, name.removeprefix("stack.")))


def with_values(point: Point, values: Mapping[str, float]) -> Point:
    """The point with some constants changed."""
    stack = {name.removeprefix("stack."): each for name, each in values.items() if name.startswith("stack.")}
    changes: dict[str, object] = dict(stack)
    if "gemm_efficiency" in stack:
        changes["gemm_efficiency"] = {**point.stack.gemm_efficiency, point.cluster.chip: stack["gemm_efficiency"]}
    cluster = point.cluster
    if "cluster.network" in values:
        link = dataclasses.replace(cluster.inter_node, bandwidth_bytes_per_s=values["cluster.network"])
        cluster = dataclasses.replace(cluster, inter_node=link)
    stacked = dataclasses.replace(point.stack, **changes) if changes else point.stack  # type: ignore[arg-type]
    return dataclasses.replace(point, stack=stacked, cluster=cluster)


def fitted(points: Sequence[Point], names: Sequence[str] = ()) -> list[Constant]:
    """The constants that these points can be fitted by: those asked for, or all that are not 0 and matter somewhere."""
    chosen = [constant for constant in CONSTANTS if not names or constant.name in names]
    return [constant for constant in chosen if all(_matters(value(point, constant.name)) for point in points)]


def _matters(number: float) -> bool:
    return number > 0 and math.isfinite(number)
