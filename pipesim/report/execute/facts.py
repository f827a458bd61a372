"""What is told of a schedule that really ran: the facts of ``execute.page``, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pipesim.report.document import Cell, Kind
from pipesim.schedules.action import Schedule
from pipesim.simulate.beside import Beside

QUIET = 0.9
"""A rank that has a core for less than this share of its computing is disturbed. Chosen: an error of a tenth."""


class Fact(NamedTuple):
    """One thing that was asked for."""

    title: str
    kind: Kind
    value: Cell


class StageCost(NamedTuple):
    """Measured seconds of one micro-batch's share of a stage; None where no such action runs alone.

    ``pair_s`` is of the overlapped pairs whose first action is the stage's.
    """

    stage: int
    rank: int
    units: str
    forward_s: float | None
    backward_s: float | None
    input_grad_s: float | None
    weight_grad_s: float | None
    pair_s: float | None


class LinkCost(NamedTuple):
    """Measured seconds of one way between two ranks, for one number and for the largest message."""

    ranks: str
    empty_s: float
    full_s: float
    full_bytes: int


class Traffic(NamedTuple):
    """Bytes of a step from rank to rank: counted, and by formula."""

    source: int
    target: int
    counted_bytes: int
    expected_bytes: int


class Agreement(NamedTuple):
    """How far what came out is from what ``with_whom`` computed, relative to the largest element of each tensor.

    ``where`` names the parameter that differs most; of weights None where the other took no optimizer step.
    """

    with_whom: str
    gradient_error: float
    where: str
    weight_error: float | None
    loss_error: float
    tolerance: float

    @property
    def equal(self) -> bool:
        errors = (self.gradient_error, self.weight_error or 0.0, self.loss_error)
        return all(error <= self.tolerance for error in errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """``peaks`` are the most activations that each rank held: counted in memory, in any repeat.

    ``cores`` may be used; ``core_share`` is the share of its computing for which the worst placed rank really had one.
    """

    beside: Beside
    asked: tuple[Fact, ...]
    mode: str
    processes: int
    cores: int
    core_share: float
    peaks: tuple[int, ...]
    traffic: tuple[Traffic, ...]
    agreements: tuple[Agreement, ...]
    stage_costs: tuple[StageCost, ...]
    link_costs: tuple[LinkCost, ...]
    unlike_copies: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule:
        return self.beside.simulated.schedule

    @property
    def disturbed(self) -> bool:
        """Whether something else ran on the cores, so that times say little about the schedule."""
        return self.core_share < QUIET

    @property
    def simulated_peaks(self) -> tuple[int, ...]:
        return self.beside.simulated.peak_inflight
