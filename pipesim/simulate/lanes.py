"""One schedule for many points at once: its actions in an order that suits all of them, times side by side in lanes.

Which results an action needs does not depend on times, so one order of work serves every point, and each step of it is
the same sum and maximum for a whole block of points. Most orders repeat a body of steps; once a repetition has moved
everything by the same time, so will all that follow, and the rest is one multiplication. What is not that regular is
walked to its end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.compiled import compiled
from pipesim.schedules.rules import dependencies
from pipesim.simulate import engine
from pipesim.simulate.kernel import FloatArray

LANES = 64
"""Points side by side: as few as let the compiler use vector registers; fewer are 2 to 3 times slower a point."""

FEWEST = 16
"""Repetitions from which on a body is looked for: fewer are walked sooner than compared."""


class Program(NamedTuple):
    """A schedule as steps, shape (steps, 2, 3): for the one or two actions of a slot KIND, READS and WRITES.

    KIND is ``op * stages + stage``; READS and WRITES are places where results that travel between ranks wait, and -1 is
    none. A stage's results take turns on a few places, so that the same places come back with the same actions. ``rank``
    is (steps,), ``opens`` says that a step is its rank's first.
    """

    rank: NDArray[np.int32]
    opens: NDArray[np.bool_]
    steps: NDArray[np.int32]
    places: int
    actions: IntArray
    """How many actions there are of each kind, shape (ops * stages,)."""
    body: Body


class Body(NamedTuple):
    """Steps ``start`` to ``start + length`` run ``times`` times, one after the other."""

    start: int
    length: int
    times: int


KIND, READS, WRITES = 0, 1, 2


class Finished(NamedTuple):
    """Shape (p, n) each: when a rank's first action starts and its last one ends; 0 for a rank without any."""

    first_s: FloatArray
    last_s: FloatArray


def run(schedule: Schedule, seconds: FloatArray, latency_s: FloatArray) -> Finished:
    """``seconds`` (ops, stages, n) of every kind of action, ``latency_s`` (n,) between two ranks.

    Equal to ``simulate`` to the last bit, but where a body repeats often: there times are rounded to so small a unit that
    no sum is rounded any more, which changes the ends by less than 1e-9 of themselves. Raises ``Deadlock`` with the cycle
    of waiting actions.
    """
    program, n = compile_schedule(schedule), len(latency_s)
    times, hops = np.ascontiguousarray(seconds).reshape(-1, n), latency_s
    if program.body.times:
        unit_s = _unit_s(program, schedule.p, times, hops)
        times, hops = np.round(times / unit_s) * unit_s, np.round(hops / unit_s) * unit_s
    finished = Finished(np.zeros((schedule.p, n)), np.zeros((schedule.p, n)))
    _run(program.rank, program.opens, program.steps, program.places, program.body, times, hops, *finished)
    return finished


def _unit_s(program: Program, p: int, times: FloatArray, hops: FloatArray) -> FloatArray:
    """For each point a power of two of which its makespan has less than 2**52, if ranks are busy a quarter of it."""
    longest_s = 4 * (program.actions @ times) / p + 2 * program.actions.max() * hops
    return np.asarray(np.ldexp(1.0, np.frexp(longest_s)[1] - 52))


@lru_cache(maxsize=512)
def compile_schedule(schedule: Schedule) -> Program:
    """Steps in the order of their starts if every action took one second; raises ``Deadlock`` where none exists."""
    setup = engine.prepare(schedule, 1.0, 0.5, 0.5)
    start_s = engine.run(setup, engine.fresh_state(setup)).start_s
    heads = np.flatnonzero(np.r_[True, ~schedule.joined[:-1]])
    heads = heads[np.argsort(start_s[heads], kind="stable")]
    rank_of = schedule.rank_of()
    step_of, slot = np.empty(len(schedule), np.int64), np.zeros(len(schedule), np.int64)
    step_of[heads] = np.arange(len(heads))
    seconds = np.flatnonzero(schedule.joined) + 1
    step_of[seconds], slot[seconds] = step_of[seconds - 1], 1
    kind = schedule.op.astype(np.int32) * schedule.stages + schedule.stage
    steps = np.full((len(heads), 2, 3), -1, np.int32)
    steps[step_of, slot, KIND] = kind
    remote = dependencies(schedule).remote
    reader = np.flatnonzero((remote >= 0) & (rank_of[remote] != rank_of))
    maker = remote[reader]
    place = _places(kind[maker], schedule.micro_batch[maker], step_of[maker], step_of[reader])
    steps[step_of[reader], slot[reader], READS] = place
    steps[step_of[maker], slot[maker], WRITES] = place
    opens = np.zeros(len(heads), np.bool_)
    opens[np.unique(rank_of[heads], return_index=True)[1]] = True
    return Program(
        rank=rank_of[heads].astype(np.int32),
        opens=opens,
        steps=steps,
        places=1 + int(place.max(initial=0)),
        actions=np.bincount(kind, minlength=len(Op) * schedule.stages),
        body=_body(steps, opens, schedule.p, schedule.m),
    )


def _body(steps: NDArray[np.int32], opens: NDArray[np.bool_], p: int, m: int) -> Body:
    """The shortest body of a power of two micro-batches, or so many for each rank, that repeats often enough."""
    first = int(np.flatnonzero(opens).max(initial=-1)) + 1
    flat = steps.reshape(len(steps), -1)
    columns = [column for column in flat.T if (column != column[0]).any()]
    for micro_batches in sorted({size << k for size in (1, p) for k in range(m.bit_length())}):
        length = len(steps) * micro_batches // m
        if micro_batches * FEWEST > m or length == 0 or len(steps) * micro_batches % m:
            continue
        differs = np.zeros(len(steps) - first - length, np.bool_)
        for column in columns:
            differs |= column[first:-length] != column[first + length :]
        ends = np.r_[-1, np.flatnonzero(differs), len(differs)]
        longest = int(np.argmax(np.diff(ends)))
        times = int(ends[longest + 1] - ends[longest] - 1) // length + 1
        if times >= FEWEST:
            return Body(first + int(ends[longest]) + 1, length, times)
    return Body(0, 0, 0)


def _places(kind: NDArray[np.int32], micro_batch: NDArray[np.int32], written: IntArray, read: IntArray) -> IntArray:
    """A place for every result that travels: those of one kind of action take turns on the fewest, a power of two, on
    which none is written over before it has been read. A step reads before it writes.
    """
    turns = 1
    while True:
        _, place = np.unique(kind.astype(np.int64) * turns + micro_batch % turns, return_inverse=True)
        order = np.lexsort((written, place))
        again = place[order][1:] == place[order][:-1]
        if not (again & (written[order][1:] < read[order][:-1])).any():
            return np.asarray(place, np.int64)
        turns *= 2


@compiled
def _run(rank, opens, steps, places, body, seconds, latency_s, first_s, last_s):  # type: ignore[no-untyped-def]
    """``seconds`` (kinds, n); fills ``first_s`` and ``last_s``, (p, n), which are 0 when called."""
    n, ranks = seconds.shape[1], first_s.shape[0]
    start, length, times = body
    work, hop = np.zeros((seconds.shape[0], LANES)), np.zeros(LANES)
    clock, waiting, opened = np.zeros((ranks, LANES)), np.zeros((places, LANES)), np.zeros((ranks, LANES))
    acts, written, lives = _state(rank, steps, start, start + length, ranks, places)
    lead = np.argmax(acts)
    was_clock, was_waiting, end_clock, end_waiting = clock.copy(), waiting.copy(), clock.copy(), waiting.copy()
    due, jumps, move = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64), np.zeros(LANES)
    for block in range(0, n, LANES):
        width = min(LANES, n - block)
        work[:, :width] = seconds[:, block : block + width]
        hop[:width] = latency_s[block : block + width]
        clock[:], waiting[:] = 0.0, 0.0
        _walk(0, start, rank, opens, steps, work, hop, clock, waiting, opened)
        due[:], jumps[:], since, left, count = times, 0, 0, width, 0
        was_clock[:], was_waiting[:] = clock, waiting
        while left > 0:
            count += 1
            if count <= times:
                _walk(start, start + length, rank, opens, steps, work, hop, clock, waiting, opened)
            for lane in range(width):
                looks = jumps[lane] == 0 and count < due[lane]
                if looks and _has_moved(lane, clock, was_clock, acts, waiting, was_waiting, lives):
                    jumps[lane], rest = divmod(times - count, count - since)
                    due[lane], move[lane] = count + rest, clock[lead, lane] - was_clock[lead, lane]
                if count == max(due[lane], 1):
                    _settle(lane, jumps[lane] * move[lane], clock, waiting, acts, written, end_clock, end_waiting)
                    left -= 1
            if (count & (count - 1)) == 0:
                since = count
                was_clock[:], was_waiting[:] = clock, waiting
        _walk(start + times * length, len(rank), rank, opens, steps, work, hop, end_clock, end_waiting, opened)
        first_s[:, block : block + width] = opened[:, :width]
        last_s[:, block : block + width] = end_clock[:, :width]


@compiled
def _state(rank, steps, start, stop, ranks, places):  # type: ignore[no-untyped-def]
    """Which ranks act in a body, which places it writes, and which it reads before it writes them."""
    acts, written, lives = np.zeros(ranks, np.bool_), np.zeros(places, np.bool_), np.zeros(places, np.bool_)
    for s in range(start, stop):
        acts[rank[s]] = True
        for a in range(2):
            if steps[s, a, READS] >= 0 and not written[steps[s, a, READS]]:
                lives[steps[s, a, READS]] = True
        for a in range(2):
            if steps[s, a, WRITES] >= 0:
                written[steps[s, a, WRITES]] = True
    return acts, written, lives


@compiled
def _has_moved(lane, clock, was_clock, acts, waiting, was_waiting, lives):  # type: ignore[no-untyped-def]
    """Whether everything that the next repetition builds on has moved by one time."""
    lead = np.argmax(acts)
    move = clock[lead, lane] - was_clock[lead, lane]
    for r in range(len(acts)):
        if acts[r] and clock[r, lane] - was_clock[r, lane] != move:
            return False
    still = True
    for place in range(len(lives)):
        still &= not lives[place] or waiting[place, lane] - was_waiting[place, lane] == move
    return still


@compiled
def _settle(lane, move, clock, waiting, acts, written, end_clock, end_waiting):  # type: ignore[no-untyped-def]
    """A lane's state behind the last repetition, by ``move`` later than now in all that repetitions move."""
    for r in range(len(acts)):
        end_clock[r, lane] = clock[r, lane] + (move if acts[r] else 0.0)
    for place in range(len(written)):
        end_waiting[place, lane] = waiting[place, lane] + (move if written[place] else 0.0)


@compiled
def _walk(start, stop, rank, opens, steps, work, hop, clock, waiting, opened):  # type: ignore[no-untyped-def]
    """Runs steps ``start`` to ``stop`` in all lanes."""
    for s in range(start, stop):
        r, kind, other = np.uint32(rank[s]), np.uint32(steps[s, 0, KIND]), steps[s, 1, KIND]
        reads, writes = steps[s, 0, READS], steps[s, 0, WRITES]
        if opens[s] or other >= 0:
            _begin(r, steps[s], clock, waiting, hop)
            if opens[s]:
                opened[r] = clock[r]
            _work(r, kind, other, clock, work)
        elif reads >= 0:
            place = np.uint32(reads)
            for lane in range(LANES):
                clock[r, lane] = max(waiting[place, lane] + hop[lane], clock[r, lane]) + work[kind, lane]
        else:
            for lane in range(LANES):
                clock[r, lane] += work[kind, lane]
        if writes >= 0:
            place = np.uint32(writes)
            for lane in range(LANES):
                waiting[place, lane] = clock[r, lane]
        if other >= 0 and steps[s, 1, WRITES] >= 0:
            waiting[steps[s, 1, WRITES]] = clock[r]


@compiled
def _begin(r, step, clock, waiting, hop):  # type: ignore[no-untyped-def]
    """A slot begins when its rank is free and all that it needs has arrived."""
    for a in range(2):
        if step[a, READS] >= 0:
            for lane in range(LANES):
                clock[r, lane] = max(waiting[step[a, READS], lane] + hop[lane], clock[r, lane])


@compiled
def _work(r, kind, other, clock, work):  # type: ignore[no-untyped-def]
    """One action, or the two of a pair, which take the sum of both."""
    for lane in range(LANES):
        clock[r, lane] += work[kind, lane] if other < 0 else work[kind, lane] + work[other, lane]
