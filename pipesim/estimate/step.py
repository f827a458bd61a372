"""The seconds of a step, item by item, from priced stages and the simulated schedule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray, in_order
from pipesim.costs.prices import Prices
from pipesim.estimate.orders import scheduled
from pipesim.estimate.points import Points
from pipesim.estimate.runs import OPS, Run, counted, members_of, summed
from pipesim.schedules.action import IntArray, Op
from pipesim.simulate import lanes, steady_period_s

COMPUTE_ITEMS = ("matmul", "attention", "elementwise", "launch", "recompute")
COMMUNICATION_ITEMS = ("tp", "cp", "ep")
TIME_ITEMS = (
    *COMPUTE_ITEMS, *COMMUNICATION_ITEMS, "imbalance", "bubble", "pp_exposed", "dp_exposed", "optimizer", "fixed",
)  # fmt: skip
"""In seconds these sum to the step time, in this order."""

Columns = dict[str, Any]


def seconds(points: Points, prices: Prices, run: Run, details: bool) -> tuple[Columns, Columns]:
    """Time items of a run's members, and the figures of their simulated timelines.

    What computes or talks on the way is the mean over ranks; the slowest rank's excess is imbalance, its idle time
    bubble, and what handing results on adds is exposed pipeline communication. Without a barrier a step takes as long
    as the period of steps that follow each other, with the bubble that is left then.
    """
    members, p = run.members, run.shape.p
    stage_s = in_order(run.op_s)  # (stages, n)
    kinds, busy_s = _busy_s(run, stage_s)
    slowest_s, mean_s = busy_s.max(axis=0), run.m * in_order(stage_s) / p
    exchange_s = summed(prices.dp_s[members], kinds).T
    if points.cut.zero == 3:  # with every micro-batch: what it adds to the slowest rank
        exchange_s = busy_s + exchange_s - slowest_s
    makespan_s, pipeline_s, free_s = _pipeline_s(points, run)
    ranks = np.unique(np.sort(run.kinds_on_rank, axis=1), axis=0)  # one of each kind: several may be alike
    items: Columns = {
        item: run.m * _of_all_stages([op[item] for op in prices.seconds if item in op], run) / p
        for item in (*COMPUTE_ITEMS, *COMMUNICATION_ITEMS)
    }
    items |= {
        "imbalance": slowest_s - mean_s,
        "bubble": np.maximum(free_s - slowest_s, 0.0),  # sums of one order and another differ in the last bit
        "pp_exposed": pipeline_s - free_s,
        "dp_exposed": exchange_s.max(axis=0),
        "optimizer": summed(prices.optimizer_s[members], ranks).max(axis=1),
        "fixed": np.full(len(members), prices.step_s),
    }
    work_s = run.m * in_order(in_order(run.whole_s))
    idle_s = np.maximum(p * makespan_s - work_s, 0.0)
    figures: Columns = {
        "makespan_s": makespan_s,
        "imbalance": slowest_s / mean_s,
        "efficiency_bound": mean_s / slowest_s,
        "bubble_fraction": idle_s / (p * makespan_s),
        "bubble_overhead": idle_s / work_s,
        "hop_s": run.hop_s,
        "dp_bytes_per_gpu": summed(prices.dp_sent_bytes[members], ranks).max(axis=1),
        "tp_bytes_per_gpu": run.m * summed(prices.tp_sent_bytes[members], ranks).max(axis=1),
        "pp_bytes_per_gpu": counted(run, "sends") * prices.hop_bytes[members],
    }
    if details:
        for name, op in zip(("forward", "input_grad", "weight_grad"), run.whole_s, strict=True):
            figures[f"stage_{name}_s"] = list(op.T)
    return items, figures


def _of_all_stages(ops: Sequence[FloatArray], run: Run) -> FloatArray:
    """What an item takes on all stages for one micro-batch, forward and backward, shape (n,)."""
    total = np.zeros(len(run.members))
    for op in ops:
        for kind, stages in enumerate(np.bincount(run.shape.kind_of)):
            total = total + stages * op[run.members, kind]
    return total


def _busy_s(run: Run, stage_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """The kinds of stages of each kind of rank, shape (kinds of ranks, k), and how long it computes in a step, shape
    (kinds of ranks, n); ``stage_s`` (stages, n) is of a micro-batch.
    """
    counts = np.stack([each for order in run.orders for each in (order.micro_batches, order.growth["micro_batches"])])
    alike = np.column_stack([run.kinds_on_rank, counts.transpose(1, 0, 2).reshape(run.shape.p, -1)])
    at = np.unique(alike, axis=0, return_index=True)[1]
    stages = run.stages[at]
    busy_s = sum(  # a count is 0 where a rank has no stage
        counted(run, "micro_batches", np.s_[at, k]).T * stage_s[stages[:, k]] for k in range(stages.shape[1])
    )
    return run.kinds_on_rank[at], np.asarray(busy_s)


def _pipeline_s(points: Points, run: Run) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The makespan; what the pipeline adds to a step; and that if results were handed on for nothing."""
    real, free = (run.whole_s, run.hop_s), (run.op_s, np.zeros(len(run.members)))
    if points.like.training.optimizer_barrier:
        talks = run.standing_s is not None or run.hop_s.any()
        makespan_s, *others = _makespans_s(run, [real, free] if talks else [real])
        return makespan_s, makespan_s, others[0] if others else makespan_s
    (makespan_s,) = _makespans_s(run, [real])
    return makespan_s, _periods_s(points, run, *real), _periods_s(points, run, *free)


Times = tuple[FloatArray, FloatArray]
"""Seconds of ops (3, stages, n) and of a hop (n,); a micro-batch cut into segments gives each its share."""


def _makespans_s(run: Run, times: Sequence[Times]) -> list[FloatArray]:
    """Of each member's schedule, for each of the times."""
    n, at = len(run.members), members_of(run.order_of)
    ends = np.cumsum([0, *(len(times) * len(own) for own in at)]).tolist()
    which = np.concatenate([own + k * n for own in at for k in range(len(times))])  # an order's points side by side
    segments = run.orders[0].schedule.segments
    kinds = np.empty((len(Op), run.op_s.shape[1], len(which)))
    kinds[list(OPS)] = np.concatenate([op_s for op_s, _ in times], axis=2)[:, :, which] / segments
    kinds[Op.B] = kinds[Op.I] + kinds[Op.W]
    hops, blocks = (
        np.concatenate([hop_s for _, hop_s in times])[which] / segments,
        np.tile(run.blocks, len(times))[which],
    )
    found = np.empty(len(which))
    for order, (start, stop) in zip(run.orders, pairwise(ends), strict=True):
        own = np.s_[start:stop]
        ran = lanes.run(order.program, run.shape.p, kinds[:, :, own], hops[own], blocks[own])
        found[which[own]] = ran.last_s.max(axis=0) - ran.first_s.min(axis=0)
    return np.split(found, len(times))


def _periods_s(points: Points, run: Run, op_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """From one step to the next of each member, when many run back to back."""
    found = []
    for i, m in enumerate(run.m.tolist()):
        schedule = scheduled(points.like, run.shape, m, run.orders[run.order_of[i]])
        forward_s, input_grad_s, weight_grad_s = op_s[:, :, i] / schedule.segments
        hop = float(hop_s[i]) / schedule.segments
        found.append(steady_period_s(schedule, forward_s, input_grad_s, weight_grad_s, hop))
    return np.array(found)
