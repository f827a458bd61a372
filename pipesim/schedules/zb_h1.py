"""ZB-H1 (ZB-1p): 1F1B whose weight gradients wait, so that input gradients travel up early; no more memory than 1F1B.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.3 and figure 2.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Phases, from_phases


def zb_h1(p: int, m: int) -> Schedule:
    """One stage per rank; rank r lets r input gradients pass before it starts on the weights.

    >>> print(zb_h1(p=3, m=4))
    rank 0 | 0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
    rank 1 | 1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
    rank 2 | 2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
    """

    def phases(rank: int) -> Phases:
        warmup = min(p - 1 - rank, m)
        delay = min(rank, m - warmup)
        return [
            (warmup, "F0"),
            (delay, "F0 I0"),
            (m - warmup - delay, "F0 I0 W0"),
            (warmup, "I0 W0"),
            (delay, "W0"),
        ]

    return from_phases("zb_h1", m, [((rank,), phases(rank)) for rank in range(p)])


def peak_inflight(p: int, m: int) -> IntArray:
    """Every rank holds min(p, m) activations."""
    return np.full(p, min(p, m))
