"""ZB-V: two stages per rank, down and up again in a V, as little idle as ZB-2p with the memory of 1F1B.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 6, with the phases of PyTorch's
``ScheduleZBVZeroBubble``. These are made for 2p - 1 micro-batches or more. Below 4p/3 a greedy order within the memory
that the phases would take is shorter.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.greedy import costs, list_schedule
from pipesim.schedules.phases import Phases, from_phases


def zbv(p: int, m: int) -> Schedule:
    """Rank r has the stages r and 2p - 1 - r; the last rank turns the V, the first has the loss.

    >>> print(zbv(p=2, m=3))
    rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
    rank 1 | 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
    """
    stages = np.array([(rank, 2 * p - 1 - rank) for rank in range(p)])
    if 3 * m < 4 * p:
        cap = peak_inflight(p, m)[:, None] - np.array([1, 0])
        due = np.stack([np.arange(2 * p), 4 * p - np.arange(2 * p)])
        return list_schedule("zbv", m, stages, due, 2, cap, costs(2 * p)).schedule

    n = max(m, 2 * p - 1)

    def phases(rank: int) -> Phases:
        return [
            (2 * (p - rank) - 1, "F0"),
            (rank, "F1 F0"),
            (p - rank, "F1 I1 W1"),
            (n - (2 * p - 1 - rank), "F0 I0 W0 F1 I1 W1"),
            (p - 1 - rank, "I0 W0 F1 I1 W1"),
            (rank, "I0 I1"),
            (p - rank, "I0 W0"),
            (rank, "W1"),
            (rank, "W0"),
        ]

    return from_phases("zbv", m, [(own.tolist(), phases(rank)) for rank, own in enumerate(stages)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Every rank holds at most min(2 p, 2 m) activations of half a rank each; fewer if m < 2p - 1."""
    return np.minimum(2 * p, np.minimum(2 * m, m + 1 + np.arange(p)))
