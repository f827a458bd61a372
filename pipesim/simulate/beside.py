"""A simulated timeline beside measured ones of the same schedule: makespans, bubbles, and idle time by cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipesim.simulate.causes import Cause, idle
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.timeline import Timeline


class IdleLine(NamedTuple):
    """Seconds for which a rank is idle for one cause."""

    rank: int
    cause: Cause
    simulated_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """``measured`` has one timeline for each repeat, at least one."""

    simulated: Timeline
    measured: tuple[Timeline, ...]

    def __post_init__(self) -> None:
        assert self.measured, "nothing was measured"
        assert all(each.schedule == self.simulated.schedule for each in self.measured), "they are of another schedule"

    @property
    def makespans_s(self) -> FloatArray:
        """Measured, shape (repeats,)."""
        return np.array([each.makespan_s for each in self.measured])

    @property
    def errors(self) -> FloatArray:
        """Of the simulated makespan, relative to each measured one; below 0 it is too short. Shape (repeats,)."""
        return self.simulated.makespan_s / self.makespans_s - 1

    @property
    def typical(self) -> Timeline:
        """The measured run of the median makespan; of an even number of runs the faster of the two in the middle."""
        order = np.argsort(self.makespans_s, kind="stable")
        return self.measured[int(order[(len(order) - 1) // 2])]

    def idle(self) -> list[IdleLine]:
        """By rank and cause, simulated and in the typical run, where either is above 0."""
        simulated_s, measured_s = (idle(each).by_rank_and_cause() for each in (self.simulated, self.typical))
        return [
            IdleLine(rank, cause, float(simulated_s[rank, cause]), float(measured_s[rank, cause]))
            for rank in range(self.simulated.schedule.p)
            for cause in Cause
            if max(simulated_s[rank, cause], measured_s[rank, cause]) > 0
        ]
