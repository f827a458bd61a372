"""Predictions for measured rows: the estimate of each, evaluated as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS, evaluate, price_key
from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Of several points, in their order; items have one entry a point."""

    step_time_s: FloatArray
    memory_bytes: FloatArray
    """Of the rank whose items ``bytes`` are."""
    most_bytes: FloatArray
    """Of the heaviest rank."""
    seconds: dict[str, FloatArray]
    bytes: dict[str, FloatArray]
    mean_flops_s: FloatArray
    """Seconds of the model's FLOPs at peak: what a constant-MFU formula scales."""


def groups(points: Sequence[Point]) -> list[list[int]]:
    """Which points are priced together; the same for all values of the constants."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, point in enumerate(points):
        found.setdefault(price_key(point), []).append(index)
    return list(found.values())


def predict(points: Sequence[Point], first_rank: Sequence[bool] = ()) -> Predicted:
    """The estimates of resolved points; memory is the heaviest rank's, or where ``first_rank`` says so the first one's."""
    seconds = {item: np.zeros(len(points)) for item in TIME_ITEMS}
    held = {item: np.zeros(len(points)) for item in MEMORY_ITEMS}
    mfu, most = np.ones(len(points)), np.zeros(len(points))
    for members, first in _ranked(groups(points), first_rank):
        batch = evaluate([points[i] for i in members], wanted=first, rank=0 if first else None)
        for item, values in batch.seconds.items():
            seconds[item][members] = values
        for item, values in batch.bytes.items():
            held[item][members] = values
        mfu[members] = batch.columns["mfu"]
        most[members] = (
            [each.max() for each in batch.columns["rank_memory_bytes"]] if first else sum(batch.bytes.values())
        )
    step_time_s = np.asarray(sum(seconds.values()))
    return Predicted(
        step_time_s=step_time_s,
        memory_bytes=np.asarray(sum(held.values())),
        most_bytes=most,
        seconds=seconds,
        bytes=held,
        mean_flops_s=mfu * step_time_s,
    )


def _ranked(found: Sequence[list[int]], first_rank: Sequence[bool]) -> Iterator[tuple[list[int], bool]]:
    """Every group, or its parts by which rank is asked for."""
    for members in found:
        for first in (False, True):
            if some := [i for i in members if bool(first_rank and first_rank[i]) == first]:
                yield some, first
