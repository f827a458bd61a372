"""One schedule for many points at once: its actions in an order that suits all of them, times side by side in lanes.

Which results an action needs does not depend on times, so one order of work serves every point, and each step of it is
the same sum and maximum for a whole block of points. Equal to ``simulate`` to the last bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import Schedule
from pipesim.schedules.compiled import compiled
from pipesim.schedules.rules import dependencies
from pipesim.simulate import engine
from pipesim.simulate.kernel import FloatArray

LANES = 64
"""Points side by side: as few as let the compiler use vector registers; fewer are 2 to 3 times slower a point."""


class Program(NamedTuple):
    """A schedule as steps, shape (steps, 2, 3): for the one or two actions of a slot KIND, READS and WRITES.

    KIND is ``op * stages + stage``; READS and WRITES are places where results that travel between ranks wait, and -1 is
    none. A place is used again when its result has been read, so that few of them are needed. ``rank`` is (steps,),
    ``opens`` says that a step is its rank's first.
    """

    rank: NDArray[np.int32]
    opens: NDArray[np.bool_]
    steps: NDArray[np.int32]
    places: int


KIND, READS, WRITES = 0, 1, 2


class Finished(NamedTuple):
    """Shape (p, n) each: when a rank's first action starts and its last one ends; 0 for a rank without any."""

    first_s: FloatArray
    last_s: FloatArray


def run(schedule: Schedule, seconds: FloatArray, latency_s: FloatArray) -> Finished:
    """``seconds`` (ops, stages, n) of every kind of action, ``latency_s`` (n,) between two ranks.

    Raises ``Deadlock`` with the cycle of waiting actions.
    """
    program, n = compile_schedule(schedule), len(latency_s)
    finished = Finished(np.zeros((schedule.p, n)), np.zeros((schedule.p, n)))
    waiting = np.empty((max(program.places, 1), LANES))
    lanes = np.ascontiguousarray(seconds).reshape(-1, n)
    _run(program.rank, program.opens, program.steps, lanes, latency_s, waiting, *finished)
    return finished


@lru_cache(maxsize=256)
def compile_schedule(schedule: Schedule) -> Program:
    """Steps in the order of their starts if every action took one second; raises ``Deadlock`` where none exists."""
    setup = engine.prepare(schedule, 1.0, 0.5, 0.5)
    start_s = engine.run(setup, engine.fresh_state(setup)).start_s
    heads = np.flatnonzero(np.r_[True, ~schedule.joined[:-1]])
    heads = heads[np.argsort(start_s[heads], kind="stable")]
    rank_of, remote = schedule.rank_of(), dependencies(schedule).remote
    travels = (remote >= 0) & (rank_of[remote] != rank_of)
    source = np.where(travels, remote, -1)
    steps = np.full((len(heads), 2, 3), -1, np.int32)
    read = np.zeros(len(schedule), np.bool_)
    read[source[travels]] = True
    kind = schedule.op.astype(np.int32) * schedule.stages + schedule.stage
    place = np.full(len(schedule), -1, np.int32)
    free = np.empty(len(schedule), np.int32)
    places = _place(heads, schedule.joined, kind, source, read, place, free, steps)
    opens = np.zeros(len(heads), np.bool_)
    opens[np.unique(rank_of[heads], return_index=True)[1]] = True
    return Program(rank_of[heads].astype(np.int32), opens, steps, int(places))


@compiled
def _place(heads, joined, kind, source, read, place, free, steps):  # type: ignore[no-untyped-def]
    """Gives every result that travels a place until it is read; fills ``steps``, returns how many places there are."""
    places, unused = 0, 0
    for s in range(len(heads)):
        slot = 2 if joined[heads[s]] else 1
        for a in range(slot):
            i = heads[s] + a
            steps[s, a, KIND] = kind[i]
            if source[i] >= 0:
                steps[s, a, READS] = place[source[i]]
                free[unused] = place[source[i]]
                unused += 1
        for a in range(slot):
            i = heads[s] + a
            if read[i]:
                if unused > 0:
                    unused -= 1
                    place[i] = free[unused]
                else:
                    place[i] = places
                    places += 1
                steps[s, a, WRITES] = place[i]
    return places


@compiled
def _run(rank, opens, steps, seconds, latency_s, waiting, first_s, last_s):  # type: ignore[no-untyped-def]
    """``seconds`` (kinds, n); fills ``first_s`` and ``last_s``, (p, n), which are 0 when called."""
    n = seconds.shape[1]
    work, clock, hop = np.zeros((seconds.shape[0], LANES)), np.zeros((first_s.shape[0], LANES)), np.zeros(LANES)
    for block in range(0, n, LANES):
        width = min(LANES, n - block)
        work[:, :width] = seconds[:, block : block + width]
        hop[:width] = latency_s[block : block + width]
        clock[:] = 0.0
        for s in range(len(rank)):
            r, kind, other = np.uint32(rank[s]), np.uint32(steps[s, 0, KIND]), steps[s, 1, KIND]
            reads, writes = steps[s, 0, READS], steps[s, 0, WRITES]
            if opens[s] or other >= 0:
                _begin(r, steps[s], clock, waiting, hop)
                if opens[s]:
                    first_s[r, block : block + width] = clock[r, :width]
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
        last_s[:, block : block + width] = clock[:, :width]


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
