"""Orders in which ranks wait for each other for ever, told as the cycle of waiting actions."""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.rules import dependencies


class Deadlock(ValueError):
    """An order in which ranks wait for each other for ever; the message names the cycle."""


def describe(schedule: Schedule, *, head: IntArray, unsent: IntArray) -> str:
    """``head`` is each rank's first action that never ran, ``unsent`` how many messages it could not hand over."""
    needs, rank_of = dependencies(schedule), schedule.rank_of()
    ran = np.arange(len(schedule)) < np.repeat(head, np.diff(schedule.rank_start))
    waits_for = np.full(schedule.p, -1)
    lines = {}
    for rank in range(schedule.p):
        if unsent[rank]:
            last = int(head[rank]) - 1
            slot = (last - 1, last) if last > schedule.rank_start[rank] and schedule.joined[last - 1] else (last,)
            readers = (int(i) for sent in slot for i in np.flatnonzero(needs.remote == sent) if not ran[i])
            reader = next((i for i in readers if rank_of[i] != rank), -1)
            what = "cannot hand over its result before {} of rank {} asks for it"
            first = last
        elif head[rank] < schedule.rank_start[rank + 1]:
            first = int(head[rank])
            slot = (first, first + 1) if schedule.joined[first] else (first,)
            needed = (int(n) for i in slot for n in (needs.remote[i], needs.local[i]))
            reader = next((n for n in needed if n >= 0 and not ran[n]), -1)
            what = "waits for {} of rank {}"
        else:
            continue
        if reader >= 0:
            waits_for[rank] = rank_of[reader]
            lines[rank] = (
                f"rank {rank}: {schedule.action(first)} {what.format(schedule.action(reader), rank_of[reader])}"
            )
        else:
            lines[rank] = f"rank {rank}: {schedule.action(first)} waits for a result that no action makes"
    told = [lines[rank] for rank in cycle(waits_for) or lines]
    return "\n".join([f"{schedule.name} deadlocks:", *told])


def cycle(waits_for: IntArray) -> list[int]:
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
