"""Whether a run computed what the uncut model computes: every loss, gradient and weight, and the first that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipesim.execute import layout
from pipesim.execute.job import Job
from pipesim.execute.merge import Executed
from pipesim.execute.reference import Reference
from pipesim.schedules.action import Op, Schedule

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
"""Largest error relative to the largest element of a tensor."""


class Unequal(ValueError):
    """A run that computed something else; the message names the first parameter and its stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """``what`` is a loss, a gradient or a weight; ``parameter`` and ``stage`` are where (of a loss, its step)."""

    what: str
    parameter: str
    stage: int
    relative_error: float

    def __str__(self) -> str:
        if self.what == "loss":
            return f"the loss of {self.parameter} differs by {self.relative_error:.3g}"
        return f"the {self.what} of {self.parameter} (stage {self.stage}) differs by {self.relative_error:.3g}"


def differences(executed: Executed, wanted: Reference, job: Job, *, tolerance: float | None = None) -> list[Difference]:
    """All that differs by more than ``tolerance`` (None: that of the job's precision): gradients in the order of the
    model, then weights, then losses. Errors are relative to the largest element of the wanted tensor.
    """
    limit = TOLERANCE[job.dtype] if tolerance is None else tolerance
    return [each for each in errors(executed, wanted, job) if not each.relative_error <= limit]


def check_equal(executed: Executed, wanted: Reference, job: Job, *, tolerance: float | None = None) -> None:
    """Raises ``Unequal`` with the first parameter and stage that differ, and how many do."""
    limit = TOLERANCE[job.dtype] if tolerance is None else tolerance
    found = differences(executed, wanted, job, tolerance=limit)
    if found:
        raise Unequal(
            f"{job.schedule.name}: {found[0]}, at most {limit:g} is allowed. "
            f"{len(found)} of {len(errors(executed, wanted, job))} gradients, weights and losses differ."
        )


def errors(executed: Executed, wanted: Reference, job: Job) -> list[Difference]:
    """The error of everything, large or small."""
    return list(_errors(executed, wanted, job))


def _errors(executed: Executed, wanted: Reference, job: Job) -> Iterator[Difference]:
    stages = layout.stage_of_parameter(job)
    for what, found, right in (
        ("gradient", executed.gradients, wanted.gradients),
        ("weight", executed.weights, wanted.weights),
    ):
        for name, stage in stages.items():
            error = relative_error(found[name], right[name])
            yield Difference(what=what, parameter=name, stage=stage, relative_error=error)
    for step, (loss, right_loss) in enumerate(zip(executed.losses, wanted.losses, strict=True)):
        error = relative_error(*torch.tensor([loss, right_loss], dtype=torch.float64))
        yield Difference(what="loss", parameter=f"step {step}", stage=job.schedule.stages - 1, relative_error=error)


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference of two elements over the largest element wanted; 0 for equal bits, NaN if any is."""
    if torch.equal(found, wanted):
        return 0.0
    scale = wanted.abs().max().double()
    return float((found.double() - wanted.double()).abs().max() / scale)


def sums_alike(job: Job) -> bool:
    """Whether every sum is taken in the reference's order, so that each bit of the gradients must be the same.

    That is so if no stage is on two ranks, each runs its weight gradients from the first micro-batch to the last,
    sequences and layers are whole, no weights are tied, and there are at most two replicas (a + b = b + a).
    """
    schedule = job.schedule
    alone = all(len(ranks) == 1 for ranks in layout.holders(job).values())
    whole = job.t == 1 and schedule.segments == 1 and job.d <= 2
    return alone and whole and not job.model.tied and _in_order(schedule)


def _in_order(schedule: Schedule) -> bool:
    weighs = np.isin(schedule.op, (Op.B, Op.W))
    order = [schedule.micro_batch[weighs & (schedule.stage == stage)] for stage in range(schedule.stages)]
    return all(bool(np.all(np.diff(each) > 0)) for each in order)
