"""Why ranks stand still: every idle interval of every rank with its cause; the causes sum to the bubble."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import Action, IntArray, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate.iterations import Iterations
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.timeline import Timeline


class Cause(enum.IntEnum):
    """Why a rank is idle; ``str`` gives the words."""

    WARM_UP = 0  # before its first action
    HAND_OVER = 1  # its message may not leave yet, and its sends block
    SENDING = 2  # its message leaves, and its sends block
    IMBALANCE = 3  # waiting, as far as it had less to do than the slowest rank since it last waited
    WAITING = 4  # for an action that has not ended
    LINK_BUSY = 5  # for a message behind others on its link
    TRAVEL = 6  # for a message on the wire
    DELAY = 7  # nothing that we know of: measured timelines only
    COOL_DOWN = 8  # after its last action
    BARRIER = 9  # at the optimizer barrier
    UNUSED = 10  # it has no actions

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Interval(NamedTuple):
    """One idle interval of a rank. ``waits_for`` is the action whose result it waits for, ``before`` what it does next."""

    rank: int
    start_s: float
    end_s: float
    cause: Cause
    waits_for: Action | None
    before: Action | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Idle:
    """All idle intervals as columns, by rank and time; iterating gives each as an ``Interval``."""

    schedule: Schedule
    rank: IntArray
    start_s: FloatArray
    end_s: FloatArray
    cause: IntArray
    waits_for: IntArray  # index of an action, or -1
    before: IntArray  # index of the action (of a pair, the first) that the rank does next, or -1 after its last

    def __len__(self) -> int:
        return len(self.rank)

    def __iter__(self) -> Iterator[Interval]:
        for i in range(len(self)):
            waits_for, before = (self.schedule.action(at) if at >= 0 else None for at in self._actions(i))
            start_s, end_s = float(self.start_s[i]), float(self.end_s[i])
            yield Interval(int(self.rank[i]), start_s, end_s, Cause(int(self.cause[i])), waits_for, before)

    def _actions(self, i: int) -> tuple[int, int]:
        return int(self.waits_for[i]), int(self.before[i])

    @property
    def total_s(self) -> float:
        return float((self.end_s - self.start_s).sum())

    def by_cause(self) -> dict[Cause, float]:
        """Seconds of each cause that occurs, summed over ranks."""
        seconds = np.bincount(self.cause, self.end_s - self.start_s, minlength=len(Cause))
        return {cause: float(seconds[cause]) for cause in Cause if seconds[cause] > 0}

    def by_rank(self) -> FloatArray:
        """Idle seconds of each rank, shape (p,)."""
        return np.bincount(self.rank, self.end_s - self.start_s, minlength=self.schedule.p).astype(np.float64)

    def by_rank_and_cause(self) -> FloatArray:
        """Idle seconds, shape (p, causes)."""
        return self._table_s(self.rank, self.schedule.p)

    def by_action(self) -> FloatArray:
        """Seconds that each action's rank waits before it, shape (actions, causes); 0 for the second of a pair.

        With what ranks idle after their last action these are all idle seconds.
        """
        return self._table_s(np.where(self.before >= 0, self.before, len(self.schedule)), len(self.schedule) + 1)[:-1]

    def _table_s(self, row: IntArray, rows: int) -> FloatArray:
        cell = row * len(Cause) + self.cause
        seconds = np.bincount(cell, self.end_s - self.start_s, minlength=rows * len(Cause))
        return seconds.astype(np.float64).reshape(rows, len(Cause))


def idle(timeline: Timeline) -> Idle:
    """The causes of ``p * makespan_s - busy_s``."""
    p, schedule = timeline.schedule.p, timeline.schedule
    begin_s, end_s = np.full(p, timeline.start_s.min()), np.full(p, timeline.end_s.max())
    parts = [_inside(timeline, begin_s, warm_up=True), *_after(schedule, _last_end_s(timeline, begin_s), end_s)]
    return _table(schedule, parts)


def idle_between(iterations: Iterations) -> Idle:
    """The causes over several iterations; optimizer steps are work, waiting for others' steps is the barrier."""
    schedule = iterations.timelines[0].schedule
    parts: list[_Columns] = []
    begin_s = np.full(schedule.p, iterations.timelines[0].start_s.min())
    for k, timeline in enumerate(iterations.timelines):
        parts.append(_inside(timeline, begin_s, warm_up=k == 0 or iterations.barrier))
        done_s, ready_s = _last_end_s(timeline, begin_s), iterations.ready_s[k]
        final = k == len(iterations.timelines) - 1
        if iterations.barrier:
            all_done_s = np.full(schedule.p, done_s.max())
            parts += _after(schedule, done_s, all_done_s, Cause.COOL_DOWN if final else Cause.BARRIER)
            parts += _after(schedule, all_done_s + iterations.optimizer_s, ready_s, Cause.BARRIER)
        elif final:
            parts += _after(schedule, ready_s, np.full(schedule.p, ready_s.max()))
        begin_s = ready_s
    return _table(schedule, parts)


class _Columns(NamedTuple):
    rank: IntArray
    start_s: FloatArray
    end_s: FloatArray
    cause: IntArray
    waits_for: IntArray
    before: IntArray


def _inside(timeline: Timeline, begin_s: FloatArray, *, warm_up: bool) -> _Columns:
    """Every gap before a slot, cut at the times where its cause changes."""
    schedule, rank_of = timeline.schedule, timeline.schedule.rank_of()
    slot = np.flatnonzero(np.r_[True, ~schedule.joined[:-1]])  # the first action of each
    rank, start_s = rank_of[slot], timeline.start_s[slot]
    opens = np.r_[True, rank[1:] != rank[:-1]]  # the rank's first slot
    free_s = np.where(opens, begin_s[rank], np.r_[0.0, timeline.end_s[slot[:-1]]])
    waits_for, ended_s, sent_s, arrival_s = _latest_message(timeline, slot)
    may_send_s, released_s = _released(timeline, slot, opens, free_s)
    imbalance_s = np.where(opens, 0.0, _imbalance(timeline, slot, opens, start_s - free_s))

    # column j is where cause j begins; a cause that does not apply has no length
    warmed_s = np.where(opens & warm_up, start_s, free_s)
    balanced_s = np.fmax(released_s, np.fmin(released_s + imbalance_s, np.nan_to_num(ended_s)))
    edges = [free_s, warmed_s, may_send_s, released_s, balanced_s, ended_s, sent_s, arrival_s, start_s]
    edges_s = np.minimum(np.fmax.accumulate(np.stack(edges, axis=1), axis=1), start_s[:, None])
    which, cause = np.nonzero(edges_s[:, 1:] > edges_s[:, :-1])
    tells = np.isin(cause, (Cause.IMBALANCE, Cause.WAITING, Cause.LINK_BUSY, Cause.TRAVEL))
    reason = np.where(tells, waits_for[which], -1)
    return _Columns(rank[which], edges_s[which, cause], edges_s[which, cause + 1], cause, reason, slot[which])


def _latest_message(timeline: Timeline, slot: IntArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Of each slot the remote result that arrives last: its action, its end, when it was sent and there; -1 and NaN."""
    messages, remote = timeline.messages(), dependencies(timeline.schedule).remote
    joined = timeline.schedule.joined[slot]
    other = np.where(joined, slot + 1, slot)
    later = np.nan_to_num(messages.arrival_s[other], nan=-1.0) > np.nan_to_num(messages.arrival_s[slot], nan=-1.0)
    reader = np.where(later, other, slot)
    arrival_s = messages.arrival_s[reader]
    producer = np.where(np.isnan(arrival_s), -1, remote[reader])
    ended_s = np.where(producer >= 0, timeline.end_s[producer], np.nan)
    return producer, ended_s, messages.sent_s[reader], arrival_s


def _released(
    timeline: Timeline, slot: IntArray, opens: NDArray[np.bool_], free_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """When the slot before had its messages on the wire and gone, if that holds the rank up; else ``free_s``."""
    if timeline.deliveries is None or not timeline.deliveries.wires.blocking:
        return free_s, free_s
    schedule, messages, remote = timeline.schedule, timeline.messages(), dependencies(timeline.schedule).remote
    sent_s, left_s = np.full((2, len(schedule)), -np.inf)
    reads = ~np.isnan(messages.left_s)
    sent_s[remote[reads]], left_s[remote[reads]] = messages.sent_s[reads], messages.left_s[reads]
    both_s = [np.maximum.reduceat(part, slot) for part in (sent_s, left_s)]
    before = [np.where(opens, free_s, np.fmax(free_s, np.r_[-np.inf, part[:-1]])) for part in both_s]
    return before[0], before[1]


def _imbalance(timeline: Timeline, slot: IntArray, opens: NDArray[np.bool_], gap_s: FloatArray) -> FloatArray:
    """By how much the slowest rank would have taken longer over what the rank did since it last waited, at least 0.

    The slowest rank has the most work; it takes its mean time for an op (or pair), or, if it has none, the rank's own.
    """
    schedule = timeline.schedule
    kind = np.where(schedule.joined[slot], 4, schedule.op[slot])
    took_s = timeline.end_s[slot] - timeline.start_s[slot]
    slow = schedule.rank_of()[slot] == timeline.busy_s.argmax()
    count = np.bincount(kind[slow], minlength=5)
    mean_s = np.bincount(kind[slow], took_s[slow], minlength=5) / np.maximum(count, 1)
    less_s = np.where(count[kind] > 0, mean_s[kind] - took_s, 0.0)
    before_s = np.r_[0.0, np.cumsum(less_s)[:-1]]  # up to and without the slot
    marks = np.flatnonzero(opens | (gap_s > 0))
    since = np.zeros(len(slot))
    since[marks[1:]] = np.diff(before_s[marks])
    return np.where(since > 1e-9 * np.maximum(gap_s, took_s), since, 0.0)


def _last_end_s(timeline: Timeline, begin_s: FloatArray) -> FloatArray:
    """When each rank's last action ends, shape (p,); where it has none, when it began."""
    last = timeline.schedule.rank_start[1:] - 1
    return np.where(np.diff(timeline.schedule.rank_start) > 0, timeline.end_s[last], begin_s)


def _after(schedule: Schedule, from_s: FloatArray, to_s: FloatArray, cause: Cause = Cause.COOL_DOWN) -> list[_Columns]:
    rank = np.flatnonzero(to_s > from_s)
    causes = np.where(np.diff(schedule.rank_start)[rank] > 0, cause, Cause.UNUSED)
    nothing = np.full(len(rank), -1)
    return [_Columns(rank, from_s[rank], to_s[rank], causes, nothing, nothing)]


def _table(schedule: Schedule, parts: list[_Columns]) -> Idle:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _Columns._fields}
    order = np.lexsort((columns["start_s"], columns["rank"]))
    return Idle(schedule=schedule, **{name: column[order] for name, column in columns.items()})
