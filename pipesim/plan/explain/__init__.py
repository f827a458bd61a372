"""Why a layout takes as long as it does: what bounds it, shown by what a step would take without; what could be gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pipesim import headroom
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.launch import rules
from pipesim.plan.asked.space import Config
from pipesim.plan.explain import counterfactual, micro_batches, sensitivity
from pipesim.plan.explain.counterfactual import COSTS, TALK, Step
from pipesim.plan.explain.sensitivity import Neighbour
from pipesim.results.schema import Row
from pipesim.specs import Point


class Cost(NamedTuple):
    """One of ``counterfactual.COSTS``: its seconds of a step, and the step with half of it and without it."""

    name: str
    now_s: float
    halved_s: float
    own_s: float
    """What half of it saves, without what shorter stages save in bubble: the bubble has a line of its own."""
    gone_s: float | None
    """None of computing itself."""
    easing: Neighbour | None
    """A real change that fits and takes much off it, and makes the step shorter: see ``sensitivity.easing``."""


class Limits(NamedTuple):
    """Seconds of a step that no choice of one kind can go below, and what each is of."""

    order_s: float
    """Any order of the same stages on the same ranks."""
    equal_s: float
    """All stages alike, in the same order."""
    busy_s: float
    """No rank ever idle: any order and any partition at once."""
    recompute_s: float
    """Nothing computed twice, whatever that would hold."""
    overlap_s: float
    """Whatever can run behind computing does: collectives of t, gradients, sends."""
    host_s: float
    """Launches and the fixed cost of a step in no time."""
    talk_s: float
    """All communication in no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """``costs`` those first whose half would save most by itself; a cost of 0 is left out."""

    row: Row
    costs: tuple[Cost, ...]
    limits: Limits
    neighbours: tuple[Neighbour, ...]
    sizes: tuple[Row, ...]
    room: float
    """The share of memory that shall stay free."""
    framework: tuple[str, ...]
    """The rules of the stack's framework that the layout itself breaks; changes are told those that they break beyond."""

    @property
    def bound(self) -> str:
        """What bounds the step: memory if it does not fit, else the cost whose half would save most by itself."""
        return self.costs[0].name if self.row["fits"] else "memory"

    def cost(self, name: str) -> Cost | None:
        return next((each for each in self.costs if each.name == name), None)


def explained(config: Config, point: Point, row: Row) -> Explained:
    """Of a plain config, its resolved point, and its row with details."""
    found = sensitivity.neighbours(config, point, row)
    now = counterfactual.step(point, {})
    costs = [_cost(point, row, name, now, found) for name in COSTS if seconds_of(row, name) > 0]
    return Explained(
        row=row,
        costs=tuple(sorted(costs, key=lambda each: -each.own_s)),
        limits=_limits(point, row),
        neighbours=tuple(found),
        sizes=tuple(micro_batches.sizes(config, point)),
        room=headroom.of(config),
        framework=tuple(rules.problems(point)),
    )


def seconds_of(row: Row, name: str) -> float:
    """Of a step, for one of ``counterfactual.COSTS``."""
    return sum(float(row[f"{item}_s"]) for item in COSTS[name])


def _share(row: Row, name: str) -> float:
    """Seconds of a token; of the bubble, idle over total, which does not shrink with the work."""
    return float(row["bubble_fraction"]) if name == "bubble" else seconds_of(row, name) / _tokens(row)


def _tokens(row: Row) -> float:
    return float(row["global_batch"] * row["seq_length"])


def _cost(point: Point, row: Row, name: str, now: Step, found: Sequence[Neighbour]) -> Cost:
    half = counterfactual.step(point, {name: 0.5})
    shrunk_s = 0.0 if name == "bubble" else now.bubble_s - half.bubble_s
    return Cost(
        name=name,
        now_s=seconds_of(row, name),
        halved_s=half.total_s,
        own_s=now.total_s - half.total_s - shrunk_s,
        gone_s=None if name == "compute" else counterfactual.step(point, {name: 0.0}).total_s,
        easing=sensitivity.easing(found, lambda each: _share(each, name), row),
    )


def _limits(point: Point, row: Row) -> Limits:
    step_s = row["step_time_s"]
    tail_s = sum(row[f"{item}_s"] for item in ("dp_exposed", "optimizer", "fixed"))
    idle_s = sum(row[f"{item}_s"] for item in ("imbalance", "bubble", "pp_exposed"))
    hiding = replace(
        point.stack, tp_overlap=1.0, dp_overlap=1.0, gather_overlap=1.0, gather_interference=0.0, blocking_hops=False
    )
    limits = Limits(
        order_s=counterfactual.any_order_s(point) + tail_s,
        equal_s=counterfactual.step(point, {"imbalance": 0.0}).total_s,
        busy_s=step_s - idle_s,
        talk_s=counterfactual.step(point, dict.fromkeys(TALK, 0.0)).total_s,
        overlap_s=counterfactual.step(replace(point, stack=hiding), {}).total_s,
        recompute_s=counterfactual.step(point, {"recompute": 0.0}).total_s,
        host_s=counterfactual.step(point, {"host": 0.0, "fixed": 0.0}).total_s,
    )
    return Limits(*(min(each, step_s) for each in limits))


class Difference(NamedTuple):
    """``seconds`` and ``bytes`` hold (item, one, other) of every item that either has; both are of the same tokens."""

    seconds: tuple[tuple[str, float, float], ...]
    bytes: tuple[tuple[str, float, float], ...]
    tokens: float
    """What the other's step trains on, over the one's; its seconds are divided by it."""


def difference(row: Row, other: Row) -> Difference:
    """Of two priced rows, bytes of each one's heaviest rank."""
    tokens = _tokens(other) / _tokens(row)
    seconds = [(item, row[f"{item}_s"], other[f"{item}_s"] / tokens) for item in TIME_ITEMS]
    held = [(item, row[f"{item}_bytes"], other[f"{item}_bytes"]) for item in MEMORY_ITEMS]
    return Difference(_there(seconds), _there(held), tokens)


Lines = tuple[tuple[str, float, float], ...]


def _there(lines: Sequence[tuple[str, float, float]]) -> Lines:
    return tuple(line for line in lines if line[1] or line[2])
