"""From points to estimates: prices and a simulated schedule become seconds and bytes, item by item.

Points that share everything but their numbers are evaluated as arrays; one point is a batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.costs import full, lecture
from pipesim.costs.columns import FloatArray
from pipesim.costs.prices import Prices
from pipesim.estimate.details import details
from pipesim.estimate.held import MEMORY_ITEMS, memory
from pipesim.estimate.pipelines import Pipeline, pipeline, timed
from pipesim.estimate.points import Points, points_of, price_key
from pipesim.estimate.runs import runs
from pipesim.estimate.step import COMMUNICATION_ITEMS, COMPUTE_ITEMS, TIME_ITEMS, seconds
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


def evaluate(points: Sequence[Point], wanted: bool = True, rank: int | None = None) -> Batch:
    """The estimates of resolved points with one ``price_key``."""
    return evaluate_columns(points_of(points), wanted, rank)


def evaluate_columns(points: Points, wanted: bool = False, rank: int | None = None) -> Batch:
    """``wanted`` are details, which adds the columns that hold a list per point: what each rank holds, what each stage takes.
    Bytes are the heaviest rank's unless those of another ``rank`` of the pipeline are asked for.
    """
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
    return Batch(seconds=time, bytes=held, columns=columns)


def priced(points: Points) -> Prices:
    price = lecture.price if points.like.costs.kind == "lecture" else full.price
    return price(points.like, points.model, points.cut, points.stages)


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
    cut, training, of = points.cut, points.like.training, points.cell_of
    peak = points.like.cluster.peak_flops_per_s[training.precision]
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
