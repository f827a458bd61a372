"""From points to estimates: prices and a simulated schedule become seconds and bytes, item by item.

Points that share everything but their numbers are evaluated as arrays; one point is a batch of one.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs import full, lecture, traffic
from pipesim.costs.columns import column, kind
from pipesim.costs.cut import Cut
from pipesim.costs.gains import Run, at_most
from pipesim.costs.prices import Prices
from pipesim.costs.stage import StageSeconds
from pipesim.legality import micro_batches
from pipesim.schedules import make_schedule, ranks_of_stages
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate import idle, lower_bounds, peak_held, simulate, steady_period_s
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.timeline import Timeline
from pipesim.specs import Point

COMPUTE_ITEMS = ("matmul", "attention", "elementwise", "launch", "recompute")
COMMUNICATION_ITEMS = ("tp", "cp", "ep")
TIME_ITEMS = (
    *COMPUTE_ITEMS, *COMMUNICATION_ITEMS, "imbalance", "bubble", "pp_exposed", "dp_exposed", "optimizer", "fixed",
)  # fmt: skip
"""In seconds these sum to the step time, in this order."""

MEMORY_ITEMS = ("weights", "gradients", "optimizer", "activation", "logits", "buffers", "slack", "context")
"""In bytes these sum to the memory of the heaviest rank, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Estimates of points that share one ``price_key``. Arrays have one entry per point, lists one array per point."""

    seconds: dict[str, FloatArray]
    """By item of ``TIME_ITEMS``."""
    bytes: dict[str, FloatArray]
    """By item of ``MEMORY_ITEMS``, on the heaviest rank."""
    columns: dict[str, Any]
    """Everything else of a row, see ``results.schema``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where a schedule puts what: whether a rank holds a stage, shape (p, stages); sends of each rank per step."""

    holds: FloatArray
    sends: IntArray
    peak_inflight: tuple[int, ...]


def price_key(point: Point) -> tuple[object, ...]:
    """Resolved points with equal keys can be priced together, as arrays."""
    layout, training = point.layout, point.training
    return (
        kind(point.model), point.cluster, point.costs, point.stack, layout.zero, layout.sequence_parallel, layout.context,
        layout.rank_order, layout.spread_vocab, layout.shard is None, training.precision, training.recompute,
        training.attention, training.dropout, point.schedule, dict(point.options).get("path"), layout.p, layout.v,
    )  # fmt: skip


def schedule_key(point: Point) -> tuple[object, ...]:
    """Of points with one ``price_key``, those with equal keys run the same schedule."""
    alone = point if point.schedule == "auto" else None  # its order is made for the point's own times
    return point.options, micro_batches(point), point.training.optimizer_barrier, alone


def evaluate(points: Sequence[Point]) -> Batch:
    """The estimates of resolved points with one ``price_key``."""
    first = points[0]
    cut = cut_of(points)
    ranks = ranks_of_stages(first.schedule, first.layout.p, first.layout.v or 1, **dict(first.options))
    prices = (lecture if first.costs.kind == "lecture" else full).price(points, cut, ranks)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, point in enumerate(points):
        groups.setdefault(schedule_key(point), []).append(index)
    parts = [_scheduled([points[i] for i in members], _taken(prices, np.array(members))) for members in groups.values()]
    order = np.argsort(np.concatenate(list(groups.values())))
    seconds, held, columns = (_joined([part[k] for part in parts], order) for k in range(3))
    tokens = np.array([point.training.global_batch * _seq_length(point) for point in points], np.float64)
    columns |= _throughput(points, prices, sum(seconds.values()), tokens)
    return Batch(seconds=seconds, bytes=held, columns=columns)


Columns = dict[str, Any]


def _scheduled(points: Sequence[Point], prices: Prices) -> tuple[Columns, Columns, Columns]:
    """Seconds, bytes and other columns of points that run one schedule."""
    first, m = points[0], micro_batches(points[0])
    stage_s = [np.asarray(sum(items.values())) for items in prices.seconds]
    sizes = (first.layout.p, m, first.layout.v)
    schedule = _schedule(first.schedule, *sizes, first.options, [op[0] for op in stage_s], prices.hop_s[0])
    places = _places(schedule)
    seconds, timing = _seconds(prices, schedule, places, m, first.training.optimizer_barrier)
    held, memory = _memory(prices, schedule, places, _waiting_for_vocab(first))
    columns = timing | memory
    columns |= {
        "num_microbatches": np.full(len(points), m),
        "model_params": prices.model_parameters,
        "peak_inflight": [places.peak_inflight] * len(points),
        "dp_bytes_per_gpu": _on_ranks(prices.dp_sent_bytes, places).max(axis=1),
        "tp_bytes_per_gpu": m * _on_ranks(prices.tp_sent_bytes, places).max(axis=1),
        "pp_bytes_per_gpu": places.sends.max() * prices.hop_bytes / schedule.segments,
        "hop_s": prices.hop_s,
        "fixes": _gains(prices, seconds, schedule, places, m, first.training.optimizer_barrier),
        "communication": traffic.tables(
            prices.collectives, places.holds, int(places.sends.max()), schedule.segments, len(points)
        ),
    }
    return seconds, held, columns


def _gains(prices: Prices, seconds: Columns, schedule: Schedule, places: _Places, m: int, barrier: bool) -> list[str]:
    """What each fix could gain at most, in JSON."""
    split = bool((schedule.op == Op.W).any())
    gains = at_most(prices, seconds, Run(places.holds, m, schedule.segments, split, barrier))
    return [
        json.dumps({fix: float(gain[i]) for fix, gain in gains.items() if gain[i] > 0})
        for i in range(len(prices.parameters))
    ]


def _taken(prices: Prices, members: IntArray) -> Prices:
    """The prices of some of the points."""
    ops = (
        {item: np.broadcast_to(s, prices.parameters.shape)[members] for item, s in op.items()} for op in prices.seconds
    )
    arrays: Columns = {
        field.name: getattr(prices, field.name)[members]
        for field in dataclasses.fields(prices)
        if isinstance(getattr(prices, field.name), np.ndarray)
    }
    collectives = traffic.taken(prices.collectives, members)
    return dataclasses.replace(prices, seconds=StageSeconds(*ops), collectives=collectives, **arrays)


def _joined(parts: Sequence[Columns], order: IntArray) -> Columns:
    """Columns of all groups in the order of the points."""
    joined: Columns = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[name] = np.concatenate(values)[order]
        else:
            flat = [each for value in values for each in value]
            joined[name] = [flat[i] for i in order]
    return joined


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


def cut_of(points: Sequence[Point]) -> Cut:
    """The points' numbers as columns."""
    first = points[0]
    layouts, trainings = [point.layout for point in points], [point.training for point in points]
    return Cut(
        t=column([layout.t for layout in layouts]),
        d=column([layout.d for layout in layouts]),
        c=column([layout.c for layout in layouts]),
        e=column([layout.e for layout in layouts]),
        p=column([layout.p for layout in layouts]),
        gpus=column([_gpus(point) for point in points]),
        micro_batch=column([training.micro_batch for training in trainings]),
        seq_length=column([_seq_length(point) for point in points]),
        num_microbatches=column([micro_batches(point) for point in points]),
        shard=None if first.layout.shard is None else column([layout.shard for layout in layouts]),
        recomputed=np.array([_recomputed(point) for point in points], np.float64),
        zero=first.layout.zero,
        sequence_parallel=first.layout.sequence_parallel,
        context=first.layout.context,
        rank_order=first.layout.rank_order,
        recompute=first.training.recompute,
        attention=first.training.attention,
        precision=first.training.precision,
        dropout=first.training.dropout,
    )


def _recomputed(point: Point) -> list[float]:
    """Layers of each stage that run again backward."""
    asked, stages = point.training.recompute_layers, point.layout.p * (point.layout.v or 1)
    if isinstance(asked, tuple):
        return [float(layers) for layers in asked]
    return [math.inf if asked is None else float(asked)] * stages


def _seq_length(point: Point) -> int:
    return point.training.seq_length or point.model.context


@lru_cache(maxsize=64)
def _places(schedule: Schedule) -> _Places:
    rank_of, needs = schedule.rank_of(), dependencies(schedule).remote
    forwards = schedule.op == Op.F
    holds = np.zeros((schedule.p, schedule.stages))
    holds[rank_of[forwards], schedule.stage[forwards]] = 1
    travels = np.flatnonzero((needs >= 0) & (rank_of[needs] != rank_of))
    return _Places(
        holds=holds,
        sends=np.bincount(rank_of[needs[travels]], minlength=schedule.p).astype(np.int64),
        peak_inflight=tuple(int(peak) for peak in peak_held(schedule, np.ones(schedule.stages))),
    )


def _on_ranks(per_stage: FloatArray, places: _Places) -> FloatArray:
    """(points, stages) summed over what each rank holds: (points, p). No matrix product: its last bit depends on size."""
    return np.asarray((per_stage[:, None, :] * places.holds).sum(axis=2))


def _seconds(prices: Prices, schedule: Schedule, places: _Places, m: int, barrier: bool) -> tuple[Columns, Columns]:
    """Time items, and the figures of the simulated timeline.

    What computes or talks on the way is the mean over ranks; the slowest rank's excess is imbalance, its idle time
    bubble, and what handing results on adds is exposed pipeline communication. Without a barrier a step takes as long
    as the period of steps that follow each other, with the bubble that is left then.
    """
    ops = [np.asarray(sum(items.values())) for items in prices.seconds]
    hops = [op - items["hop"] if "hop" in items else op for op, items in zip(ops, prices.seconds, strict=True)]
    free, real, whole = [], [], []
    for point, hop_s in enumerate(prices.hop_s):
        real.append(_simulated(schedule, [op[point] for op in ops], hop_s))
        free.append(
            _simulated(schedule, [op[point] for op in hops], 0.0) if hop_s or "hop" in prices.seconds[0] else real[-1]
        )
        whole.append(
            [
                _step_s(schedule, each, [op[point] for op in some], hop, barrier)
                for each, some, hop in ((free[-1], hops, 0.0), (real[-1], ops, hop_s))
            ]
        )
    busy_s = np.array([each.busy_s for each in free])
    free_s, pipeline_s = np.array(whole).T
    items = {
        item: m * sum(np.asarray(op[item]) for op in prices.seconds if item in op).sum(axis=1) / schedule.p  # type: ignore[union-attr]
        if any(item in op for op in prices.seconds)
        else np.zeros(len(pipeline_s))
        for item in (*COMPUTE_ITEMS, *COMMUNICATION_ITEMS)
    }
    items |= {
        "imbalance": busy_s.max(axis=1) - busy_s.mean(axis=1),
        "bubble": np.maximum(free_s - busy_s.max(axis=1), 0.0),  # sums of one order and another differ in the last bit
        "pp_exposed": pipeline_s - free_s,
        "dp_exposed": _on_ranks(prices.dp_s, places).max(axis=1),
        "optimizer": _on_ranks(prices.optimizer_s, places).max(axis=1),
        "fixed": np.full(len(pipeline_s), prices.step_s),
    }
    return items, {
        "makespan_s": np.array([each.makespan_s for each in real]),
        "imbalance": busy_s.max(axis=1) / busy_s.mean(axis=1),
        "efficiency_bound": busy_s.mean(axis=1) / busy_s.max(axis=1),
        "bubble_fraction": np.array([each.bubble_fraction for each in real]),
        "bubble_overhead": np.array([each.bubble_overhead for each in real]),
        "stage_forward_s": list(ops[0]),
        "stage_input_grad_s": list(ops[1]),
        "stage_weight_grad_s": list(ops[2]),
    }


def _step_s(
    schedule: Schedule, timeline: Timeline, stage_s: Sequence[FloatArray], hop_s: float, barrier: bool
) -> float:
    """What the pipeline adds to a step."""
    if barrier:
        return timeline.makespan_s
    forward_s, input_grad_s, weight_grad_s = (op / schedule.segments for op in stage_s)
    return steady_period_s(schedule, forward_s, input_grad_s, weight_grad_s, hop_s / schedule.segments)


def _waiting_for_vocab(point: Point) -> float:
    """Micro-batches more that each rank holds while the head, spread over all ranks, finishes with them.

    Source: Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024, sections 4 and 5.
    """
    extra = {"none": 0.0, "algorithm_1": 2.0, "algorithm_2": 1.0, "interlaced": point.layout.p / 2}
    return min(extra[point.layout.spread_vocab], micro_batches(point))


def _memory(prices: Prices, schedule: Schedule, places: _Places, waiting: float) -> tuple[Columns, Columns]:
    """Memory items of the heaviest rank, and the totals of all ranks."""
    working = np.stack([(prices.working_bytes * row).max(axis=1) for row in places.holds], axis=1)
    items = {
        "weights": _on_ranks(prices.weights_bytes, places),
        "gradients": _on_ranks(prices.gradients_bytes, places),
        "optimizer": _on_ranks(prices.optimizer_bytes, places),
        "activation": peak_held(schedule, prices.kept_bytes / schedule.segments)
        + waiting * _on_ranks(prices.kept_bytes, places)
        + working,
        "logits": _on_ranks(prices.logits_bytes, places),
        "buffers": _on_ranks(prices.buffer_bytes, places),
    }
    items["slack"] = prices.slack * sum(items.values())
    items["context"] = np.full(working.shape, prices.context_bytes)
    total = sum(items.values())
    heaviest = np.argmax(total, axis=1)
    every = np.arange(len(heaviest))
    on_heaviest = {item: held[every, heaviest] for item, held in items.items()}
    return on_heaviest, {
        "heaviest_rank": heaviest,
        "rank_memory_bytes": list(np.asarray(total)),
        "params_per_gpu": _on_ranks(prices.parameters, places)[every, heaviest],
    }


def _throughput(points: Sequence[Point], prices: Prices, step_s: Any, tokens: FloatArray) -> Columns:
    """MFU counts model FLOPs, HFU also those of recomputation, both over peak dense FLOP/s of the GPUs used; which FLOPs
    count says ``costs.flops``.
    """
    gpus = np.array([_gpus(point) for point in points], np.float64)
    peak = points[0].cluster.peak_flops_per_s[points[0].training.precision]
    per_gpu = tokens / step_s / gpus
    return {
        "flop_convention": [points[0].costs.convention] * len(points),
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
