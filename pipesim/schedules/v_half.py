"""V-Half: a V with half the memory of 1F1B and a bubble about as long as its half.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, section 4.2 and appendix (building
blocks).
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.building_block import repeat_block


def v_half(p: int, m: int) -> Schedule:
    """Rank r has the stages r and 2p - 1 - r.

    >>> print(v_half(p=2, m=2))
    rank 0 | 0F0 0F1 3F0 3I0 3W0 3F1 3I1 0I0 3W1 0I1 0W0 0W1
    rank 1 | 1F0 2F0 1F1 2F1 2I0 1I0 2W0 2I1 1I1 2W1 1W0 1W1
    """
    return repeat_block("v_half", m, block(p))


def block(p: int) -> IntArray:
    """Down the ranks every second slot, up every slot; three slots of pause at the turn if p is even."""
    rank = np.arange(p)
    turn = 3 * p - 1 + (3 if p % 2 == 0 else 0)
    return np.array([2 * rank, 3 * p - 2 - rank, turn + 2 * rank, turn + 3 * p - 1 - rank])


def peak_inflight(p: int, m: int) -> IntArray:
    """At most 2 (⌊p / 2⌋ + 1) activations of half a rank each."""
    return np.full(p, min(2 * (p // 2 + 1), 2 * m))
