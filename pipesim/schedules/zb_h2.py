"""ZB-H2 (ZB-2p): twice the memory of 1F1B fills the warm-up, and no rank idles between its first and last action.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.3 and figure 3. Rank r ends r forwards later
than rank 0, so the gain shows in each rank's span and in back-to-back steps without a barrier, not in one makespan.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Phases, from_phases


def zb_h2(p: int, m: int) -> Schedule:
    """One stage per rank; rank r lets 2 r input gradients pass before it starts on the weights.

    >>> print(zb_h2(p=2, m=4))
    rank 0 | 0F0 0F1 0F2 0I0 0F3 0W0 0I1 0W1 0I2 0W2 0I3 0W3
    rank 1 | 1F0 1I0 1F1 1I1 1F2 1I2 1F3 1W0 1I3 1W1 1W2 1W3
    """

    def phases(rank: int) -> Phases:
        warmup = min(2 * (p - rank) - 1, m)
        delay = min(2 * rank, m - warmup)
        return [
            (warmup, "F0"),
            (delay, "I0 F0"),
            (m - warmup - delay, "I0 F0 W0"),
            (warmup, "I0 W0"),
            (delay, "W0"),
        ]

    return from_phases("zb_h2", m, [((rank,), phases(rank)) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Every rank holds min(2 p, m) activations."""
    return np.full(p, min(2 * p, m))
