"""Eager 1F1B: 1F1B with about twice the warm-up, so that transfers hide behind computing.

Source: Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023, section 4 (eager-1F1B).
Without communication time it is as long as 1F1B and only holds more.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Phases, from_phases


def eager_1f1b(p: int, m: int) -> Schedule:
    """One stage per rank.

    >>> print(eager_1f1b(p=3, m=4))
    rank 0 | 0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3
    rank 1 | 1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3
    rank 2 | 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
    """

    def phases(rank: int) -> Phases:
        warmup = min(2 * (p - rank) - 1, m)
        return [(warmup, "F0"), (m - warmup, "B0 F0"), (warmup, "B0")]

    return from_phases("eager_1f1b", m, [((rank,), phases(rank)) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Rank r holds min(2 (p - r) - 1, m) activations."""
    return np.minimum(2 * (p - np.arange(p)) - 1, m)
