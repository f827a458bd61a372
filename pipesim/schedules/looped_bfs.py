"""Looped breadth-first: every micro-batch passes a rank's stage before the rank turns to its next stage.

Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023, section 4.1. Backwards run in reverse order, as
PyTorch's ``ScheduleLoopedBFS`` has it.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Order, from_phases


def looped_bfs(p: int, m: int, v: int) -> Schedule:
    """Rank r has the v stages r, r + p, r + 2p …

    >>> print(looped_bfs(p=2, m=2, v=2))
    rank 0 | 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0
    rank 1 | 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0
    """
    forward = np.stack([np.repeat(np.arange(v), m), np.tile(np.arange(m), v)], axis=1)
    phases = [(v * m, "F"), (v * m, "B")]
    ranks = [(range(rank, p * v, p), phases) for rank in range(p)]
    return from_phases("looped_bfs", m, ranks, order=Order(forward, forward[::-1].copy()))


def peak_inflight(p: int, m: int, v: int) -> IntArray:
    """Every rank holds all v m activations of its stages."""
    return np.full(p, v * m)
