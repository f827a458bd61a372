"""Which constants may be fitted to measured runs: where each lives, how far it may move, how sure we were before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipesim.specs import ClusterSpec, Point


class Constant(NamedTuple):
    """``low`` and ``high`` are physics, in SI units. Before any run is seen its value is the one of the config, give or
    take one ``spread``: a factor, or for shares (``is_share``) a difference.
    """

    name: str
    unit: str
    spread: float
    low: float
    high: float
    is_share: bool = False

    def moved(self, value: float, steps: float) -> float:
        """The value some spreads further, within the bounds; a value that lies beyond them stays reachable."""
        further = value + steps * self.spread if self.is_share else value * self.spread**steps
        return min(max(further, min(self.low, value)), max(self.high, value))

    def steps(self, value: float, other: float) -> float:
        """Spreads from one value to another."""
        return (other - value) / self.spread if self.is_share else math.log(other / value) / math.log(self.spread)


CONSTANTS = (
    Constant("stack.gemm_efficiency", "of the peak", 1.15, 0.1, 0.98),
    Constant("stack.forward_launch_s", "s a layer", 1.5, 1e-6, 0.1),
    Constant("stack.backward_launch_s", "s a layer", 1.5, 1e-6, 0.1),
    Constant("stack.norm_bytes", "bytes an element", 1.5, 2.0, 400.0),
    Constant("stack.logits_bytes", "bytes a logit", 1.5, 2.0, 200.0),
    Constant("stack.hop_start_s", "s a hop", 2.0, 1e-6, 0.1),
    Constant("stack.tp_overlap", "share hidden", 0.15, 0.0, 0.99, is_share=True),
    Constant("stack.dp_overlap", "share hidden", 0.15, 0.0, 0.99, is_share=True),
    Constant("cluster.network", "bytes/s a node", 1.3, 1e8, 1e13),
)
"""At most seven of a stack, its efficiency on the cluster's chip, and the network of the cluster.

Spreads are roughly what separates the stacks of ``conf/stack``. A constant that is 0, such as the overlap of a framework
that hides nothing, is fitted only where it is asked for by name.
"""

BY_NAME = {constant.name: constant for constant in CONSTANTS}

SCALE = BY_NAME["stack.gemm_efficiency"]._replace(spread=1.5)
"""What fewer than ``FEW`` layouts are fitted by: they say how fast, but hardly why. It stands for all that is left out."""

FEW = 3

SURE = 0.3
"""Of a spread (of its logarithm, if it is a factor): what is left of it for a stack's constants on a chip on which they were
measured. Of packaged studies of which one, three or ten runs were fitted, the others were then met best by 0.3 or less."""


def value(point: Point, name: str) -> float:
    """The constant's value behind a point, in SI units."""
    if name == "stack.gemm_efficiency":
        known = point.stack.gemm_efficiency
        return known.get(point.cluster.chip, known["default"])
    if name == "cluster.network":
        return point.cluster.inter_node.bandwidth_bytes_per_s
    return float(getattr(point.stack, name.removeprefix("stack.")))


def with_values(point: Point, values: Mapping[str, float]) -> Point:
    """The point with some constants changed. Raises ``KeyError`` for a name that is none of ``CONSTANTS``."""
    stack: dict[str, object] = {}
    cluster: ClusterSpec = point.cluster
    for name in values:
        assert BY_NAME[name]
        if name == "cluster.network":
            link = dataclasses.replace(cluster.inter_node, bandwidth_bytes_per_s=values[name])
            cluster = dataclasses.replace(cluster, inter_node=link)
        elif name == "stack.gemm_efficiency":
            stack["gemm_efficiency"] = {**point.stack.gemm_efficiency, cluster.chip: values[name]}
        else:
            stack[name.removeprefix("stack.")] = values[name]
    replaced = dataclasses.replace(point.stack, **stack) if stack else point.stack  # type: ignore[arg-type]
    return dataclasses.replace(point, stack=replaced, cluster=cluster)


def fitted(points: Sequence[Point], names: Sequence[str] = (), *, is_measured: bool = False) -> list[Constant]:
    """The constants that these points can be fitted by: those asked for, or all that are there and touch some point.

    ``is_measured``: the stack was on this chip, so that a run that lies off is noise rather than news of it.
    """
    if names:
        return [constant for constant in CONSTANTS if constant.name in names]
    surer = {constant.name: _surer(constant) if is_measured else constant for constant in CONSTANTS}
    wanted = tuple(surer.values())
    if len(set(points)) < FEW:
        wanted = (surer[SCALE.name] if is_measured else SCALE,)
    return [constant for constant in wanted if any(_touches(constant.name, point) for point in points)]


def _surer(constant: Constant) -> Constant:
    """A network is one's own, whoever measured the stack."""
    if constant.name == "cluster.network":
        return constant
    return constant._replace(spread=constant.spread * SURE if constant.is_share else constant.spread**SURE)


def absent(points: Sequence[Point]) -> list[str]:
    """Shares that are 0 behind all points, though some point would feel them: fitted only where they are asked for."""
    return [
        each.name
        for each in CONSTANTS
        if each.is_share
        and all(value(point, each.name) == 0 for point in points)
        and any(_feels(each.name, point) for point in points)
    ]


def _touches(name: str, point: Point) -> bool:
    return value(point, name) > 0 and _feels(name, point)


def _feels(name: str, point: Point) -> bool:
    """Whether the point's layout has what the constant is about."""
    layout, cluster = point.layout, point.cluster
    ranks = layout.t * layout.p * layout.c * (layout.d or 1)
    used = {
        "stack.hop_start_s": layout.p > 1,
        "stack.tp_overlap": layout.t > 1,
        "stack.dp_overlap": (layout.d or 1) * layout.c > 1,
        "cluster.network": ranks > cluster.gpus_per_node,
    }
    return used.get(name, True)
