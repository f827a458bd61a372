"""One schedule for many points at once: times side by side in lanes.

Each step of a schedule's program is the same sum and maximum for a whole block of points. Once repetitions of a body move
everything by the same time, so will all that follow, and the rest is one multiplication. What is not that regular is
walked to its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.schedules.action import IntArray
from pipesim.schedules.compiled import compiled
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.programs import KIND, READS, WRITES, Program

LANES = 64
"""Points side by side: as few as let the compiler use vector registers; fewer are 2 to 3 times slower a point."""

LOOKS = 64
"""How many repetitions are compared before one is no longer expected to move everything alike: comparing must cost little
beside walking.
"""


class Finished(NamedTuple):
    """Shape (p, n) each: when a rank's first action starts and its last one ends; 0 for a rank without any."""

    first_s: FloatArray
    last_s: FloatArray


def run(
    program: Program, p: int, seconds: FloatArray, latency_s: FloatArray, blocks: IntArray | None = None
) -> Finished:
    """``seconds`` (ops, stages, n) of every kind of action, ``latency_s`` (n,) between two ranks, ``blocks`` (n,) of
    micro-batches more than the program's own.

    Equal to ``simulate`` to the last bit, but where a body repeats: there times are rounded to so small a unit that no
    sum is rounded any more, which changes the ends by less than 1e-9 of themselves unless a hop takes thousands of times
    as long as an action.
    """
    n = len(latency_s)
    blocks = np.zeros(n, np.int64) if blocks is None else blocks
    times, hops = np.ascontiguousarray(seconds).reshape(-1, n), latency_s
    if len(program.pieces) > 1:
        longer = 1 + blocks * program.block / program.m
        longest_s = longer * (4 * (program.actions @ times) / p + 2 * program.actions.max() * hops)
        unit_s = np.ldexp(1.0, np.frexp(longest_s)[1] - 52)  # sums stay exact if ranks are busy a quarter of the time
        times, hops = np.round(times / unit_s) * unit_s, np.round(hops / unit_s) * unit_s
    finished = Finished(np.zeros((p, n)), np.zeros((p, n)))
    steps = program.rank, program.opens, program.steps
    _run(*steps, program.places, program.pieces, program.grows, blocks, times, hops, *finished)
    return finished


@compiled
def _run(  # type: ignore[no-untyped-def]
    rank, opens, steps, places, pieces, grows, blocks, seconds, latency_s, first_s, last_s
):
    """``seconds`` (kinds, n); fills ``first_s`` and ``last_s``, (p, n), which are 0 when called."""
    n, ranks = seconds.shape[1], first_s.shape[0]
    work, hop, times = np.zeros((seconds.shape[0], LANES)), np.zeros(LANES), np.zeros(LANES, np.int64)
    clock, waiting, opened = np.zeros((ranks, LANES)), np.zeros((places, LANES)), np.zeros((ranks, LANES))
    was = np.zeros((ranks, LANES)), np.zeros((places, LANES))
    end = np.zeros((ranks, LANES)), np.zeros((places, LANES))
    for block in range(0, n, LANES):
        width = min(LANES, n - block)
        for lane in range(width):
            hop[lane] = latency_s[block + lane]
            for kind in range(len(work)):
                work[kind, lane] = seconds[kind, block + lane]
        _fill(clock, 0.0)
        _fill(waiting, 0.0)
        for piece in range(len(pieces)):
            start, stop = pieces[piece, 0], pieces[piece, 1]
            most = 0
            for lane in range(width):
                times[lane] = pieces[piece, 2] + grows[piece] * blocks[block + lane]
                most = max(most, times[lane])
            if most == 1:
                _walk(start, stop, rank, opens, steps, work, hop, clock, waiting, opened)
            else:
                body = rank, opens, steps, start, stop
                _repeat(body, times, width, work, hop, clock, waiting, opened, was, end)
                _copy(end[0], clock)
                _copy(end[1], waiting)
        for r in range(ranks):
            for lane in range(width):
                first_s[r, block + lane], last_s[r, block + lane] = opened[r, lane], clock[r, lane]


@compiled
def _copy(values, to):  # type: ignore[no-untyped-def]
    """Of one shape (rows, LANES). A slice would do, but takes seconds to compile."""
    for row in range(len(values)):
        for lane in range(LANES):
            to[row, lane] = values[row, lane]


@compiled
def _fill(to, value):  # type: ignore[no-untyped-def]
    for row in range(len(to)):
        for lane in range(LANES):
            to[row, lane] = value


@compiled
def _repeat(body, times, width, work, hop, clock, waiting, opened, was, end):  # type: ignore[no-untyped-def]
    """Runs a body ``times`` (LANES,) in the first lanes; leaves their states in ``end``.

    A lane's state is compared with one that is taken anew at powers of two, so that a cycle of any length is found
    (Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980); and there, with that of one repetition before.
    """
    rank, opens, steps, start, stop = body
    acts, written, lives = _state(rank, steps, start, stop, len(clock), len(waiting))
    lead = _first(acts)
    due, jumps, move = times.copy(), np.zeros(LANES, np.int64), np.zeros(LANES)
    moved, even = np.zeros(LANES, np.bool_), np.zeros(LANES, np.bool_)
    ago = clock.copy(), clock.copy()
    rates = np.zeros(len(clock)), np.zeros(len(waiting))
    before = clock.copy(), waiting.copy()
    _copy(clock, was[0])
    _copy(waiting, was[1])
    since, left, count = 0, width, 0
    while left > 0:
        count += 1
        anew = (count & (count - 1)) == 0
        if anew:
            _copy(clock, before[0])
            _copy(waiting, before[1])
        _walk(start, stop, rank, opens, steps, work, hop, clock, waiting, opened)
        if count <= LOOKS:
            _even(clock, ago, even)
            _compare(clock, was[0], acts, waiting, was[1], lives, moved)
        for lane in range(width):
            if due[lane] < count:
                continue
            looks = count <= LOOKS and jumps[lane] == 0 and count < due[lane]
            if looks and moved[lane]:
                jumps[lane], rest = divmod(times[lane] - count, count - since)
                due[lane], move[lane] = count + rest, clock[lead, lane] - was[0][lead, lane]
            elif (
                looks
                and anew
                and even[lane]
                and times[lane] - count
                <= _lasts(lane, body, work, hop, clock, waiting, before, acts, written, lives, rates)
            ):
                _settle(lane, times[lane] - count, rates, clock, waiting, acts, written, end[0], end[1])
                due[lane] = 0
                left -= 1
            if count == due[lane]:
                for r in range(len(clock)):
                    rates[0][r] = move[lane]
                for place in range(len(waiting)):
                    rates[1][place] = move[lane]
                _settle(lane, jumps[lane], rates, clock, waiting, acts, written, end[0], end[1])
                left -= 1
        if anew:
            since = count
            _copy(clock, was[0])
            _copy(waiting, was[1])


@compiled
def _lasts(lane, body, work, hop, clock, waiting, before, acts, written, lives, rates):  # type: ignore[no-untyped-def]
    """For how many repetitions every rank and place goes on at the rate of the last one; fills ``rates``.

    A repetition is run on times and their rates. Where two meet, the later counts, for as long as the other, where it is
    faster, has not caught up. If each then has moved by its rate, so it will until the first one is caught up with.
    """
    lasts = np.inf
    rank, _, steps, start, stop = body
    clock_rate, place_rate = rates
    at, there = np.zeros(len(clock)), np.zeros(len(waiting))
    at_rate, there_rate = np.zeros(len(clock)), np.zeros(len(waiting))
    for r in range(len(clock)):
        at[r], clock_rate[r] = clock[r, lane], clock[r, lane] - before[0][r, lane]
        at_rate[r] = clock_rate[r]
    for place in range(len(waiting)):
        there[place], place_rate[place] = waiting[place, lane], waiting[place, lane] - before[1][place, lane]
        there_rate[place] = place_rate[place]
    for s in range(start, stop):
        r = rank[s]
        for a in range(2):
            reads = steps[s, a, READS]
            if reads >= 0:
                ahead, faster = there[reads] + hop[lane] - at[r], there_rate[reads] - at_rate[r]
                if ahead * faster < 0:
                    lasts = min(lasts, 1 + np.floor(-ahead / faster))
                if ahead > 0 or (ahead == 0 and faster > 0):
                    at[r], at_rate[r] = at[r] + ahead, there_rate[reads]
        for a in range(2):
            if steps[s, a, KIND] >= 0:
                at[r] += work[steps[s, a, KIND], lane]
        for a in range(2):
            if steps[s, a, WRITES] >= 0:
                there[steps[s, a, WRITES]], there_rate[steps[s, a, WRITES]] = at[r], at_rate[r]
    same = True
    for r in range(len(acts)):
        same &= not acts[r] or (at[r] == clock[r, lane] + clock_rate[r] and at_rate[r] == clock_rate[r])
    for place in range(len(lives)):
        moved = there[place] == waiting[place, lane] + place_rate[place] and there_rate[place] == place_rate[place]
        same &= moved or not (lives[place] or written[place])
    return lasts if same else 0.0


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
def _even(clock, ago, even):  # type: ignore[no-untyped-def]
    """Fills ``even``: whether every rank has taken as long for the last repetition as for the one before; keeps clocks."""
    for lane in range(LANES):
        even[lane] = True
    for r in range(len(clock)):
        for lane in range(LANES):
            even[lane] &= clock[r, lane] - ago[0][r, lane] == ago[0][r, lane] - ago[1][r, lane]
    _copy(ago[0], ago[1])
    _copy(clock, ago[0])


@compiled
def _compare(clock, was_clock, acts, waiting, was_waiting, lives, moved):  # type: ignore[no-untyped-def]
    """Fills ``moved``: whether everything that a lane's next repetition builds on has moved by one time."""
    lead, some = _first(acts), False
    for lane in range(LANES):
        moved[lane] = True
    for r in range(len(acts)):
        if acts[r]:
            for lane in range(LANES):
                moved[lane] &= clock[r, lane] - was_clock[r, lane] == clock[lead, lane] - was_clock[lead, lane]
    for lane in range(LANES):
        some |= moved[lane]
    if not some:
        return
    for place in range(len(lives)):
        if lives[place]:
            for lane in range(LANES):
                at = waiting[place, lane] - was_waiting[place, lane]
                moved[lane] &= at == clock[lead, lane] - was_clock[lead, lane]


@compiled
def _first(acts):  # type: ignore[no-untyped-def]
    """The first rank that acts; 0 where none does."""
    for r in range(len(acts)):
        if acts[r]:
            return r
    return 0


@compiled
def _settle(lane, times, rates, clock, waiting, acts, written, end_clock, end_waiting):  # type: ignore[no-untyped-def]
    """A lane's state so many times later as all that repetitions move goes on at its rate."""
    for r in range(len(acts)):
        end_clock[r, lane] = clock[r, lane] + (times * rates[0][r] if acts[r] else 0.0)
    for place in range(len(written)):
        end_waiting[place, lane] = waiting[place, lane] + (times * rates[1][place] if written[place] else 0.0)


@compiled
def _walk(start, stop, rank, opens, steps, work, hop, clock, waiting, opened):  # type: ignore[no-untyped-def]
    """Runs steps ``start`` to ``stop`` in all lanes."""
    for s in range(start, stop):
        r, kind, other = np.uint32(rank[s]), np.uint32(steps[s, 0, KIND]), steps[s, 1, KIND]
        reads, writes = steps[s, 0, READS], steps[s, 0, WRITES]
        if opens[s] or other >= 0:
            _begin(r, steps[s], clock, waiting, hop)
            if opens[s]:
                for lane in range(LANES):
                    opened[r, lane] = clock[r, lane]
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
            place = np.uint32(steps[s, 1, WRITES])
            for lane in range(LANES):
                waiting[place, lane] = clock[r, lane]


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
