"""Evaluates asked configs as batches: every one becomes a row, whatever comes of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipesim import legality
from pipesim.calibrate import intervals
from pipesim.checks import Invalid
from pipesim.estimate import COMPUTE_ITEMS, MEMORY_ITEMS, TIME_ITEMS, Batch, evaluate, price_key
from pipesim.results.schema import Row
from pipesim.simulate import Deadlock
from pipesim.specs import Point

log = logging.getLogger(__name__)

_BOUNDS = {
    **dict.fromkeys((*COMPUTE_ITEMS, "optimizer"), "compute"),
    "tp": "tp", "cp": "cp", "ep": "ep", "imbalance": "imbalance", "bubble": "bubble",
    "pp_exposed": "pp", "dp_exposed": "dp", "fixed": "compute",
}  # fmt: skip


def rows(asked: Iterable[tuple[Row, Callable[[], Point]]]) -> list[Row]:
    """A row for each (what is known of it without evaluating, how to build it), in the same order."""
    done: list[Row] = []
    shapes: dict[tuple[object, ...], list[tuple[int, Point]]] = {}
    for index, (known, build) in enumerate(asked):
        done.append(dict(known))
        try:
            point = legality.resolve(build())
        except Invalid as error:
            done[index] |= {"status": "invalid", "reason": " ".join(error.problems)}
        else:
            shapes.setdefault(price_key(point), []).append((index, point))
    for members in shapes.values():
        points = [point for _, point in members]
        for (index, _), row in zip(members, _evaluated(points), strict=True):
            done[index] |= row
    return done


def _evaluated(points: Sequence[Point]) -> list[Row]:
    """A batch that fails is tried point by point, so that one bad point costs one row."""
    try:
        batch = evaluate(points)
        return [_row(point, batch, i) for i, point in enumerate(points)]
    except Deadlock as error:
        return [{"status": "invalid", "reason": str(error)} for _ in points]
    except Exception as error:
        if len(points) > 1:
            return [row for point in points for row in _evaluated([point])]
        log.exception("a point failed")
        return [{"status": "failed", "reason": f"{type(error).__name__}: {error}"}]


def _row(point: Point, batch: Batch, i: int) -> Row:
    seconds = {item: float(batch.seconds[item][i]) for item in TIME_ITEMS}
    held = {item: float(batch.bytes[item][i]) for item in MEMORY_ITEMS}
    memory, limit = sum(held.values()), point.cluster.memory_bytes
    row: Row = {name: _plain(values[i]) for name, values in batch.columns.items()}
    units = point.layout.partition
    assert not isinstance(units, str)
    return (
        row
        | _interval(point, sum(seconds.values()), memory)
        | {
            **{f"{item}_s": value for item, value in seconds.items()},
            **{f"{item}_bytes": value for item, value in held.items()},
            "status": "ok" if memory <= limit else "infeasible",
            "reason": None if memory <= limit else _shortfall(row["heaviest_rank"], memory, limit),
            "d": point.layout.d,
            "v": point.layout.v,
            "schedule_options": json.dumps(dict(point.options)) if point.options else None,
            "warning": " ".join(legality.warnings(point)) or None,
            "gpus": point.layout.t * point.layout.p * point.layout.c * (point.layout.d or 1),
            "stage_units": list(units),
            "model_state_bytes": held["weights"] + held["gradients"] + held["optimizer"],
            "memory_bytes": memory,
            "memory_limit_bytes": limit,
            "fits": memory <= limit,
            "step_time_s": sum(seconds.values()),
            "verdict": "memory" if memory > limit else _bound(seconds),
        }
    )


def _interval(point: Point, step_time_s: float, memory_bytes: float) -> Row:
    """How far both may be off, where validation supports an interval."""
    found = intervals.interval(point, step_time_s, memory_bytes)
    if found is None:
        return {}
    return {
        "step_time_lo_s": found.step_time_lo_s,
        "step_time_hi_s": found.step_time_hi_s,
        "memory_lo_bytes": found.memory_lo_bytes,
        "memory_hi_bytes": found.memory_hi_bytes,
        "extrapolates": found.note or None,
    }


def _shortfall(rank: int, memory: float, limit: float) -> str:
    return (
        f"does not fit: rank {rank} needs {memory / 1e9:.1f} GB, "
        f"{_gigabytes(memory - limit)} GB more than cluster.memory_gb={limit / 1e9:g}."
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f}" if size >= 1e8 else f"{size / 1e9:.2g}"


def _bound(seconds: Mapping[str, float]) -> str:
    """The largest share of the step; the first named wins a tie."""
    shares: dict[str, float] = {}
    for item, value in seconds.items():
        shares[_BOUNDS[item]] = shares.get(_BOUNDS[item], 0.0) + value
    return max(shares, key=lambda name: shares[name])


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
