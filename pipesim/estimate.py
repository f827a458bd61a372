"""From points to estimates: prices and a simulated schedule become seconds and bytes, item by item.

Points that share everything but their numbers are evaluated as arrays; one point is a batch of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs import full, lecture
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.legality import micro_batches
from pipesim.schedules import make_schedule
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate import idle, lower_bounds, peak_held, simulate
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.timeline import Timeline
from pipesim.specs import Point

COMPUTE_ITEMS = ("matmul", "attention", "elementwise", "launch", "recompute")
COMMUNICATION_ITEMS = ("tp", "cp", "ep")
TIME_ITEMS = (*COMPUTE_ITEMS, *COMMUNICATION_ITEMS, "imbalance", "bubble", "pp_exposed", "dp_exposed", "optimizer")
"""In seconds these sum to the step time, in this order."""

MEMORY_ITEMS = ("weights", "gradients", "optimizer", "activation", "logits", "context")
"""In bytes these sum to the memory of the heaviest rank, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Estimates of points that share one schedule. Arrays have one entry per point, lists one array per point."""

    schedule: Schedule
    seconds: dict[str, FloatArray]
    """By item of ``TIME_ITEMS``."""
    bytes: dict[str, FloatArray]
    """By item of ``MEMORY_ITEMS``, on the heaviest rank."""
    columns: dict[str, Any]
    """Everything else of a row, see ``results.schema``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipeline:
    """Where the schedule puts what, shape (p, stages): whether the rank holds the stage; sends of each rank per step."""

    holds: FloatArray
    sends: IntArray
    peak_inflight: tuple[int, ...]


def shape_key(point: Point) -> tuple[object, ...]:
    """Resolved points with equal keys can be evaluated together."""
    layout, training = point.layout, point.training
    return (
        point.model, point.cluster, point.costs, point.schedule, micro_batches(point),
        layout.p, layout.v, layout.zero, layout.sequence_parallel, layout.partition,
        training.precision, training.recompute, training.attention, training.dropout,
        training.gradient_bytes, training.reduce_bytes, training.global_batch, point.options,
        point if point.schedule == "auto" else None,  # its order is made for the point's own times
    )  # fmt: skip


def evaluate(points: Sequence[Point]) -> Batch:
    """The estimates of resolved points with one ``shape_key``."""
    first = points[0]
    cut = _cut(points)
    prices = (lecture if first.costs.kind == "lecture" else full).price(first, cut)
    m = micro_batches(first)
    stage_s = [np.asarray(sum(items.values())) for items in prices.seconds]
    schedule = _schedule(
        first.schedule, first.layout.p, m, first.layout.v, first.options, [op[0] for op in stage_s], prices.hop_s[0]
    )
    pipeline = _pipeline(schedule)
    seconds, timing = _seconds(prices, schedule, pipeline, m, stage_s)
    held, memory = _memory(prices, schedule, pipeline)
    step_s = sum(seconds.values())
    tokens = first.training.global_batch * np.array([_seq_length(point) for point in points], np.float64)
    columns = timing | memory | _throughput(points, prices, step_s, tokens)
    columns |= {
        "num_microbatches": np.full(len(points), m),
        "model_params": np.full(len(points), float(prices.model_parameters)),
        "peak_inflight": [pipeline.peak_inflight] * len(points),
        "dp_bytes_per_gpu": _on_ranks(prices.dp_sent_bytes, pipeline).max(axis=1),
        "tp_bytes_per_gpu": m * _on_ranks(prices.tp_sent_bytes, pipeline).max(axis=1),
        "pp_bytes_per_gpu": pipeline.sends.max() * prices.hop_bytes / schedule.segments,
        "hop_s": prices.hop_s,
    }
    return Batch(schedule=schedule, seconds=seconds, bytes=held, columns=columns)


class Pipeline(NamedTuple):
    """The pipeline behind a row: when everything runs, how short it could be, and idle seconds of all ranks by cause."""

    timeline: Timeline
    lower_bound_s: float
    idle_s: dict[str, float]


def pipeline(row: Mapping[str, Any]) -> Pipeline:
    """The pipeline behind a row of ``results.schema``, simulated anew."""
    stage_s = [np.array(row[f"stage_{op}_s"], np.float64) for op in ("forward", "input_grad", "weight_grad")]
    options = tuple(json.loads(row["schedule_options"] or "{}").items())
    sizes = (row["p"], row["num_microbatches"], row["v"])
    schedule = _schedule(row["schedule"], *sizes, options, stage_s, row["hop_s"])
    timeline = _simulated(schedule, stage_s, row["hop_s"])
    forward_s, input_grad_s, weight_grad_s = (op / schedule.segments for op in stage_s)
    bound = lower_bounds(schedule, forward_s, input_grad_s, weight_grad_s, row["hop_s"] / schedule.segments)
    return Pipeline(timeline, bound.makespan_s, {str(cause): s for cause, s in idle(timeline).by_cause().items()})


def _schedule(
    name: str,
    p: int,
    m: int,
    v: int | None,
    options: Sequence[tuple[str, Any]],
    stage_s: Sequence[FloatArray],
    hop_s: float,
) -> Schedule:
    """``auto`` makes its order for these times; to all others they are nothing."""
    if name == "auto":
        times = zip(("forward_s", "input_grad_s", "weight_grad_s", "latency_s"), (*stage_s, float(hop_s)), strict=True)
        options = (*options, *times)
    return make_schedule(name, p=p, m=m, v=v, **dict(options))


def _simulated(schedule: Schedule, stage_s: Sequence[FloatArray], hop_s: float) -> Timeline:
    """Seconds are of a whole micro-batch; where a schedule cuts it into segments, each takes its share."""
    forward_s, input_grad_s, weight_grad_s = (op / schedule.segments for op in stage_s)
    return simulate(schedule, forward_s, input_grad_s, weight_grad_s, float(hop_s) / schedule.segments)


def _cut(points: Sequence[Point]) -> Cut:
    first = points[0]

    def column(values: list[int | None]) -> FloatArray:
        return np.array(values, np.float64)[:, None]

    return Cut(
        t=column([point.layout.t for point in points]),
        d=column([point.layout.d for point in points]),
        c=column([point.layout.c for point in points]),
        e=column([point.layout.e for point in points]),
        gpus=column([_gpus(point) for point in points]),
        micro_batch=column([point.training.micro_batch for point in points]),
        seq_length=column([_seq_length(point) for point in points]),
        zero=first.layout.zero,
        sequence_parallel=first.layout.sequence_parallel,
        recompute=first.training.recompute,
        attention=first.training.attention,
        precision=first.training.precision,
        dropout=first.training.dropout,
        gradient_bytes=first.training.gradient_bytes,
        reduce_bytes=first.training.reduce_bytes,
    )


def _seq_length(point: Point) -> int:
    return point.training.seq_length or point.model.context


def _pipeline(schedule: Schedule) -> _Pipeline:
    rank_of, needs = schedule.rank_of(), dependencies(schedule).remote
    forwards = schedule.op == Op.F
    holds = np.zeros((schedule.p, schedule.stages))
    holds[rank_of[forwards], schedule.stage[forwards]] = 1
    travels = np.flatnonzero((needs >= 0) & (rank_of[needs] != rank_of))
    return _Pipeline(
        holds=holds,
        sends=np.bincount(rank_of[needs[travels]], minlength=schedule.p).astype(np.int64),
        peak_inflight=tuple(int(peak) for peak in peak_held(schedule, np.ones(schedule.stages))),
    )


def _on_ranks(per_stage: FloatArray, pipeline: _Pipeline) -> FloatArray:
    """(points, stages) summed over what each rank holds: (points, p). No matrix product: its last bit depends on size."""
    return np.asarray((per_stage[:, None, :] * pipeline.holds).sum(axis=2))


def _seconds(
    prices: Prices, schedule: Schedule, pipeline: _Pipeline, m: int, ops: Sequence[FloatArray]
) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """Time items, and the figures of the simulated timeline.

    What computes or talks on the way is the mean over ranks; the slowest rank's excess is imbalance, its idle time
    bubble, and what hops between ranks add to the makespan is exposed pipeline communication.
    """
    free, real = [], []
    for point, hop_s in enumerate(prices.hop_s):
        stage_s = [op[point] for op in ops]
        real.append(_simulated(schedule, stage_s, hop_s))
        free.append(_simulated(schedule, stage_s, 0.0) if hop_s else real[-1])
    busy_s = np.array([each.busy_s for each in real])
    makespan_s, free_s = (np.array([each.makespan_s for each in some]) for some in (real, free))
    seconds = {
        item: m * sum(op[item] for op in prices.seconds if item in op).sum(axis=1) / schedule.p  # type: ignore[union-attr]
        if any(item in op for op in prices.seconds)
        else np.zeros(len(makespan_s))
        for item in (*COMPUTE_ITEMS, *COMMUNICATION_ITEMS)
    }
    seconds |= {
        "imbalance": busy_s.max(axis=1) - busy_s.mean(axis=1),
        "bubble": np.maximum(free_s - busy_s.max(axis=1), 0.0),  # sums of one order and another differ in the last bit
        "pp_exposed": makespan_s - free_s,
        "dp_exposed": _on_ranks(prices.dp_s, pipeline).max(axis=1),
        "optimizer": _on_ranks(prices.optimizer_s, pipeline).max(axis=1),
    }
    return seconds, {
        "makespan_s": makespan_s,
        "imbalance": busy_s.max(axis=1) / busy_s.mean(axis=1),
        "efficiency_bound": busy_s.mean(axis=1) / busy_s.max(axis=1),
        "bubble_fraction": np.array([each.bubble_fraction for each in real]),
        "bubble_overhead": np.array([each.bubble_overhead for each in real]),
        "stage_forward_s": list(ops[0]),
        "stage_input_grad_s": list(ops[1]),
        "stage_weight_grad_s": list(ops[2]),
    }


def _memory(prices: Prices, schedule: Schedule, pipeline: _Pipeline) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """Memory items of the heaviest rank, and the totals of all ranks."""
    working = np.stack([(prices.working_bytes * row).max(axis=1) for row in pipeline.holds], axis=1)
    items = {
        "weights": _on_ranks(prices.weights_bytes, pipeline),
        "gradients": _on_ranks(prices.gradients_bytes, pipeline),
        "optimizer": _on_ranks(prices.optimizer_bytes, pipeline),
        "activation": peak_held(schedule, prices.kept_bytes / schedule.segments) + working,
        "logits": _on_ranks(prices.logits_bytes, pipeline),
        "context": np.full(working.shape, prices.context_bytes),
    }
    total = sum(items.values())
    heaviest = np.argmax(total, axis=1)
    every = np.arange(len(heaviest))
    on_heaviest = {item: held[every, heaviest] for item, held in items.items()}
    return on_heaviest, {
        "heaviest_rank": heaviest,
        "rank_memory_bytes": list(np.asarray(total)),
        "params_per_gpu": _on_ranks(prices.parameters, pipeline)[every, heaviest],
    }


def _throughput(points: Sequence[Point], prices: Prices, step_s: Any, tokens: FloatArray) -> dict[str, FloatArray]:
    """MFU counts model FLOPs, HFU also those of recomputation, both over peak dense FLOP/s of the GPUs used."""
    gpus = np.array([_gpus(point) for point in points], np.float64)
    peak = points[0].cluster.peak_flops_per_s[points[0].training.precision]
    per_gpu = tokens / step_s / gpus
    return {
        "tokens_per_s": tokens / step_s,
        "tokens_per_s_per_gpu": per_gpu,
        "model_tflops_per_gpu": prices.model_flops_per_token * per_gpu / 1e12,
        "mfu": prices.model_flops_per_token * per_gpu / peak,
        "hfu": prices.hardware_flops_per_token * per_gpu / peak,
    }


def _gpus(point: Point) -> int:
    layout = point.layout
    assert layout.d is not None
    return layout.t * layout.p * layout.c * layout.d
