"""Seq1F1B: 1F1B over segments of each sequence; forwards in order, backwards from the last segment to the first.

Source: Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training",
NAACL 2025, section 3.2. A segment attends to those before it, so its gradient waits for those after it; all of them
pass the same rank, whose order keeps this (``Schedule.segments`` tells ``rules.validate`` to see to it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Order, Phases, from_phases


def seq1f1b(p: int, m: int, segments: int = 2) -> Schedule:
    """One stage per rank; the schedule's micro-batches are segments: number ``segments * micro-batch + segment``.

    >>> print(seq1f1b(p=2, m=2, segments=2))
    rank 0 | 0F0 0F1 0F2 0B1 0F3 0B0 0B3 0B2
    rank 1 | 1F0 1F1 1B1 1F2 1B0 1F3 1B3 1B2
    """
    units = m * segments
    each = np.arange(units)
    last_first = each // segments * segments + (segments - 1 - each % segments)
    both = np.zeros((2, units, 2), np.int64)
    both[:, :, 1] = each, last_first

    def phases(rank: int) -> Phases:
        warmup = min(p - 1 - rank + segments - 1, units)
        return [(warmup, "F"), (units - warmup, "F B"), (warmup, "B")]

    schedule = from_phases("seq1f1b", units, [((rank,), phases(rank)) for rank in range(p)], order=Order(*both))
    return replace(schedule, segments=segments)


def broken_rules(p: int, m: int, segments: int = 2) -> Iterator[str]:
    if not isinstance(segments, int) or segments < 1:
        yield f"schedule.segments={segments!r} must be a whole number of at least 1. Nearest: segments=1."


def peak_inflight(p: int, m: int, segments: int = 2) -> IntArray:
    """Rank r holds min(p - r + segments - 1, segments m) activations of one segment each."""
    return np.minimum(p - np.arange(p) + segments - 1, m * segments)
