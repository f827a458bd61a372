"""One measured run of one's own, resolved; and what a table of runs says before anything is fitted."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``row`` counts the table's rows from 1, its head left out; ``source`` is whose runs weigh together."""

    row: int
    id: str
    source: str
    point: Point
    step_time_s: float
    memory_bytes: float | None = None
    tflops_per_gpu: float | None = None

    @property
    def name(self) -> str:
        """How a message names it."""
        return f"row {self.row}" if self.id == str(self.row) else f"row {self.row} ({self.id})"

    @property
    def gpus(self) -> int:
        layout = self.point.layout
        return layout.t * layout.p * layout.c * (layout.d or 1)

    @property
    def seq_length(self) -> int:
        return self.point.training.seq_length or self.point.model.context

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.point.training.global_batch * self.seq_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What was read: usable runs, what to look at again, and what the table leaves to the config."""

    runs: tuple[Run, ...]
    warnings: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    date: str | None = None
    """The latest that the table itself names."""
