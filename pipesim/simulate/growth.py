"""How a schedule's order grows with its micro-batches: by one block of actions, put into each rank's list."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.compiled import compiled


class Growth(NamedTuple):
    """Rank r's list of the smaller schedule may take the block anywhere from position ``low[r]`` to ``high[r]``.

    ``block`` is its number of actions, 0 on a rank without any; between the two the list repeats with that period.
    """

    low: IntArray
    high: IntArray
    block: IntArray


def growth(small: Schedule, large: Schedule) -> Growth | None:
    """What ``large`` has more than ``small``, or None if that is not one block in each rank's list.

    Micro-batches are told apart by where they enter the pipeline (a bidirectional one has two doors) and by their
    number among those of that door, so in the actions after the block the numbers are larger by what entered there.
    """
    if small.p != large.p or small.stages != large.stages:
        return None
    (door, number), (large_door, large_number) = _labels(small), _labels(large)
    more = np.bincount(large_door, minlength=small.p) - np.bincount(door, minlength=small.p)
    found = np.empty((3, small.p), np.int64)
    fits = _compare(
        small.rank_start, small.stage, small.op, small.joined, door[small.micro_batch], number[small.micro_batch],
        large.rank_start, large.stage, large.op, large.joined, large_door[large.micro_batch],
        large_number[large.micro_batch], more, found,
    )  # fmt: skip
    return Growth(*found) if fits else None


def _labels(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Of each micro-batch the rank that it enters, and its number among those of that rank; shape (m,)."""
    entry = np.flatnonzero((schedule.op == Op.F) & (schedule.stage == 0))
    door = np.zeros(schedule.m, np.int64)
    door[schedule.micro_batch[entry]] = np.searchsorted(schedule.rank_start, entry, side="right") - 1
    number = np.empty(schedule.m, np.int64)
    for rank in np.unique(door):
        own = door == rank
        number[own] = np.arange(own.sum())
    return door, number


@compiled
def _compare(  # type: ignore[no-untyped-def]
    rank_start, stage, op, joined, door, number, rank_start2, stage2, op2, joined2, door2, number2, more, found
):
    """Fills ``found`` with ``Growth``'s rows; false if prefix and suffix of some rank leave a hole between them."""
    for rank in range(len(rank_start) - 1):
        start, start2 = rank_start[rank], rank_start2[rank]
        size, size2 = rank_start[rank + 1] - start, rank_start2[rank + 1] - start2
        high = 0
        while high < min(size, size2):
            i, j = start + high, start2 + high
            same = stage[i] == stage2[j] and op[i] == op2[j] and joined[i] == joined2[j]
            if not (same and door[i] == door2[j] and number[i] == number2[j]):
                break
            high += 1
        low = size
        while low > 0:
            i, j = start + low - 1, start2 + low - 1 + size2 - size
            same = stage[i] == stage2[j] and op[i] == op2[j] and joined[i] == joined2[j]
            if not (same and door[i] == door2[j] and number[i] + more[door[i]] == number2[j]):
                break
            low -= 1
        if size2 < size or high < low:
            return False
        found[0, rank], found[1, rank], found[2, rank] = low, high, size2 - size
    return True
