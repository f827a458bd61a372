"""1F1B: warm up with forwards, alternate one forward with one backward, then drain.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021,
section 2.2 (there: PipeDream-Flush).
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Phases, from_phases


def one_f_one_b(p: int, m: int) -> Schedule:
    """One stage per rank.

    >>> print(one_f_one_b(p=3, m=4))
    rank 0 | 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3
    rank 1 | 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3
    rank 2 | 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
    """

    def phases(rank: int) -> Phases:
        warmup = min(p - 1 - rank, m)
        return [(warmup, "F0"), (m - warmup, "F0 B0"), (warmup, "B0")]

    return from_phases("1f1b", m, [((rank,), phases(rank)) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Rank r holds min(p - r, m) activations."""
    return np.minimum(p - np.arange(p), m)
