"""V-Min: the V with the least memory, about a third of 1F1B's, for a bubble that grows with the ranks.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, section 4.2 and appendix (building
blocks).
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.building_block import repeat_block


def v_min(p: int, m: int) -> Schedule:
    """Rank r has the stages r and 2p - 1 - r.

    >>> print(v_min(p=2, m=2))
    rank 0 | 0F0 3F0 3I0 3W0 0F1 0I0 0W0 3F1 3I1 3W1 0I1 0W1
    rank 1 | 1F0 2F0 2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 2W1 1W1
    """
    return repeat_block("v_min", m, block(p))


def block(p: int) -> IntArray:
    """Forwards and backwards follow one another without a pause, but two slots at the turn if 3 divides p."""
    rank = np.arange(p)
    turn = 2 * p + (2 if p % 3 == 0 else 0)
    return np.array([rank, 2 * p - 1 - rank, turn + rank, turn + 2 * p - 1 - rank])


def peak_inflight(p: int, m: int) -> IntArray:
    """At most 2 (⌊(p + 1) / 3⌋ + 1) activations of half a rank each."""
    return np.full(p, min(2 * ((p + 1) // 3 + 1), 2 * m))
