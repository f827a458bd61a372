"""Many points at once: arrays of (p, m, v) and times in, arrays of figures out, without a Python loop over points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules import make_schedule
from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.simulate import lanes, programs
from pipesim.simulate.kernel import FloatArray


class Batch(NamedTuple):
    """One number per point, shape (n,)."""

    makespan_s: FloatArray
    span_s: FloatArray
    bubble_fraction: FloatArray


def simulate_many(
    name: str,
    *,
    p: ArrayLike,
    m: ArrayLike,
    v: ArrayLike,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: ArrayLike = 0.0,
) -> Batch:
    """``p``, ``m``, ``v`` and ``latency_s`` are numbers or shape (n,); times are those, or shape (n, stages).

    Rows of times may be longer than a point's p * v stages; what is beyond counts nothing. A schedule is made once for
    all points of the same p, m and v, and one compiled loop runs them. Equal to ``simulate`` to the last bit.
    """
    sizes = np.stack(np.broadcast_arrays(*(np.atleast_1d(size) for size in (p, m, v))), axis=1)
    tables = [np.asarray(seconds, np.float64) for seconds in (forward_s, input_grad_s, weight_grad_s)]
    n = max([len(sizes), np.size(latency_s), *(len(table) for table in tables if table.ndim)])
    latency = np.broadcast_to(np.asarray(latency_s, np.float64), (n,))
    columns = [np.broadcast_to(table[:, None] if table.ndim == 1 else table, (n, _width(table))) for table in tables]
    labels = ("forward_s", "input_grad_s", "weight_grad_s", "latency_s")
    for label, values in zip(labels, [*columns, latency], strict=True):
        _check(label, values)
    shapes, which = np.unique(np.broadcast_to(sizes, (n, 3)), axis=0, return_inverse=True)
    batch = Batch(*np.zeros((3, n)))
    for shape, points in zip(shapes.tolist(), _groups(which.ravel(), len(shapes)), strict=True):
        schedule = make_schedule(name, p=shape[0], m=shape[1], v=shape[2])
        found = _run(schedule, [column[points] for column in columns], latency[points])
        for of, values in zip(batch, found, strict=True):
            of[points] = values
    return batch


def _width(table: FloatArray) -> int:
    return table.shape[1] if table.ndim == 2 else 1


def _check(label: str, values: FloatArray) -> None:
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        raise ValueError(f"{label}={wrong.flat[0]} must be finite and at least 0. Nearest: 0.")


def _groups(which: IntArray, count: int) -> list[IntArray]:
    """The points of each shape."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.cumsum(np.bincount(which, minlength=count))[:-1])


def _run(schedule: Schedule, columns: list[FloatArray], latency_s: FloatArray) -> Batch:
    """All points of one schedule."""
    stages, n = schedule.stages, len(latency_s)
    seconds = np.empty((len(Op), stages, n))
    for op, column in zip((Op.F, Op.I, Op.W), columns, strict=True):
        if column.shape[1] not in (1, *range(stages, column.shape[1] + 1)):
            raise ValueError(f"{column.shape[1]} times are given for each point; {schedule.name} has {stages} stages.")
        seconds[op] = column[:, :stages].T
    seconds[Op.B] = seconds[Op.I] + seconds[Op.W]
    first_s, last_s = lanes.run(programs.compile_schedule(schedule), schedule.p, seconds, latency_s)
    used = np.diff(schedule.rank_start) > 0
    makespan_s = last_s[used].max(axis=0) - first_s[used].min(axis=0)
    work_s = (_counts(schedule)[:, None] * seconds.reshape(-1, n)).sum(axis=0)
    return Batch(makespan_s, (last_s - first_s).max(axis=0), 1 - work_s / (schedule.p * makespan_s))


def _counts(schedule: Schedule) -> IntArray:
    """How many actions of each kind there are, shape (ops * stages,)."""
    kinds = schedule.op.astype(np.int64) * schedule.stages + schedule.stage
    return np.bincount(kinds, minlength=len(Op) * schedule.stages)
