"""A timeline: when every action of a schedule runs, and what follows from it: makespan, bubbles, what is in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipesim.schedules.action import IntArray, Op, Schedule

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Start and end of every action in seconds (or in whatever unit the durations had), simulated or measured.

    Of an overlapped pair both actions span the whole slot.
    """

    schedule: Schedule
    start_s: FloatArray
    end_s: FloatArray

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end."""
        return float(self.end_s.max() - self.start_s.min())

    @property
    def busy_s(self) -> FloatArray:
        """Seconds of work of each rank, shape (p,); a pair's slot counts once."""
        slots = np.r_[True, ~self.schedule.joined[:-1]]  # the second half of a pair opens no slot
        work_s = np.where(slots, self.end_s - self.start_s, 0.0)
        return np.add.reduceat(np.r_[work_s, 0.0], self.schedule.rank_start[:-1]) * (
            np.diff(self.schedule.rank_start) > 0
        )

    @property
    def span_s(self) -> float:
        """The longest time any one rank needs from its first start to its last end (the zero-bubble papers' length)."""
        first, last = self.schedule.rank_start[:-1], self.schedule.rank_start[1:] - 1
        used = last >= first
        return float((self.end_s[last[used]] - self.start_s[first[used]]).max())

    @property
    def bubble_fraction(self) -> float:
        """Idle / (p * makespan); for equal stages (p - 1) / (m + p - 1)."""
        return float(1 - self.busy_s.sum() / (self.schedule.p * self.makespan_s))

    @property
    def bubble_overhead(self) -> float:
        """Idle / useful; for equal stages (p - 1) / m. Source: Narayanan et al. 2021, section 2.2."""
        useful_s = self.busy_s.sum()
        return float((self.schedule.p * self.makespan_s - useful_s) / useful_s)

    @property
    def peak_inflight(self) -> tuple[int, ...]:
        """The most activations (of one stage and micro-batch each) that each rank holds at once."""
        return tuple(int(peak) for peak in peak_held(self.schedule, np.ones(self.schedule.stages)))

    def inflight(self, rank: int) -> tuple[FloatArray, IntArray]:
        """When the rank's number of held activations changes, and the number from then on."""
        own = slice(int(self.schedule.rank_start[rank]), int(self.schedule.rank_start[rank + 1]))
        change = held_change(self.schedule)[own]
        when_s = np.where(change > 0, self.start_s[own], self.end_s[own])
        order = np.lexsort((np.arange(len(change)), when_s))
        keep = order[change[order] != 0]
        return when_s[keep], np.cumsum(change[keep])


def held_change(schedule: Schedule) -> IntArray:
    """+1 for an F, which stores an activation; -1 for a B or a W, which frees it. Shape (actions,)."""
    by_op = np.zeros(len(Op), np.int64)
    by_op[[Op.F, Op.B, Op.W]] = 1, -1, -1
    return by_op[schedule.op]


def peak_held(schedule: Schedule, per_stage: ArrayLike) -> FloatArray:
    """The most that each rank holds when an activation of stage s weighs ``per_stage[s]``; shape (p,).

    Independent of time: a rank's order alone decides it. Shape (stages,) gives (p,); shape (n, stages) gives (n, p).
    """
    weights = np.asarray(per_stage, np.float64)[..., schedule.stage] * held_change(schedule)
    peaks = [
        np.maximum.accumulate(np.cumsum(weights[..., start:stop], axis=-1), axis=-1)[..., -1:]
        if stop > start
        else np.zeros((*weights.shape[:-1], 1))
        for start, stop in zip(schedule.rank_start[:-1], schedule.rank_start[1:], strict=True)
    ]
    return np.concatenate(peaks, axis=-1)
