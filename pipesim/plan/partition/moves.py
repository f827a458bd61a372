"""Single layers move from stage to stage for as long as the simulated step gets shorter, or fits better."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import IntArray
from pipesim.plan.partition.many import evaluated
from pipesim.specs import Point

MOST_MOVES = 1024
"""So many moves of one layer are tried at once: with more than 32 stages only between stages that are near."""

MOST_PAIRED = 45
"""So many moves are tried two at once: about as many pairs as moves."""

MOST_STARTS = 6
"""So many partitions are starts, of few stages."""

LEAST_GAIN = 1e-9
"""Of the step; what is below is rounding."""


class Ranked(NamedTuple):
    """Partitions (n, stages), the best first; how many bytes its heaviest rank has too much, and seconds of its step."""

    partitions: IntArray
    too_much_bytes: float
    step_time_s: float

    def beats(self, other: Ranked) -> bool:
        if self.too_much_bytes != other.too_much_bytes:
            return self.too_much_bytes < other.too_much_bytes
        return self.step_time_s < other.step_time_s * (1 - LEAST_GAIN)


def improved(point: Point, starts: IntArray, recompute: bool) -> list[tuple[int, ...]]:
    """Where moves lead from the best of some partitions, the best first: from one of many stages, from more of few. On a
    cluster of several parts, where each costs more to try, from one, a layer at a time.
    """
    count = 1 if point.cluster.parts else min(MOST_STARTS, max(1, MOST_MOVES // (2 * starts.shape[1] ** 2)))
    best = ranked(point, starts, recompute).partitions[:count]
    found = dict.fromkeys(_improved(point, start, recompute) for start in best)
    return [tuple(each) for each in ranked(point, np.array(list(found)), recompute).partitions.tolist()]


def _improved(point: Point, start: IntArray, recompute: bool) -> tuple[int, ...]:
    """Always the move that helps most; where no single layer's does, two at once of those that harm least. Every stage
    keeps a unit.
    """
    now, moves = ranked(point, start[None], recompute), _moves(len(start))
    while True:
        at = now.partitions[0]
        tried = ranked(point, at + moves, recompute)
        if not tried.beats(now) and not point.cluster.parts:
            tried = ranked(point, _pairs(at, tried.partitions[:MOST_PAIRED]), recompute)
        if not tried.beats(now):
            return tuple(at.tolist())
        now = tried


def ranked(point: Point, partitions: IntArray, recompute: bool) -> Ranked:
    partitions = partitions[(partitions >= 1).all(axis=1)]
    if not len(partitions):
        return Ranked(partitions, np.inf, np.inf)
    found = evaluated(point, partitions, recompute)
    too_much = np.maximum(found.memory_bytes - found.limit_bytes, 0.0)
    order = np.lexsort((found.step_time_s, too_much))
    return Ranked(partitions[order], float(too_much[order[0]]), float(found.step_time_s[order[0]]))


def _moves(stages: int) -> IntArray:
    """One layer from each stage to each other that is near enough, shape (moves, stages)."""
    near = max(1, MOST_MOVES // (2 * stages))
    unit = np.eye(stages, dtype=np.int64)
    return np.array([unit[j] - unit[i] for i, j in itertools.permutations(range(stages), 2) if abs(i - j) <= near])


def _pairs(at: IntArray, moved: IntArray) -> IntArray:
    """Every two moves together, of partitions that are one move away."""
    pairs = [one + other - at for one, other in itertools.combinations(moved, 2)]
    return np.unique(np.array(pairs), axis=0) if pairs else moved[:0]
