"""1F1B-V: the V of V-Min with whole backwards, two thirds of the memory of 1F1B.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, section 4.3 and appendix (1F1B-V).
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.building_block import repeat_block


def one_f_one_b_v(p: int, m: int) -> Schedule:
    """Rank r has the stages r and 2p - 1 - r.

    >>> print(one_f_one_b_v(p=2, m=2))
    rank 0 | 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
    rank 1 | 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1
    """
    return repeat_block("1f1b_v", m, block(p), whole=True, level=True)


def block(p: int) -> IntArray:
    """Forwards in every slot; backwards, two slots each, with three slots of pause after every third of them."""
    rank = np.arange(p)
    hop = np.arange(2 * p)
    turn = 2 * p + (3 if p % 3 == 0 else 0)
    backward = turn + 2 * hop + 3 * ((hop + -(p + 2) % 3) // 3)
    return np.array([rank, 2 * p - 1 - rank, backward[:p], backward[: p - 1 : -1]])


def peak_inflight(p: int, m: int) -> IntArray:
    """At most 2 ⌈2 p / 3⌉ activations of half a rank each, and 2 more if p is a multiple of 3."""
    return np.full(p, min(2 * (-(-2 * p // 3) + (p % 3 == 0)), 2 * m))
