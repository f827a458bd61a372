"""A schedule as a program: its steps in an order that suits all times, with bodies that repeat and pieces between them.

Which results an action needs does not depend on times, so one order of work serves every point. Schedules that differ
only in how often bodies repeat are one program.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate import engine

FEWEST, SHORTEST = 3, 64
"""Repetitions and steps that make a body."""


class Program(NamedTuple):
    """A schedule as steps, shape (steps, 2, 3): for the one or two actions of a slot KIND, READS and WRITES.

    KIND is ``op * stages + stage``; READS and WRITES are places where results that travel between ranks wait, and -1 is
    none. A stage's results take turns on a few places, so that the same places come back with the same actions. ``rank``
    is (steps,), ``opens`` says that a step is its rank's first. ``pieces`` (k, 3) are steps from, to, and how often they
    run, one piece after the other.
    """

    rank: NDArray[np.int32]
    opens: NDArray[np.bool_]
    steps: NDArray[np.int32]
    places: int
    pieces: IntArray
    grows: IntArray
    """How much more often each piece runs with every block of micro-batches more, shape (k,)."""
    m: int
    block: int
    actions: IntArray
    """How many actions there are of each kind, shape (ops * stages,)."""


KIND, READS, WRITES = 0, 1, 2


class Unfolded(NamedTuple):
    """A schedule as one ``Program`` without bodies: every slot a step. ``micro_batch`` (steps, 2) is of its one or two
    actions, -1 where there is no second.
    """

    rank: NDArray[np.int32]
    opens: NDArray[np.bool_]
    steps: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    places: int


def unfolded(schedule: Schedule) -> Unfolded:
    """Steps in the order of their starts if every action took one second. Raises ``Deadlock`` with the cycle of waiting
    actions where none exists.
    """
    setup = engine.prepare(schedule, 1.0, 0.5, 0.5)
    start_s = engine.run(setup, engine.fresh_state(setup)).start_s
    heads = np.flatnonzero(np.r_[True, ~schedule.joined[:-1]])
    heads = heads[np.argsort(start_s[heads], kind="stable")]
    rank_of = schedule.rank_of()
    step_of, slot = np.empty(len(schedule), np.int64), np.zeros(len(schedule), np.int64)
    step_of[heads] = np.arange(len(heads))
    seconds = np.flatnonzero(schedule.joined) + 1
    step_of[seconds], slot[seconds] = step_of[seconds - 1], 1
    kind = kinds(schedule)
    steps, micro_batch = np.full((len(heads), 2, 3), -1, np.int32), np.full((len(heads), 2), -1, np.int32)
    steps[step_of, slot, KIND] = kind
    micro_batch[step_of, slot] = schedule.micro_batch
    remote = dependencies(schedule).remote
    reader = np.flatnonzero((remote >= 0) & (rank_of[remote] != rank_of))
    maker = remote[reader]
    place = _places(kind[maker], schedule.micro_batch[maker], step_of[maker], step_of[reader])
    steps[step_of[reader], slot[reader], READS] = place
    steps[step_of[maker], slot[maker], WRITES] = place
    opens = np.zeros(len(heads), np.bool_)
    opens[np.unique(rank_of[heads], return_index=True)[1]] = True
    return Unfolded(rank_of[heads].astype(np.int32), opens, steps, micro_batch, 1 + int(place.max(initial=0)))


@lru_cache(maxsize=512)
def compile_schedule(schedule: Schedule) -> Program:
    """The steps of ``unfolded``, of bodies that repeat those of one repetition."""
    rank, opens, steps, _, places = unfolded(schedule)
    pieces = _pieces(steps, opens, schedule.p, schedule.m)
    kept = np.concatenate([np.arange(start, stop) for start, stop, _ in pieces])
    stops = np.cumsum([stop - start for start, stop, _ in pieces])
    return Program(
        rank=rank[kept],
        opens=opens[kept],
        steps=steps[kept],
        places=places,
        pieces=np.column_stack([np.r_[0, stops[:-1]], stops, [times for *_, times in pieces]]),
        grows=np.zeros(len(pieces), np.int64),
        m=schedule.m,
        block=1,
        actions=np.bincount(kinds(schedule), minlength=len(Op) * schedule.stages),
    )


def kinds(schedule: Schedule) -> NDArray[np.int32]:
    """``op * stages + stage`` of every action."""
    return schedule.op.astype(np.int32) * schedule.stages + schedule.stage


def grown(few: Program, more: Program) -> Program | None:
    """The program of both, if ``more`` does the same as ``few`` with its bodies repeated more often; else None."""
    same = all(np.array_equal(getattr(few, name), getattr(more, name)) for name in ("rank", "opens", "steps"))
    if not same or few.places != more.places or not np.array_equal(few.pieces[:, :2], more.pieces[:, :2]):
        return None
    grows = more.pieces[:, 2] - few.pieces[:, 2]
    return few._replace(grows=grows, block=more.m - few.m) if (grows >= 0).all() else None


def _pieces(steps: NDArray[np.int32], opens: NDArray[np.bool_], p: int, m: int) -> list[tuple[int, int, int]]:
    """Steps from, to, and how often they run: bodies, and what lies between them."""
    columns = [column for column in (*steps.reshape(len(steps), -1).T, opens) if (column != column[0]).any()]
    lengths = sorted(
        {
            len(steps) * (size << k) // m
            for size in (1, p)
            for k in range(m.bit_length())
            if len(steps) * (size << k) % m == 0
        }
    )
    found: list[tuple[int, int, int]] = []
    left = [(0, len(steps))]
    while left:
        low, high = left.pop()
        body = _body([column[low:high] for column in columns], lengths)
        if body is None:
            found.append((low, high, 1))
            continue
        start, length, times = body
        found.append((low + start, low + start + length, times))
        around = ((low, low + start), (low + start + times * length, high))
        left += [(a, b) for a, b in around if b > a]
    return sorted(found)


def _body(columns: list[NDArray[np.int32]], lengths: list[int]) -> tuple[int, int, int] | None:
    """Start, length and repetitions of the shortest body that repeats often enough, where it does so longest."""
    size = len(columns[0]) if columns else 0
    for length in lengths:
        if length < SHORTEST or length * FEWEST > size:
            continue
        differs = np.zeros(size - length, np.bool_)
        for column in columns:
            differs |= column[:-length] != column[length:]
        ends = np.r_[-1, np.flatnonzero(differs), len(differs)]
        longest = int(np.argmax(np.diff(ends)))
        times = int(ends[longest + 1] - ends[longest] - 1) // length + 1
        if times >= FEWEST:
            return int(ends[longest]) + 1, length, times
    return None


def _places(kind: NDArray[np.int32], micro_batch: NDArray[np.int32], written: IntArray, read: IntArray) -> IntArray:
    """A place for every result that travels: those of one kind of action take turns on the fewest, a power of two, on
    which none is written over before it has been read. A step reads before it writes.
    """
    _, kind_of = np.unique(kind, return_inverse=True)
    turns = np.ones(kind_of.max(initial=0) + 1, np.int64)
    while True:
        first = np.cumsum(turns) - turns
        place = first[kind_of] + micro_batch % turns[kind_of]
        order = np.lexsort((written, place))
        again = place[order][1:] == place[order][:-1]
        lost = again & (written[order][1:] < read[order][:-1])
        if not lost.any():
            return np.asarray(place, np.int64)
        turns[np.unique(kind_of[order][1:][lost])] *= 2
