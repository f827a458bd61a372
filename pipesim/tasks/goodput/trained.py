"""A whole training as plain data: its phases, and the machine that interrupts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.costs import goodput as costs
from pipesim.costs.columns import FloatArray
from pipesim.estimate import TIME_ITEMS
from pipesim.results.schema import Row
from pipesim.specs import Point
from pipesim.tasks.goodput.ramp import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What interrupts the work, in seconds; ``interval_s`` is of work between two checkpoints, null for the best one."""

    mtbf_s: float
    checkpoint_bytes: float
    bytes_per_s: float
    restart_s: float
    interval_s: float | None = None

    @property
    def checkpoint_s(self) -> float:
        return self.checkpoint_bytes / self.bytes_per_s

    def interval(self) -> float:
        return self.interval_s or float(costs.best_interval_s(self.checkpoint_s, self.mtbf_s))

    def times_s(self, useful_s: float) -> dict[str, float]:
        found = costs.times_s(useful_s, self.interval(), self.checkpoint_s, self.mtbf_s, self.restart_s)
        return {name: float(seconds) for name, seconds in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Everything the report tells. ``critical`` are critical batches in tokens at the end of each phase."""

    asked: Mapping[str, Any]
    point: Point
    phases: Sequence[Phase]
    rows: Sequence[Row]
    """Of each phase."""
    machine: Machine
    changed: Sequence[tuple[str, Machine]]
    critical: FloatArray

    @property
    def tokens(self) -> int:
        return self.phases[-1].end * self.seq_length

    @property
    def seq_length(self) -> int:
        return int(self.rows[-1]["seq_length"])

    def useful_s(self, column: str = "step_time_s") -> float:
        """All steps; nan where a row has no interval."""
        each = [np.nan if row[column] is None else row[column] for row in self.rows]
        return float(np.dot([phase.steps for phase in self.phases], each))

    def items_s(self) -> dict[str, float]:
        """The useful seconds by item of a step."""
        return {item: self.useful_s(f"{item}_s") for item in TIME_ITEMS}
