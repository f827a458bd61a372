"""Naive model parallelism: one micro-batch at a time passes all stages forward, then all stages backward.

Source: the uncut baseline of Huang et al., "GPipe", NeurIPS 2019, figure 2b.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import from_phases


def naive(p: int, m: int) -> Schedule:
    """One stage per rank, and one rank works at any moment.

    >>> print(naive(p=2, m=2))
    rank 0 | 0F0 0B0 0F1 0B1
    rank 1 | 1F0 1B0 1F1 1B1
    """
    return from_phases("naive", m, [((rank,), [(m, "F0 B0")]) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Every rank holds one activation at a time."""
    return np.full(p, 1)
