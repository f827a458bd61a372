"""Hanayo: w waves; each micro-batch runs down and up the ranks w times, and the bubble shrinks with every wave.

Source: Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency",
SC 2023, section 3. The paper runs one group of p micro-batches; longer runs keep at most p in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.greedy import costs, list_schedule


def hanayo(p: int, m: int, v: int) -> Schedule:
    """Rank r has the stages r, 2p - 1 - r, 2p + r, 4p - 1 - r …, two per wave.

    Each rank runs what is most urgent: backwards before forwards and deep forwards before shallow ones; or by when it
    would be due if each micro-batch met no other and they entered 2, 3, 4 or v slots apart. The shortest of these.

    >>> print(hanayo(p=2, m=2, v=2))
    rank 0 | 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
    rank 1 | 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1
    """
    chunk = np.arange(v)
    stages = np.array([chunk * p + np.where(chunk % 2, p - 1 - rank, rank) for rank in range(p)])
    cap = np.tile(v * min(p, m) - v + 1 + chunk, (p, 1))
    stage = np.arange(p * v)
    backward_first = np.stack([-stage, np.full(p * v, -4 * p * v * m)])
    as_if_alone = np.stack([stage, 3 * p * v - 2 * stage])
    rules = [(backward_first, 0), *((as_if_alone, interval) for interval in sorted({2, 3, 4, v}))]
    orders = [
        list_schedule("hanayo", m, stages, due, interval, cap, costs(p * v), whole=True) for due, interval in rules
    ]
    return min(orders, key=lambda found: found.makespan_s).schedule


def broken_rules(p: int, m: int, v: int) -> Iterator[str]:
    if v % 2:
        near = f"v={v + 1}" if v == 1 else f"v={v - 1} or v={v + 1}"
        yield f"parallel.v={v}: schedule.name=hanayo has two stages per rank and wave; v must be even. Nearest: {near}."


def peak_inflight(p: int, m: int, v: int) -> IntArray:
    """At most v min(p, m) activations of a v-th of a rank each: p whole micro-batches."""
    return np.full(p, v * min(p, m))
