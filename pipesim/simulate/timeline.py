"""A timeline: when every action of a schedule runs, and what follows from it: makespan, bubbles, what is in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import results
from pipesim.simulate import memory
from pipesim.simulate.kernel import FloatArray, Wires


class Deliveries(NamedTuple):
    """When each result (see ``rules.results``) went on the wire and had left its rank, shape (results, m)."""

    left_s: FloatArray
    sent_s: FloatArray
    wires: Wires


class Messages(NamedTuple):
    """For each action the result that it needs from another rank: shape (actions,), NaN where it needs none.

    It goes on the wire, has left its sender, and is there.
    """

    sent_s: FloatArray
    left_s: FloatArray
    arrival_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Start and end of every action in seconds (or in whatever unit the durations had), simulated or measured.

    Of an overlapped pair both actions span the whole slot. ``deliveries`` is there when communication took time.
    """

    schedule: Schedule
    start_s: FloatArray
    end_s: FloatArray
    deliveries: Deliveries | None = None

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
        return tuple(int(peak) for peak in memory.peaks(self.schedule, memory.held_change(self.schedule)))

    def inflight(self, rank: int, free_at: Op = Op.W) -> tuple[FloatArray, IntArray]:
        """When the rank's number of held activations changes, and the number from then on."""
        change = memory.held_change(self.schedule, free_at)
        when_s, held = memory.curve(self.schedule, self.start_s, self.end_s, change, rank)
        return when_s, held.astype(np.int64)

    def messages(self) -> Messages:
        """The results that travelled. Without ``deliveries``, as in a measured timeline, they travel in no time."""
        schedule, rank_of = self.schedule, self.schedule.rank_of()
        rows = results(schedule.stages)
        made = rows.made[schedule.op, schedule.stage]
        shape = (2 * schedule.stages, schedule.m)
        made_s, sender = np.full(shape, np.nan), np.full(shape, -1)
        makes = made >= 0
        made_s[made[makes], schedule.micro_batch[makes]] = self.end_s[makes]
        sender[made[makes], schedule.micro_batch[makes]] = rank_of[makes]

        needed = rows.remote[schedule.op, schedule.stage]
        at = needed, schedule.micro_batch
        reads = (needed >= 0) & (sender[at] != rank_of)
        left_s = np.where(reads, made_s[at], np.nan)
        if self.deliveries is None:
            return Messages(left_s, left_s, left_s)
        wires, hop = (
            self.deliveries.wires,
            (sender[at], rank_of) if len(self.deliveries.wires.latency_s) > 1 else (0, 0),
        )
        sent_s = np.where(reads, self.deliveries.sent_s[at], np.nan) if wires.transfers else left_s
        left_s = np.where(reads, self.deliveries.left_s[at], np.nan)
        return Messages(sent_s, left_s, left_s + wires.latency_s[hop])
