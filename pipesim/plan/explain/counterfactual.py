"""What a step would take if one of its costs were smaller: priced anew and simulated again, in the same order of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.costs.gains import OF_LAYERS
from pipesim.costs.prices import Prices
from pipesim.costs.stage import StageSeconds
from pipesim.estimate import TIME_ITEMS, mixed, priced
from pipesim.estimate.orders import scheduled
from pipesim.estimate.points import Points, points_of
from pipesim.estimate.runs import Run, runs
from pipesim.estimate.step import seconds
from pipesim.schedules.action import Op, Schedule
from pipesim.simulate import lower_bounds
from pipesim.specs import ClusterSpec, Point

COSTS: dict[str, tuple[str, ...]] = {
    "compute": ("matmul", "attention", "elementwise", "optimizer"), "recompute": ("recompute",), "host": ("launch",),
    "tp": ("tp",), "cp": ("cp",), "ep": ("ep",), "vocab": ("vocab",), "pp": ("pp_exposed",), "dp": ("dp_exposed",),
    "imbalance": ("imbalance",), "bubble": ("bubble",), "fixed": ("fixed",),
}  # fmt: skip
"""What a step pays for, and its items of ``estimate.TIME_ITEMS``."""

TALK = (*OF_LAYERS, "vocab", "pp", "dp")

Factors = Mapping[str, float]


class Step(NamedTuple):
    """Seconds of a step, the bubble's among them."""

    total_s: float
    bubble_s: float


def step(point: Point, factors: Factors) -> Step:
    """Of a resolved point whose costs are multiplied with ``factors``, by name of ``COSTS``.

    compute    GPU and memory that are as much faster; what hides behind computing may show then. Never 0.
    host       every launch of the stack
    recompute  with the communication that is done again
    imbalance  each stage so much nearer to their mean
    bubble     of the idle seconds that stages of these lengths have
    """
    replicas = simulated(placed(_faster(point, factors)), factors)[0]
    steps = []
    for items in replicas:
        bubble_s, total_s = items["bubble"], np.asarray(sum(items[item] for item in TIME_ITEMS))
        left_s = factors.get("bubble", 1.0) * bubble_s
        steps += [Step(*each) for each in zip((total_s - bubble_s + left_s).tolist(), left_s.tolist(), strict=True)]
    return max(steps)


def placed(point: Point) -> Points:
    """One point, or on a cluster of several parts one for each replica that lies differently, of which the slowest counts."""
    points = points_of([point])
    return mixed.spread(points)[0] if point.cluster.parts else points


def simulated(points: Points, factors: Factors) -> tuple[list[dict[str, FloatArray]], list[dict[str, Any]], list[Run]]:
    """Items and figures of each run of the points, its members in order, with prices multiplied with ``factors``."""
    prices = _scaled(priced(points), points, factors)
    found = [_sending(run, factors.get("pp", 1.0)) for run in runs(points, prices)]
    both = [seconds(points, prices, run, False) for run in found]
    return [items for items, _ in both], [figures for _, figures in both], found


def any_order_s(point: Point) -> float:
    """What the pipeline of a resolved point takes at least in any order of the same stages on the same ranks, each backward
    split in two: see ``simulate.bounds``. Seconds of the whole step less those of its end (exchange, optimizer, fixed).
    """
    return max(
        _any_order_s(point, run, cell) for run in simulated(placed(point), {})[2] for cell in range(len(run.hop_s))
    )


def _any_order_s(point: Point, run: Run, cell: int) -> float:
    schedule = _split(scheduled(point, run.shape, int(run.m[0]), run.orders[0]))
    forward_s, input_grad_s, weight_grad_s = (op[:, cell] / schedule.segments for op in run.whole_s)
    hop_s = float(run.hop_s[cell]) / schedule.segments
    bounds = lower_bounds(schedule, forward_s, input_grad_s, weight_grad_s, hop_s)
    return bounds.makespan_s if point.training.optimizer_barrier else bounds.span_s


def _faster(point: Point, factors: Factors) -> Point:
    """With a machine and a host that take ``factors`` of their time."""
    cluster, stack = _with_faster_gpus(point.cluster, 1 / factors.get("compute", 1.0)), point.stack
    launches = ("forward_launch_s", "backward_launch_s", "spanning_launch_s", "spanning_rank_launch_s")
    stack = replace(stack, **{name: getattr(stack, name) * factors.get("host", 1.0) for name in launches})
    return replace(point, cluster=cluster, stack=stack)


def _with_faster_gpus(cluster: ClusterSpec, faster: float) -> ClusterSpec:
    return replace(
        cluster,
        peak_flops_per_s={name: peak * faster for name, peak in cluster.peak_flops_per_s.items()},
        hbm_bytes_per_s=cluster.hbm_bytes_per_s * faster,
        parts=tuple(replace(part, cluster=_with_faster_gpus(part.cluster, faster)) for part in cluster.parts),
    )


def _scaled(prices: Prices, points: Points, factors: Factors) -> Prices:
    shape = prices.parameters.shape
    ops = [{item: np.broadcast_to(np.asarray(s, np.float64), shape) for item, s in op.items()} for op in prices.seconds]
    forward, input_grad = ops[0], ops[1]
    less = 1 - factors.get("recompute", 1.0)
    for item in OF_LAYERS:
        if item in forward and item in input_grad:
            input_grad[item] = input_grad[item] - less * prices.repeated_share * forward[item]
    if "recompute" in input_grad:
        input_grad["recompute"] = (1 - less) * input_grad["recompute"]
    for op in ops:
        op |= {item: factors[item] * op[item] for item in TALK if item in op and item in factors}
    uneven, alike = factors.get("imbalance", 1.0), points.stages.alike
    if uneven != 1:
        mean = {id(op): {item: _mean(s, alike) for item, s in op.items()} for op in ops}
        ops = [{item: uneven * s + (1 - uneven) * mean[id(op)][item] for item, s in op.items()} for op in ops]
    return replace(
        prices,
        seconds=StageSeconds(*ops),
        dp_s=factors.get("dp", 1.0) * prices.dp_s,
        step_s=factors.get("fixed", 1.0) * prices.step_s,
    )


def _mean(of_kind: FloatArray, alike: FloatArray) -> FloatArray:
    """Over all stages, of which so many are of each kind: shape (cells, 1)."""
    return np.asarray((of_kind * alike).sum(axis=1, keepdims=True) / alike.sum(axis=1, keepdims=True))


def _sending(run: Run, factor: float) -> Run:
    if factor == 1:
        return run
    standing_s = None if run.standing_s is None else run.op_s + factor * (run.standing_s - run.op_s)
    return replace(run, standing_s=standing_s, hop_s=factor * run.hop_s)


def _split(schedule: Schedule) -> Schedule:
    """With every whole backward as its two parts, I and then W; pairs fall apart."""
    whole = schedule.op == Op.B
    times = 1 + whole
    first = np.cumsum(times) - times
    op, last = np.repeat(schedule.op, times), first[whole] + 1
    op[first[whole]], op[last] = Op.I, Op.W
    return replace(
        schedule,
        rank_start=np.concatenate([[0], np.cumsum(times)])[schedule.rank_start],
        stage=np.repeat(schedule.stage, times),
        op=op,
        micro_batch=np.repeat(schedule.micro_batch, times),
        joined=np.zeros(len(op), np.bool_),
    )
