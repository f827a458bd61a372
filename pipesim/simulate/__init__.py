"""Simulation of a schedule: from seconds per stage to a timeline."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import Op, Schedule
from pipesim.schedules.rules import Dependencies, dependencies
from pipesim.simulate import kernel
from pipesim.simulate.timeline import FloatArray, Timeline, peak_held

__all__ = ["Deadlock", "Timeline", "peak_held", "simulate"]


class Deadlock(ValueError):
    """An order in which ranks wait for each other for ever; the message names the cycle."""


def simulate(
    schedule: Schedule,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
) -> Timeline:
    """When everything runs, if every rank works through its list and starts each action as early as it can.

    Times are scalars or one per stage; a whole backward takes ``input_grad_s + weight_grad_s``, an overlapped pair the
    sum of its two. ``latency_s`` is added to every dependency between two ranks; sends overlap with computing.
    Raises ``Deadlock`` with the cycle of waiting actions and ``ValueError`` for times that are negative or not finite.
    """
    per_op_s = _seconds_per_op(schedule, forward_s, input_grad_s, weight_grad_s)
    if not (np.isfinite(latency_s) and latency_s >= 0):
        raise ValueError(f"latency_s={latency_s} must be a finite number of at least 0.")
    duration_s = per_op_s[schedule.op, schedule.stage]
    first_of_pair = np.flatnonzero(schedule.joined)
    duration_s[first_of_pair] += duration_s[first_of_pair + 1]

    needs = dependencies(schedule)
    start_s, end_s = np.full((2, len(schedule)), np.nan)
    ran = kernel.run(
        schedule.rank_start, needs.remote, needs.local, schedule.joined, schedule.rank_of(),
        duration_s, float(latency_s), start_s, end_s,
    )  # fmt: skip
    if ran.sum() < len(schedule):
        raise Deadlock(_describe_deadlock(schedule, needs, schedule.rank_start[:-1] + ran, end_s))
    return Timeline(schedule=schedule, start_s=start_s, end_s=end_s)


def _seconds_per_op(schedule: Schedule, forward_s: ArrayLike, input_s: ArrayLike, weight_s: ArrayLike) -> FloatArray:
    """Seconds of each op on each stage, shape (ops, stages)."""
    table = np.empty((len(Op), schedule.stages))
    for op, name, seconds in (
        (Op.F, "forward_s", forward_s),
        (Op.I, "input_grad_s", input_s),
        (Op.W, "weight_grad_s", weight_s),
    ):
        values = np.asarray(seconds, np.float64)
        if values.shape not in ((), (schedule.stages,)):
            raise ValueError(
                f"{name} has shape {values.shape}; give one number or one for each of {schedule.stages} stages."
            )
        if not np.all(np.isfinite(values) & (values >= 0)):
            raise ValueError(f"{name}={seconds} must be finite and at least 0.")
        table[op] = values
    table[Op.B] = table[Op.I] + table[Op.W]
    return table


def _describe_deadlock(schedule: Schedule, needs: Dependencies, stuck: np.ndarray, end_s: FloatArray) -> str:
    """``stuck`` is each rank's first action that never ran."""
    rank_of = schedule.rank_of()
    waits_for = np.full(schedule.p, -1)
    lines = {}
    for rank in range(schedule.p):
        first = int(stuck[rank])
        if first >= schedule.rank_start[rank + 1]:
            continue
        slot = (first, first + 1) if schedule.joined[first] else (first,)
        for i, needed in ((i, int(n)) for i in slot for n in (needs.remote[i], needs.local[i])):
            if needed >= 0 and np.isnan(end_s[needed]):
                waits_for[rank] = rank_of[needed]
                lines[rank] = (
                    f"rank {rank}: {schedule.action(i)} waits for {schedule.action(needed)} of rank {rank_of[needed]}"
                )
                break
    cycle = kernel.deadlock_cycle(waits_for)
    return "\n".join([f"{schedule.name} deadlocks:", *(lines[rank] for rank in cycle)])
