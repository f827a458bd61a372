"""The compiled heart of the simulator: earliest start of every action when each rank keeps its order."""

from __future__ import annotations

import numba
import numpy as np

from pipesim.schedules.action import IntArray


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def run(rank_start, remote, local, joined, rank_of, duration_s, latency_s, start_s, end_s):  # type: ignore[no-untyped-def]
    """Fills ``start_s`` and ``end_s`` (all NaN when called) and returns how many actions of each rank have run.

    An action starts when its rank is free, its local dependency has ended and its remote one has arrived: ended, plus
    ``latency_s`` where it ran on another rank. A joined pair is one slot. Ranks that must wait are woken by the action
    they wait for, so the work is linear in the number of actions; what never runs is a deadlock.
    """
    ranks = len(rank_start) - 1
    head = rank_start[:-1].copy()
    clock_s = np.zeros(ranks)
    waiting = np.full(len(duration_s), -1, np.int64)  # the rank that an action will wake
    ready = np.arange(ranks - 1, -1, -1)
    stack = np.empty(ranks, np.int64)
    stack[:ranks] = ready
    depth = ranks
    while depth > 0:
        depth -= 1
        rank = stack[depth]
        while head[rank] < rank_start[rank + 1]:
            first = head[rank]
            last = first + 1 if joined[first] else first
            at_s = clock_s[rank]
            blocker = -1
            for i in range(first, last + 1):
                for kind in range(2):
                    needed = remote[i] if kind == 0 else local[i]
                    if needed < 0:
                        continue
                    if np.isnan(end_s[needed]):
                        blocker = needed
                        break
                    arrival_s = end_s[needed]
                    if rank_of[needed] != rank:
                        arrival_s += latency_s
                    at_s = max(at_s, arrival_s)
                if blocker >= 0:
                    break
            if blocker >= 0:
                waiting[blocker] = rank
                break
            done_s = at_s + duration_s[first]
            for i in range(first, last + 1):
                start_s[i] = at_s
                end_s[i] = done_s
                if waiting[i] >= 0:
                    stack[depth] = waiting[i]
                    depth += 1
                    waiting[i] = -1
            clock_s[rank] = done_s
            head[rank] = last + 1
    return head - rank_start[:-1]


def deadlock_cycle(waits_for: IntArray) -> list[int]:
    """The ranks of one cycle in ``rank -> rank it waits for`` (-1: it waits for nobody); empty if there is none."""
    for first in range(len(waits_for)):
        path: list[int] = []
        rank = first
        while rank >= 0 and rank not in path:
            path.append(rank)
            rank = int(waits_for[rank])
        if rank >= 0:
            return path[path.index(rank) :]
    return []
