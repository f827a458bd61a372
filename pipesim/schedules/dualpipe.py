"""DualPipe: micro-batches enter at both ends, and a forward of one direction overlaps a backward of the other.

Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1, with the eight phases of their published
implementation. Every stage lies on two ranks: r and p - 1 - r.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Phases, from_phases


def dualpipe(p: int, m: int) -> Schedule:
    """Micro-batches 0 … ⌈m/2⌉ - 1 run down the ranks, the others up.

    >>> print(dualpipe(p=2, m=4))
    rank 0 | 0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1
    rank 1 | 0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3
    """
    half = (m + 1) // 2
    depth = [min(rank, p - 1 - rank) for rank in range(p)]
    ranks = [((d, p - 1 - d), eight_phases(p // 2, d, max(half, p))) for d in depth]
    down = np.array([0, half]), np.array([half, m])
    first, until = (np.array([edge if rank < p // 2 else edge[::-1] for rank in range(p)]) for edge in down)
    return from_phases("dualpipe", m, ranks, first=first, until=until)


def eight_phases(ranks: int, depth: int, n: int) -> Phases:
    """The rank's phases, ``depth`` below the end where its stage 0 gets its micro-batches, n in each direction."""
    to_middle, from_end = ranks - 1 - depth, depth + 1
    unlapped = from_end // 2
    main = n - 2 * ranks + depth + 1
    in_middle = int(to_middle == 0)
    return [
        (2 * to_middle, "F0"),
        (from_end, "F0 F1"),
        (to_middle, "I1 W F1"),
        (in_middle, "F0 B1 F1&B0"),  # not overlapped there, which shortens the way back
        (main - in_middle, "F0&B1 F1&B0"),
        (to_middle, "B1 F1&B0"),
        (unlapped, "B1 B0"),
        (from_end % 2, "B1 I0"),
        (from_end - unlapped - from_end % 2, "I1 I0"),
        (to_middle, "W I0"),
        (from_end, "W"),
    ]


def broken_rules(p: int, m: int) -> Iterator[str]:
    if p % 2:
        yield f"parallel.p={p}: schedule.name=dualpipe pairs ranks r and p - 1 - r; p must be even. Nearest: p={p + 1}."


def unwise(p: int, m: int) -> Iterator[str]:
    if m % 2 or m < 2 * p:
        yield (
            f"num_microbatches={m} with parallel.p={p}: schedule.name=dualpipe is made for an even number of at least "
            f"2p; fewer run, with a longer bubble. Nearest: num_microbatches={max(2 * p, m + m % 2)}."
        )


def peak_inflight(p: int, m: int) -> IntArray:
    """A rank holds at most min(p + 1, m) activations of whole stages."""
    return np.full(p, min(p + 1, m))
