"""The compiled heart of the simulator: the earliest start of every action when each rank keeps its order.

It knows no schedule by name and no rule of training: actions, which results they need, seconds and links come in as
arrays. Whatever is shared (a rank, a link's direction) is used in an order that the schedule fixes, so no event queue
is needed and any order of work gives the same times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray
from pipesim.schedules.compiled import compiled
from pipesim.simulate.prefetch import prefetch

FloatArray = NDArray[np.float64]


AHEAD = 12
"""How many actions ahead of use memory is asked for."""

KIND, MICRO_BATCH = 0, 1
"""The columns of ``Order.plan``."""

REMOTE, LOCAL, MADE = 0, 1, 2
"""The columns of ``Order.rows``."""


class Order(NamedTuple):
    """A schedule as the kernel walks it: what it reads of an action lies side by side in ``plan``, shape (actions, 2).

    KIND is ``2 * (op * stages + stage)``, plus 1 if the action runs overlapped with the next. Unsigned numbers spare
    the kernel the look for negative indices. ``rows``, shape (ops * stages, 3), is ``rules.results``.
    """

    rank_start: IntArray
    plan: NDArray[np.uint32]
    rows: NDArray[np.int32]


class Times(NamedTuple):
    """``seconds``: (ops * stages, 1 or m). ``pair_s``: (1, 1) or (stages, stages), NaN for the sum of a pair's two."""

    seconds: FloatArray
    pair_s: FloatArray


class Wires(NamedTuple):
    """``latency_s`` and ``s_per_byte``: (1, 1), or (p, p) sender by reader. ``message_bytes``: (results,).

    ``reader`` (results, m) is the rank that needs each result, or -1; unused, and (1, 1), unless ``transfers``.
    """

    latency_s: FloatArray
    s_per_byte: FloatArray
    message_bytes: FloatArray
    reader: NDArray[np.int32]
    hops: bool  # something lies between two ranks: latency or transfers
    transfers: bool  # messages take turns on their link, or need both sides, or hold up the sender
    rendezvous: bool
    blocking: bool


class State(NamedTuple):
    """When each rank (p,) and each link (p, p; 1, 1 without transfers) is free: carried from iteration to iteration."""

    clock_s: FloatArray
    link_free_s: FloatArray


class Record(NamedTuple):
    """What is filled: ``span_s`` (actions, 2), start and end of each, and tables (results, m) of the results.

    ``left_s`` is when a result has left its rank; all NaN when the kernel is called, and -1 - rank while a rank waits.
    ``sent_s`` is when it went on the wire, (1, 1) without transfers. ``ran_on`` is its rank, (1, 1) without hops.
    """

    span_s: FloatArray
    left_s: FloatArray
    sent_s: FloatArray
    ran_on: NDArray[np.int32]


@compiled
def find_readers(order, reader):  # type: ignore[no-untyped-def]
    """Fills ``reader``, which is all -1 when called: by the rules of training a result has one remote reader."""
    rank_start, plan, rows = order
    for rank in range(len(rank_start) - 1):
        for i in range(rank_start[rank], rank_start[rank + 1]):
            row = rows[plan[i, KIND] >> 1, REMOTE]
            if row >= 0:
                reader[row, plan[i, MICRO_BATCH]] = rank


@compiled
def run(order, seconds, pair_s, latency_s, wires, state, record, work):  # type: ignore[no-untyped-def]
    """Fills ``record``, advances ``state`` and returns how many ranks have finished; ``work`` is (3, p) scratch.

    ``seconds`` is (ops * stages,) or (ops * stages, m). ``pair_s`` is None without pairs, ``latency_s`` without anything
    between ranks, ``wires`` without transfers: numba compiles each case for itself and leaves out what it does not need.

    ``work[0]`` is each rank's next action, ``work[1]`` how many messages a blocked sender still has to hand over. A
    rank that must wait leaves its number with the result that it waits for, which wakes it: the work is linear in the
    actions, and what never runs is a deadlock.
    """
    rank_start, plan, rows = order
    clock_s, link_free_s = state
    span_s, left_s, sent_s, ran_on = record
    head, unsent, stack = work[0], work[1], work[2]
    ranks = len(rank_start) - 1
    for rank in range(ranks):
        head[rank], unsent[rank], stack[rank] = rank_start[rank], 0, ranks - 1 - rank
    plan_at, span_at, left_at = plan.ctypes.data, span_s.ctypes.data, left_s.ctypes.data
    depth = ranks
    while depth > 0:
        depth -= 1
        rank = stack[depth]
        first, stop, free_s = head[rank], rank_start[rank + 1], clock_s[rank]
        while first < stop:
            # a slot, one action or a pair, starts when its rank is free and what it needs has arrived
            last = first if pair_s is None else first + (plan[first, KIND] & 1)
            start_s, duration_s, missing = free_s, 0.0, False
            for i in range(first, last + 1):
                kind, k = plan[i, KIND] >> 1, plan[i, MICRO_BATCH]
                row = rows[kind, LOCAL]
                if row >= 0 and not left_s[row, k] >= 0:
                    missing = True  # for ever: the order itself is illegal
                row = rows[kind, REMOTE]
                if row >= 0:
                    arrival_s = left_s[row, k]
                    if not arrival_s >= 0:
                        left_s[row, k] = -1.0 - rank
                        missing = True
                        break
                    if latency_s is not None:
                        arrival_s += _hop_s(ran_on[row, k], rank, latency_s)
                    start_s = max(start_s, arrival_s)
                duration_s += seconds[kind] if seconds.ndim == 1 else seconds[kind, k]
            if missing:
                break
            if wires is not None and wires.rendezvous:
                arrival_s, depth = _receive(
                    first, last, rank, free_s, order, wires, state, record, unsent, stack, depth
                )
                start_s = max(start_s, arrival_s)
            if pair_s is not None and last > first:
                a, b = (plan[first, KIND] >> 1) % len(pair_s), (plan[last, KIND] >> 1) % len(pair_s)
                duration_s = duration_s if np.isnan(pair_s[a, b]) else pair_s[a, b]
            free_s = end_s = start_s + duration_s

            # its results leave, and wake the rank that waits for them
            prefetch(np.uintp(plan_at + 8 * (first + AHEAD)))
            prefetch(np.uintp(span_at + 16 * (first + AHEAD)))
            for i in range(first, last + 1):
                span_s[i, 0], span_s[i, 1] = start_s, end_s
                row, k = rows[plan[i, KIND] >> 1, MADE], plan[i, MICRO_BATCH]
                if row < 0:
                    continue
                prefetch(np.uintp(left_at + 8 * (row * left_s.shape[1] + k + AHEAD)))
                gone_s = end_s
                if latency_s is not None:
                    ran_on[row, k] = rank
                if wires is not None:
                    sent_s[row, k] = end_s
                    to = wires.reader[row, k]
                    if to >= 0 and to != rank:
                        if not wires.rendezvous:
                            gone_s = _pass(rank, to, row, k, wires, link_free_s, sent_s)
                            free_s = max(free_s, gone_s) if wires.blocking else free_s
                        elif wires.blocking:
                            unsent[rank] += 1
                            stop = last + 1  # it stands still until its messages have left
                if left_s[row, k] < 0:
                    stack[depth] = int(-1.0 - left_s[row, k])
                    depth += 1
                left_s[row, k] = gone_s
            first = last + 1
        head[rank], clock_s[rank] = first, free_s
    finished = 0
    for rank in range(ranks):
        finished += int(head[rank] == rank_start[rank + 1] and unsent[rank] == 0)
    return finished


@compiled
def _hop_s(sender, reader, latency_s):  # type: ignore[no-untyped-def]
    """Seconds of latency between two ranks, none from a rank to itself."""
    if sender == reader:
        return 0.0
    return latency_s[sender, reader] if len(latency_s) > 1 else latency_s[0, 0]


@compiled
def _pass(sender, reader, row, k, wires, link_free_s, sent_s):  # type: ignore[no-untyped-def]
    """When a message that may go on the wire at ``sent_s`` has left; the link is taken until then."""
    sent_s[row, k] = max(sent_s[row, k], link_free_s[sender, reader])
    a, b = (sender, reader) if len(wires.s_per_byte) > 1 else (0, 0)
    gone_s = sent_s[row, k] + wires.message_bytes[row] * wires.s_per_byte[a, b]
    link_free_s[sender, reader] = gone_s
    return gone_s


@compiled
def _receive(first, last, rank, free_s, order, wires, state, record, unsent, stack, depth):  # type: ignore[no-untyped-def]
    """Rendezvous: the slot's messages leave now that the rank asks for them, and senders that waited for that go on.

    Two messages keep the order in which they were made. Returns when the last is there and the stack's new depth.
    """
    plan, rows = order.plan, order.rows
    _, left_s, sent_s, ran_on = record
    clock_s, link_free_s = state
    row, other = rows[plan[first, KIND] >> 1, REMOTE], rows[plan[last, KIND] >> 1, REMOTE]
    swap = row >= 0 and other >= 0 and left_s[other, plan[last, MICRO_BATCH]] < left_s[row, plan[first, MICRO_BATCH]]
    there_s = 0.0
    for turn in range(first, last + 1):
        i = first + last - turn if swap else turn
        row, k = rows[plan[i, KIND] >> 1, REMOTE], plan[i, MICRO_BATCH]
        if row < 0 or ran_on[row, k] == rank:
            continue
        sender = ran_on[row, k]
        sent_s[row, k] = max(left_s[row, k], free_s)
        left_s[row, k] = _pass(sender, rank, row, k, wires, link_free_s, sent_s)
        there_s = max(there_s, left_s[row, k] + _hop_s(sender, rank, wires.latency_s))
        if wires.blocking:
            clock_s[sender] = max(clock_s[sender], left_s[row, k])
            unsent[sender] -= 1
            if unsent[sender] == 0:
                stack[depth] = sender
                depth += 1
    return there_s, depth
