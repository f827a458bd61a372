"""GPipe: all forwards, then all backwards.

Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019,
section 2.3. Backwards run in the order of the forwards, as PyTorch's ``ScheduleGPipe`` has it.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import from_phases


def gpipe(p: int, m: int) -> Schedule:
    """One stage per rank.

    >>> print(gpipe(p=2, m=3))
    rank 0 | 0F0 0F1 0F2 0B0 0B1 0B2
    rank 1 | 1F0 1F1 1F2 1B0 1B1 1B2
    """
    return from_phases("gpipe", m, [((rank,), [(m, "F0"), (m, "B0")]) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Every rank holds all m activations."""
    return np.full(p, m)
