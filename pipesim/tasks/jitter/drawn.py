"""Steps of a layout drawn with chance: of all its replicas, of other schedules, and with a slow rank or node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipesim.checks import Invalid
from pipesim.costs.columns import FloatArray
from pipesim.estimate import timed
from pipesim.results.schema import Row
from pipesim.schedules.action import Schedule
from pipesim.simulate.jitter import WORK, Chance, makespans_s
from pipesim.specs import Point

FEWEST_SAMPLES = 100
"""Of fewer steps one in a hundred is not seen."""

MOST_DRAWS = 2_000_000_000
"""Of work, for one schedule: about a minute."""

MULTIPLES = (0.5, 2.0, 4.0)
"""Of the spread, because how large it is is not known."""

FEWEST_GROUPS = 100
"""Of so many replicas together, at least, for a figure of more replicas than asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A row, its schedule and the mean seconds of its actions; what of a step is no pipeline's is ``rest_s``."""

    row: Row
    schedule: Schedule
    times: Sequence[Any]
    samples: int
    seed: int

    @property
    def rest_s(self) -> float:
        """Of the whole step: data-parallel communication, optimizer, fixed cost."""
        return float(self.row["step_time_s"] - self.row["makespan_s"])

    def pipelines_s(self, chance: Chance, replica: int, slow: Any = 1.0, samples: int | None = None) -> FloatArray:
        """Makespans of one replica; ``chance`` is of a rank's whole work on a micro-batch in one direction.

        Cut into k pieces, each varies sqrt(k) times as much and stalls 1 / k as often: cutting alone evens nothing out.
        """
        pieces = self.schedule.stages * self.schedule.segments / self.schedule.p
        cut = replace(
            chance, spread=chance.spread * math.sqrt(pieces), stall_probability=chance.stall_probability / pieces
        )
        return makespans_s(
            self.schedule, *self.times, chance=cut, samples=samples or self.samples, seed=self.seed, replica=replica,
            slow=slow,
        )  # fmt: skip

    def replicas_s(self, chance: Chance) -> FloatArray:
        """Of every replica, shape (d, samples)."""
        return np.stack([self.pipelines_s(chance, replica) for replica in range(self.row["d"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A schedule's row, and its drawn steps with what they would take without chance; or why it cannot run."""

    name: str
    row: Row
    steps_s: FloatArray | None

    @property
    def problem(self) -> str:
        return "" if self.steps_s is not None else str(self.row["reason"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """What a step takes longer, as a share, if this rank of one replica is slow: without chance, and on average with it."""

    rank: int
    alone: float
    drawn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Jittered:
    """Everything the report tells. ``steps_s`` (samples,) are with what was asked to be slow, ``even_s`` without it."""

    layout: Layout
    chance: Chance
    slow: str
    slow_factor: float
    steps_s: FloatArray
    even_s: FloatArray
    replicas: tuple[tuple[int, FloatArray], ...]
    """Numbers of replicas, and steps of so many."""
    spreads: tuple[tuple[float, FloatArray], ...]
    schedules: tuple[Compared, ...]
    ranks: tuple[SlowRank, ...]


def drawn(
    layout: Layout, chance: Chance, asked: Mapping[str, Any], point: Point, others: Sequence[tuple[str, Row]]
) -> Jittered:
    even = layout.replicas_s(chance)
    slow, said = _slow(asked, point)
    pipelines = even.copy()
    for replica, factors in slow.items():
        pipelines[replica] = layout.pipelines_s(chance, replica, factors)
    even_s = even.max(axis=0) + layout.rest_s
    compared = [Compared(name=layout.row["schedule"], row=layout.row, steps_s=even_s)]
    for name, row in others:
        runs = row["status"] in ("ok", "infeasible")
        compared.append(Compared(name=name, row=row, steps_s=_steps_s(layout_of(row, asked), chance) if runs else None))
    spreads = [(k * chance.spread, _steps_s(layout, replace(chance, spread=k * chance.spread))) for k in MULTIPLES]
    spreads.insert(1, (chance.spread, even_s))
    return Jittered(
        layout=layout,
        chance=chance,
        slow=said,
        slow_factor=asked["slow_factor"],
        steps_s=pipelines.max(axis=0) + layout.rest_s,
        even_s=even_s,
        replicas=tuple(_by_replicas(even, layout.rest_s)),
        spreads=tuple(spreads) if chance.spread else (),
        schedules=tuple(compared),
        ranks=tuple(_slow_ranks(layout, chance, even, asked["slow_factor"])),
    )


def layout_of(row: Row, asked: Mapping[str, Any]) -> Layout:
    schedule, times = timed(row)
    layout = Layout(row=row, schedule=schedule, times=times, samples=asked["samples"], seed=asked["seed"])
    each = len(WORK) * schedule.stages * schedule.m * row["d"]
    if each * layout.samples > MOST_DRAWS:
        nearest = MOST_DRAWS // each
        can = f"Nearest: {nearest}." if nearest >= FEWEST_SAMPLES else "Nearest: fewer micro-batches or replicas."
        raise Invalid(
            [
                f"task.jitter.samples={layout.samples} steps of {row['schedule']} on d={row['d']} replicas are "
                f"{each * layout.samples:.1e} draws; at most {MOST_DRAWS:.0e} can be drawn. {can}"
            ]
        )
    return layout


def _steps_s(layout: Layout, chance: Chance) -> FloatArray:
    """A step ends with the last of its replicas."""
    return np.asarray(layout.replicas_s(chance).max(axis=0) + layout.rest_s)


def _by_replicas(pipelines: FloatArray, rest_s: float) -> Iterator[tuple[int, FloatArray]]:
    """Steps of 1, 2, 4, … replicas, d among them, which are the drawn steps: all replicas are drawn alike, so any of them
    make up a step.
    """
    d, drawn = len(pipelines), pipelines.T.ravel()
    powers = [2**k for k in range(64) if len(drawn) // 2**k >= FEWEST_GROUPS]
    for replicas in sorted({*(each for each in powers if each <= 8 * d), d}):
        groups = len(drawn) // replicas
        yield replicas, drawn[: groups * replicas].reshape(groups, replicas).max(axis=1) + rest_s


def _slow_ranks(layout: Layout, chance: Chance, even: FloatArray, factor: float) -> Iterator[SlowRank]:
    p = layout.schedule.p
    slow = 1 + (factor - 1) * np.eye(p)
    none = layout.pipelines_s(Chance(), 0, samples=1)[0]
    alone = layout.pipelines_s(Chance(), 0, slow, samples=p)
    others = even[1:].max(axis=0, initial=0.0)
    mean_s = even.max(axis=0).mean() + layout.rest_s
    for rank in range(p):
        steps_s = np.maximum(layout.pipelines_s(chance, 0, slow[rank]), others) + layout.rest_s
        yield SlowRank(
            rank=rank,
            alone=float((alone[rank] - none) / (none + layout.rest_s)),
            drawn=float(steps_s.mean() / mean_s - 1),
        )


def _slow(asked: Mapping[str, Any], point: Point) -> tuple[dict[int, FloatArray], str]:
    """Factors of the ranks (p,) of every replica that holds something slow, and what that is in words."""
    p, factor = point.layout.p, asked["slow_factor"]
    if asked["slow_rank"] is not None:
        factors = np.ones(p)
        factors[asked["slow_rank"]] = factor
        return {0: factors}, f"rank {asked['slow_rank']} of one replica {factor:g} times as slow"
    if asked["slow_node"] is None:
        return {}, ""
    found: dict[int, FloatArray] = {}
    for replica, rank in _on_node(point, asked["slow_node"]):
        found.setdefault(replica, np.ones(p))[rank] = factor
    return found, f"every GPU of node {asked['slow_node']} {factor:g} times as slow"


def _on_node(point: Point, node: int) -> list[tuple[int, int]]:
    """Replica and rank of every pipeline rank that has a GPU on a node; the slowest GPU holds up its whole group."""
    layout, each = point.layout, point.cluster.gpus_per_node
    assert layout.d is not None
    left = np.arange(node * each, min((node + 1) * each, used(point)))
    places = {}
    for axis in layout.rank_order:
        left, places[axis] = np.divmod(left, getattr(layout, axis))
    return sorted(set(zip(places["d"].tolist(), places["p"].tolist(), strict=True)))


def used(point: Point) -> int:
    layout = point.layout
    assert layout.d is not None
    return layout.t * layout.c * layout.d * layout.p
