"""The seconds of a step, item by item, from priced stages and the simulated schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray, alike, distinct, in_order
from pipesim.costs.prices import Prices
from pipesim.estimate.orders import scheduled
from pipesim.estimate.points import Points
from pipesim.estimate.runs import OPS, Run, counted, members_of, summed
from pipesim.schedules.action import IntArray, Op
from pipesim.simulate import lanes, steady_period_s

COMPUTE_ITEMS = ("matmul", "attention", "elementwise", "launch", "recompute")
COMMUNICATION_ITEMS = ("tp", "cp", "ep", "vocab")
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
    p, of = run.shape.p, run.cell_of
    stage_s = in_order(run.op_s)  # (stages, cells)
    kinds, busy_s = _busy_s(run, stage_s)
    slowest_s, mean_s = busy_s.max(axis=0), run.m * in_order(stage_s)[of] / p
    exchange_s = summed(prices.dp_s[run.cells], kinds)[of].T
    makespan_s, pipeline_s, free_s = _pipeline_s(points, run)
    kinds_on_rank = np.sort(run.kinds_on_rank, axis=1)
    ranks = kinds_on_rank[alike(kinds_on_rank)[0]]  # one of each kind
    items: Columns = {
        item: run.m * _of_all_stages([op[item] for op in prices.seconds if item in op], run)[of] / p
        for item in (*COMPUTE_ITEMS, *COMMUNICATION_ITEMS)
    }
    items |= {
        "imbalance": np.maximum(slowest_s - mean_s, 0.0),  # sums of one order and another differ in the last bit
        "bubble": np.maximum(free_s - slowest_s, 0.0),
        "pp_exposed": pipeline_s - free_s,
        "dp_exposed": exchange_s.max(axis=0),
        "optimizer": _most(prices.optimizer_s, run, ranks),
        "fixed": np.full(len(of), prices.step_s),
    }
    work_s = run.m * in_order(in_order(run.whole_s))[of]
    idle_s = np.maximum(p * makespan_s - work_s, 0.0)
    figures: Columns = {
        "makespan_s": makespan_s,
        "imbalance": slowest_s / mean_s,
        "efficiency_bound": mean_s / slowest_s,
        "bubble_fraction": idle_s / (p * makespan_s),
        "bubble_overhead": idle_s / work_s,
        "hop_s": run.hop_s[of],
        "dp_bytes_per_gpu": _most(prices.dp_sent_bytes, run, ranks),
        "tp_bytes_per_gpu": run.m * _most(prices.tp_sent_bytes, run, ranks),
        "pp_bytes_per_gpu": counted(run, "sends") * prices.hop_bytes[run.cells][of],
    }
    if details:
        for name, op in zip(("forward", "input_grad", "weight_grad"), run.whole_s, strict=True):
            figures[f"stage_{name}_s"] = list(op.T[of])
    return items, figures


def _most(of_kind: FloatArray, run: Run, ranks: IntArray) -> FloatArray:
    """Of the rank that has most, whose kinds of stages are one line of ``ranks``: shape (n,)."""
    return np.asarray(summed(of_kind[run.cells], ranks).max(axis=1)[run.cell_of])


def _of_all_stages(ops: Sequence[FloatArray], run: Run) -> FloatArray:
    """What an item takes on all stages for one micro-batch, forward and backward, shape (cells,)."""
    total = np.zeros(len(run.cells))
    for op in ops:
        for kind, stages in enumerate(np.bincount(run.shape.kind_of)):
            total = total + stages * op[run.cells, kind]
    return total


def _busy_s(run: Run, stage_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """The kinds of stages of each kind of rank, shape (kinds of ranks, k), and how long it computes in a step, shape
    (kinds of ranks, n); ``stage_s`` (stages, cells) is of a micro-batch.
    """
    counts = np.stack([each for order in run.orders for each in (order.micro_batches, order.growth["micro_batches"])])
    at, _ = alike(np.column_stack([run.kinds_on_rank, counts.transpose(1, 0, 2).reshape(run.shape.p, -1)]))
    stages = run.stages[at]
    busy_s = sum(  # a count is 0 where a rank has no stage
        counted(run, "micro_batches", np.s_[at, k]).T * stage_s[stages[:, k]][:, run.cell_of]
        for k in range(stages.shape[1])
    )
    return run.kinds_on_rank[at], np.asarray(busy_s)


def _pipeline_s(points: Points, run: Run) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The makespan; what the pipeline adds to a step; and that if results were handed on for nothing."""
    real, free = (run.whole_s, run.hop_s), (run.op_s, np.zeros(len(run.cells)))
    if points.like.training.optimizer_barrier:
        talks = run.standing_s is not None or run.hop_s.any()
        makespan_s, *others = _makespans_s(run, [real, free] if talks else [real])
        return makespan_s, makespan_s, others[0] if others else makespan_s
    (makespan_s,) = _makespans_s(run, [real])
    return makespan_s, _periods_s(points, run, *real), _periods_s(points, run, *free)


Times = tuple[FloatArray, FloatArray]
"""Seconds of ops (3, stages, cells) and of a hop (cells,); a micro-batch cut into segments gives each its share."""


def _makespans_s(run: Run, times: Sequence[Times]) -> list[FloatArray]:
    """Of each member's schedule, for each of the times; pipelines that are alike in all their times are run once."""
    op_s, hop_s = np.concatenate([op_s for op_s, _ in times], axis=2), np.concatenate([hop_s for _, hop_s in times])
    one, timing_of = alike(np.vstack([op_s.reshape(-1, len(hop_s)), hop_s]).T)
    of = np.concatenate([timing_of[k * len(run.cells) + run.cell_of] for k in range(len(times))])
    asked = [np.tile(run.order_of, len(times)), of, np.tile(run.blocks, len(times))]
    first, which = distinct(asked)
    order_of, timing, blocks = (each[first] for each in asked)
    segments = run.orders[0].schedule.segments
    kinds = np.empty((len(Op), op_s.shape[1], len(one)))
    kinds[list(OPS)] = op_s[:, :, one] / segments
    kinds[Op.B] = kinds[Op.I] + kinds[Op.W]
    hops, found = hop_s[one] / segments, np.empty(len(first))
    for order, own in zip(run.orders, members_of(order_of), strict=True):
        ran = lanes.run(order.program, run.shape.p, kinds[:, :, timing[own]], hops[timing[own]], blocks[own])
        found[own] = ran.last_s.max(axis=0) - ran.first_s.min(axis=0)
    return np.split(found[which], len(times))


def _periods_s(points: Points, run: Run, op_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """From one step to the next of each member, when many run back to back."""
    found = []
    for i, (m, cell) in enumerate(zip(run.m.tolist(), run.cell_of.tolist(), strict=True)):
        schedule = scheduled(points.like, run.shape, m, run.orders[run.order_of[i]])
        forward_s, input_grad_s, weight_grad_s = op_s[:, :, cell] / schedule.segments
        hop = float(hop_s[cell]) / schedule.segments
        found.append(steady_period_s(schedule, forward_s, input_grad_s, weight_grad_s, hop))
    return np.array(found)
