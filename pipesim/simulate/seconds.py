"""Seconds of every action, checked: one number, one per stage, or one per stage and micro-batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import Op, Schedule
from pipesim.simulate.kernel import FloatArray, Times


def times_of(
    schedule: Schedule,
    forward_s: ArrayLike,
    input_grad_s: ArrayLike,
    weight_grad_s: ArrayLike,
    pair_s: ArrayLike | None,
) -> Times:
    """The kernel's tables; a whole backward takes input + weight gradient, a pair without ``pair_s`` its two's sum."""
    given = {
        Op.F: ("forward_s", forward_s),
        Op.I: ("input_grad_s", input_grad_s),
        Op.W: ("weight_grad_s", weight_grad_s),
    }
    tables = {op: _per_stage(name, seconds, schedule.stages, schedule.m) for op, (name, seconds) in given.items()}
    depth = max(table.shape[1] for table in tables.values())
    seconds = np.empty((len(Op), schedule.stages, depth))
    for op, table in tables.items():
        seconds[op] = table
    seconds[Op.B] = seconds[Op.I] + seconds[Op.W]
    return Times(seconds.reshape(len(Op) * schedule.stages, depth), _pairs(pair_s, schedule.stages))


def _per_stage(name: str, seconds: ArrayLike, stages: int, m: int) -> FloatArray:
    """Shape (1 or stages, 1 or m)."""
    values = np.asarray(seconds, np.float64)
    if values.shape not in ((), (stages,), (1, m), (stages, m)):
        raise ValueError(
            f"{name} has shape {values.shape}; give one number, one for each of {stages} stages, "
            f"or stages x micro-batches, here {stages} x {m} or 1 x {m}."
        )
    _check(name, values)
    return values if values.ndim == 2 else values.reshape(-1, 1)


def _pairs(pair_s: ArrayLike | None, stages: int) -> FloatArray:
    """Shape (1, 1) or (stages, stages): stage of the pair's first action by stage of its second; NaN is the sum."""
    if pair_s is None:
        return np.full((1, 1), np.nan)
    values = np.asarray(pair_s, np.float64)
    if values.shape not in ((), (stages,), (stages, stages)):
        raise ValueError(
            f"pair_s has shape {values.shape}; give one number, one for each of {stages} stages (of the pair's first "
            f"action), or {stages} x {stages} (stage of its first by stage of its second)."
        )
    _check("pair_s", values)
    if values.ndim == 0:
        return values.reshape(1, 1)
    return np.ascontiguousarray(np.broadcast_to(values if values.ndim == 2 else values[:, None], (stages, stages)))


def _check(name: str, values: FloatArray) -> None:
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        raise ValueError(f"{name}={wrong.flat[0]} must be finite and at least 0. Nearest: 0.")
