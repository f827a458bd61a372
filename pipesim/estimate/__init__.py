"""From points to estimates: prices and a simulated schedule become seconds and bytes, item by item.

Points that share everything but their numbers are evaluated as arrays; one point is a batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.costs.prices import Prices
from pipesim.estimate import mixed
from pipesim.estimate import points as points_
from pipesim.estimate.details import details
from pipesim.estimate.held import MEMORY_ITEMS, memory
from pipesim.estimate.pipelines import Pipeline, pipeline, timed
from pipesim.estimate.points import Points, points_of, price_key
from pipesim.estimate.runs import runs
from pipesim.estimate.step import COMMUNICATION_ITEMS, COMPUTE_ITEMS, TIME_ITEMS, seconds
from pipesim.schedules.action import IntArray
from pipesim.specs import Point

__all__ = [
    "COMMUNICATION_ITEMS", "COMPUTE_ITEMS", "MEMORY_ITEMS", "TIME_ITEMS", "Batch", "Pipeline", "Points", "evaluate",
    "evaluate_columns", "pipeline", "points_of", "price_key", "priced", "timed",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Estimates of points that share one ``price_key``. Arrays have one entry per point, lists one list per point."""

    seconds: dict[str, FloatArray]
    """By item of ``TIME_ITEMS``."""
    bytes: dict[str, FloatArray]
    """By item of ``MEMORY_ITEMS``, on the heaviest rank or the one asked for."""
    columns: dict[str, Any]
    """Everything else of a row, see ``results.schema``."""
    placed: dict[str, Any] = field(default_factory=dict)
    """On a cluster of several parts: ``limit_part`` is the part whose GPUs limit memory, ``unwise`` what is slow for no need."""


def evaluate(points: Sequence[Point], wanted: bool = True, rank: int | None = None) -> Batch:
    """The estimates of resolved points with one ``price_key``."""
    return evaluate_columns(points_of(points), wanted, rank)


def evaluate_columns(points: Points, wanted: bool = False, rank: int | None = None) -> Batch:
    """``wanted`` are details, which adds the columns that hold a list per point: what each rank holds, what each stage takes.
    Bytes are the heaviest rank's unless those of another ``rank`` of the pipeline are asked for.
    """
    if points.like.cluster.parts and points.shapes[0].place is None:
        replicas, asked = mixed.spread(points)
        return _of_the_slowest(evaluate_columns(replicas, wanted, rank), asked)
    prices = priced(points)
    time: dict[str, Any] = {}
    held: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for run in runs(points, prices):
        items, figures = seconds(points, prices, run, wanted)
        memory_items, totals = memory(points, prices, run, wanted, rank)
        if wanted:
            figures |= details(points, prices, run, items)
        for target, found in ((time, items), (held, memory_items), (columns, figures | totals)):
            _scatter(target, found, run.members, len(points))
    columns |= {"num_microbatches": points.num_microbatches, "model_params": prices.model_parameters[points.cell_of]}
    columns |= _throughput(points, prices, sum(time[item] for item in TIME_ITEMS))
    placed = (
        {"limit_part": columns.pop("limit_part"), "unwise": mixed.unwise(points)} if "limit_part" in columns else {}
    )
    return Batch(seconds=time, bytes=held, columns=columns, placed=placed)


def priced(points: Points) -> Prices:
    return points_.priced(points) if points.shapes[0].place is None else mixed.prices(points)


def _of_the_slowest(batch: Batch, asked: IntArray) -> Batch:
    """What holds for each asked point, of whose replicas the batch has all."""
    at = mixed.slowest(np.asarray(sum(batch.seconds[item] for item in TIME_ITEMS)), asked)

    def picked(columns: dict[str, Any]) -> dict[str, Any]:
        return {
            name: values[at] if isinstance(values, np.ndarray) else [values[i] for i in at]
            for name, values in columns.items()
        }

    return Batch(
        seconds=picked(batch.seconds),
        bytes=picked(batch.bytes),
        columns=picked(batch.columns),
        placed=picked(batch.placed),
    )


def _scatter(target: dict[str, Any], found: dict[str, Any], members: Any, n: int) -> None:
    for name, values in found.items():
        if isinstance(values, np.ndarray):
            if name not in target:
                target[name] = np.empty(n, values.dtype)
            target[name][members] = values
        else:
            each = target.setdefault(name, [None] * n)
            for index, value in zip(members, values, strict=True):
                each[index] = value


def _throughput(points: Points, prices: Prices, step_s: Any) -> dict[str, Any]:
    """MFU counts model FLOPs, HFU also those of recomputation, both over peak dense FLOP/s of the GPUs used; which FLOPs
    count says ``costs.flops``.
    """
    cut, of = points.cut, points.cell_of
    peak = points_.peak_flops_per_s(points)
    tokens = np.reshape(cut.micro_batch * cut.d * cut.seq_length, -1)
    tokens_per_s = tokens[of] * points.num_microbatches / step_s
    per_gpu = tokens_per_s / np.reshape(cut.gpus, -1)[of]
    model_flops, hardware_flops = prices.model_flops_per_token[of], prices.hardware_flops_per_token[of]
    return {
        "flop_convention": np.full(len(points), points.like.costs.convention, object),
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_gpu": per_gpu,
        "model_tflops_per_gpu": model_flops * per_gpu / 1e12,
        "mfu": model_flops * per_gpu / peak,
        "hfu": hardware_flops * per_gpu / peak,
    }
