"""Interleaved zero bubble: interleaved 1F1B with half its warm-up, and weight gradients in the place of the bubbles.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.3, for v stages per rank as PyTorch's
``ScheduleInterleavedZeroBubble`` has it.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.interleaved_1f1b import group_sizes, in_groups
from pipesim.schedules.phases import Phases, from_phases


def interleaved_zb(p: int, m: int, v: int) -> Schedule:
    """Rank r has the v stages r, r + p, r + 2p … and lets r input gradients pass before it starts on the weights.

    >>> print(interleaved_zb(p=2, m=2, v=2))
    rank 0 | 0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
    rank 1 | 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
    """

    def phases(rank: int) -> Phases:
        warmup = int(_warmup(p, m, v)[rank])
        steady = m * v - warmup
        delay = min(rank, steady)
        return [
            (warmup, "F"),
            (delay, "F I"),
            (steady - delay, "F I W"),
            (warmup, "I W"),
            (delay, "W"),
        ]

    ranks = [(range(rank, p * v, p), phases(rank)) for rank in range(p)]
    return from_phases("interleaved_zb", m, ranks, order=in_groups(v, group_sizes(p, m, None)))


def peak_inflight(p: int, m: int, v: int) -> IntArray:
    """Every rank holds min(v m, (v - 1) group + p) activations."""
    return (_warmup(p, m, v) + 1 + np.arange(p)).clip(max=m * v)


def _warmup(p: int, m: int, v: int) -> IntArray:
    return np.minimum(p - 1 - np.arange(p) + (v - 1) * int(group_sizes(p, m, None)[0]), m * v)
