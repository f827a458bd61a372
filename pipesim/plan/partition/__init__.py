"""The partition of units into stages that makes the step of one layout shortest and fits.

A dynamic program finds the cuts whose slowest rank is fastest, each rank within its memory; the simulated step decides
among them, and then moves single layers from stage to stage until no move helps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipesim import legality, schedules
from pipesim.costs.stage import balanced_partition
from pipesim.estimate import evaluate
from pipesim.plan.partition.bottleneck import least_worst
from pipesim.plan.partition.many import evaluated
from pipesim.plan.partition.moves import improved
from pipesim.plan.partition.rank_costs import Tables, part_layers, tables
from pipesim.specs import ClusterSpec, Point

Partition = tuple[int, ...]


class Split(NamedTuple):
    """Units and layers that run again of each stage, and what the estimate says of that: nothing else about the point is
    changed. ``recompute_layers`` is None where the training's own holds.
    """

    partition: Partition
    recompute_layers: Partition | None
    step_time_s: float
    memory_bytes: float
    """What the rank with least to spare holds, and may hold."""
    limit_bytes: float

    @property
    def fits(self) -> bool:
        return self.memory_bytes <= self.limit_bytes


def within(point: Point, room: float) -> Point:
    """The point on GPUs whose memory is smaller by the share ``room``, which so stays free."""

    def smaller(cluster: ClusterSpec) -> ClusterSpec:
        parts = tuple(dataclasses.replace(part, cluster=smaller(part.cluster)) for part in cluster.parts)
        return dataclasses.replace(cluster, memory_bytes=(1 - room) * cluster.memory_bytes, parts=parts)

    return dataclasses.replace(point, cluster=smaller(point.cluster))


def best(point: Point, recompute: bool = False) -> Split:
    """The best partition found, never worse than the balanced one or the point's own; every stage holds at least one unit.

    With ``recompute`` each rank runs no more layers again than it must to fit, which a training without recomputation
    cannot. Raises ``Invalid`` for a layout that breaks rules.
    """
    return compared(point, recompute)[0]


def compared(point: Point, recompute: bool = False) -> list[Split]:
    """The best, the balanced one, and the point's own where it is another."""
    point = legality.resolve(point)
    recompute = recompute and point.training.recompute != "none"
    known = _known(point)
    if point.costs.kind == "lecture":  # cuts the model into equal blocks
        return [split_of(point, known[0])] * 2
    found = [split_of(point, each, recompute) for each in (*known, *_candidates(point, known, recompute))]
    return [min(found, key=_order), *found[: len(known)]]


def split_of(point: Point, partition: Partition, recompute: bool = False) -> Split:
    """What the estimate says of one partition of a resolved point."""
    layout = dataclasses.replace(point.layout, partition=partition)
    at, again = dataclasses.replace(point, layout=layout), None
    if recompute:
        run_again = evaluated(_stand_in(point) or point, np.array([partition]), recompute=True).again
        assert run_again is not None
        again = tuple(run_again[0].tolist())
        at = dataclasses.replace(at, training=dataclasses.replace(at.training, recompute_layers=again))
    batch = evaluate([at], wanted=False)
    step_time_s, held = (float(np.asarray(sum(each.values()))[0]) for each in (batch.seconds, batch.bytes))
    limit = float(batch.columns.get("memory_limit_bytes", [point.cluster.memory_bytes])[0])
    return Split(partition, again, step_time_s, held, limit)


def _order(split: Split) -> tuple[float, float]:
    """What fits first, then what is faster; of rows that are equal but for rounding the one found first."""
    return max(0.0, split.memory_bytes - split.limit_bytes), split.step_time_s


def _known(point: Point) -> list[Partition]:
    layout = point.layout
    assert layout.v is not None
    assert not isinstance(layout.partition, str)
    ranks = schedules.ranks_of_stages(point.schedule, layout.p, layout.v, **dict(point.options))
    balanced = balanced_partition(point.model.units, layout.p * layout.v, ranks)
    return list(dict.fromkeys([balanced, layout.partition]))


def _stand_in(point: Point) -> Point | None:
    """The point as many of its partitions can be run at once: with a barrier, and with an order that times do not change.
    None where there is none.
    """
    training = dataclasses.replace(point.training, optimizer_barrier=True)
    point = dataclasses.replace(point, training=training)
    if point.schedule != "auto":
        return point
    name, m = "zb_h1" if point.layout.v == 1 else "interleaved_zb", legality.micro_batches(point)
    if schedules.problems(name, point.layout.p, m, point.layout.v):
        return None
    return dataclasses.replace(point, schedule=name, options=())


def _candidates(point: Point, known: list[Partition], recompute: bool) -> list[Partition]:
    """What the dynamic program finds, and where moves of single layers lead from the best of all."""
    like = _stand_in(point)
    if like is None or len(known[0]) == 1:
        return []
    table = tables(like, recompute)
    programmed = list(dict.fromkeys(_programmed(like, table)))
    starts = dict.fromkeys([*known, *programmed, *(each for at in programmed for each in _leaning(table, at))])
    found = improved(like, np.array(list(starts)), recompute)
    return found[:1] if like == point else [*programmed, *found]


def _programmed(point: Point, table: Tables) -> Iterator[Partition]:
    """The cuts with the fastest slowest rank and with the shortest way through it, of ranks that fit, the rest as even
    as can be; and the cut whose heaviest rank is lightest, which fits if any does.
    """
    too_much = table.held_bytes > point.cluster.memory_bytes
    for cost, then in (
        (np.where(too_much, np.inf, table.busy_s), table.busy_s**2),
        (np.where(too_much, np.inf, table.passed_s), table.passed_s**2),
        (table.held_bytes, table.busy_s**2),
    ):
        _, borders = least_worst(cost, then)
        if borders:
            yield _partition(point, table, borders)


def _leaning(table: Tables, partition: Partition) -> Iterator[Partition]:
    """The same of each rank, but its first stage larger than its others, or its last one."""
    for first in (0, -1):
        units = np.array(partition)
        for stages in table.stages:
            others = [stage for stage in stages if stage != stages[first]]
            given = units[others] // 2
            units[others] -= given
            units[stages[first]] += given.sum()
        yield tuple(units.tolist())


def _partition(point: Point, table: Tables, borders: tuple[int, ...]) -> Partition:
    stages = sum(map(len, table.stages))
    units = np.zeros(stages, np.int64)
    units[0] += 1
    units[-1] += 1
    for own, first, last in zip(table.stages, (0, *borders), borders, strict=False):
        units[list(own)] += part_layers(own, last - first, stages)
    return tuple(units.tolist())
