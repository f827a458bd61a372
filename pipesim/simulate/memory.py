"""What a rank holds while it works through its list: activations, or anything that actions store and free."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.simulate.kernel import FloatArray


def held_change(schedule: Schedule, free_at: Op = Op.W) -> IntArray:
    """+1 for an F, which stores an activation; -1 for a B, or a W (or an I, if ``free_at``), which frees it.

    Shape (actions,). Zero-bubble papers free at W; frameworks whose I keeps nothing for W free at I.
    """
    if free_at not in (Op.I, Op.W):
        raise ValueError(f"free_at={free_at!r} must be Op.I or Op.W: a whole B frees in any case.")
    by_op = np.zeros(len(Op), np.int64)
    by_op[[Op.F, Op.B, free_at]] = 1, -1, -1
    return by_op[schedule.op]


def changes(schedule: Schedule, deltas: Mapping[Op, ArrayLike]) -> FloatArray:
    """What each action adds (or, negative, frees); ``deltas`` has one number, or one per stage, for each op it names.

    Any sign is allowed: gradients and recomputation buffers can outweigh what a backward frees.
    """
    table = np.zeros((len(Op), schedule.stages))
    for op, delta in deltas.items():
        table[op] = delta
    return table[schedule.op, schedule.stage]


def peaks(schedule: Schedule, change: ArrayLike) -> FloatArray:
    """The most that each rank holds when actions add ``change``, shape (…, actions); returns (…, p).

    Independent of time: a rank's order alone decides it. What a slot adds is there before what it frees is gone.
    """
    gains, losses = _by_slot(schedule, np.asarray(change, np.float64))
    found = np.zeros((*gains.shape[:-1], schedule.p))
    for rank, (start, stop) in enumerate(zip(schedule.rank_start[:-1], schedule.rank_start[1:], strict=True)):
        if stop > start:
            own = np.s_[..., start:stop]
            after = np.cumsum(gains[own] + losses[own], axis=-1)
            found[..., rank] = np.maximum((after - losses[own]).max(axis=-1), 0.0)
    return found


def peak_held(schedule: Schedule, per_stage: ArrayLike, free_at: Op = Op.W) -> FloatArray:
    """The most that each rank holds when an activation of stage s weighs ``per_stage[s]``; shape (p,).

    Shape (stages,) gives (p,); shape (n, stages) gives (n, p).
    """
    weights = np.asarray(per_stage, np.float64)[..., schedule.stage]
    return peaks(schedule, weights * held_change(schedule, free_at))


def peak_counts(schedule: Schedule) -> list[IntArray]:
    """For each rank the counts of activations held at once, by stage, that no other moment exceeds in all of them.

    Shape (moments, stages) each. Whatever an activation of each stage weighs, the most that the rank holds is the
    heaviest of these: ``peak_held`` without walking the order again.
    """
    change = held_change(schedule)
    found: list[IntArray] = []
    for start, stop in pairwise(schedule.rank_start):
        own, column = np.unique(schedule.stage[start:stop], return_inverse=True)
        by_stage = np.zeros((stop - start, len(own)), np.int64)
        by_stage[np.arange(stop - start), column] = change[start:stop]
        joined = np.flatnonzero(schedule.joined[start:stop])
        gains = np.maximum(by_stage, 0)
        gains[joined] += gains[joined + 1]
        gains[joined + 1] = 0
        before = np.cumsum(by_stage, axis=0) - by_stage
        before[joined + 1] -= by_stage[joined]  # a pair frees nothing before it has ended
        greatest = _greatest(before + gains)
        moments = np.zeros((len(greatest), schedule.stages), np.int64)
        moments[:, own] = greatest
        found.append(moments)
    return found


def _greatest(counts: IntArray) -> IntArray:
    """The rows that no other row reaches in every column."""
    if not counts.size:
        return np.zeros((1, counts.shape[1]), np.int64)
    rows = counts[np.argsort(-counts.sum(axis=1), kind="stable")]
    kept: list[IntArray] = []
    while len(rows):  # by falling sums: no later row exceeds the first in every column
        kept.append(rows[0])
        rows = rows[(rows > rows[0]).any(axis=1)]
    return np.array(kept)


def curve(
    schedule: Schedule, start_s: FloatArray, end_s: FloatArray, change: ArrayLike, rank: int
) -> tuple[FloatArray, FloatArray]:
    """When what the rank holds changes, and what it holds then: gains count from the start, losses at the end."""
    own = np.s_[int(schedule.rank_start[rank]) : int(schedule.rank_start[rank + 1])]
    gains, losses = (part[own] for part in _by_slot(schedule, np.asarray(change, np.float64)))
    when_s = np.stack([start_s[own], end_s[own]], axis=1).ravel()
    step = np.stack([gains, losses], axis=1).ravel()
    keep = step != 0
    return when_s[keep], np.cumsum(step[keep])


def _by_slot(schedule: Schedule, change: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gains and losses of each action; a pair's gains at its first, its losses at its second action."""
    gains, losses = np.maximum(change, 0.0), np.minimum(change, 0.0)
    first = np.flatnonzero(schedule.joined)
    gains[..., first] += gains[..., first + 1]
    losses[..., first + 1] += losses[..., first]
    gains[..., first + 1] = losses[..., first] = 0.0
    return gains, losses
