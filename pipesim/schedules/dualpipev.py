"""DualPipeV: DualPipe cut in half and folded to a V, so that no stage lies on two ranks.

Source: DeepSeek-AI, "DualPipe", 2025 (after Sea AI Lab's cut-in-half); PyTorch's ``ScheduleDualPipeV`` is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.dualpipe import eight_phases
from pipesim.schedules.phases import from_phases


def dualpipev(p: int, m: int) -> Schedule:
    """Rank r has the stages r and 2p - 1 - r.

    >>> print(dualpipev(p=1, m=3))
    rank 0 | 0F0 1F0 0F1 1B0 (1F1;0B0)OVERLAP_F_B (0F2;1B1)OVERLAP_F_B (1F2;0B1)OVERLAP_F_B 1B2 0I2 0W2
    """
    n = max(m, 2 * p)
    ranks = [((rank, 2 * p - 1 - rank), eight_phases(p, rank, n)) for rank in range(p)]
    return from_phases("dualpipev", m, ranks)


def unwise(p: int, m: int) -> Iterator[str]:
    if m < 2 * p:
        yield (
            f"num_microbatches={m} with parallel.p={p}: schedule.name=dualpipev is made for at least 2p; fewer run, "
            f"with a longer bubble. Nearest: num_microbatches={2 * p}."
        )


def peak_inflight(p: int, m: int) -> IntArray:
    """A rank holds at most min(2 p + 1, 2 m) activations of half a rank each."""
    return np.full(p, min(2 * p + 1, 2 * m))
