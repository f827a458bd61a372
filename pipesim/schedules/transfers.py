"""Which results travel between ranks, and where in each rank's list they are sent and received.

A rank never posts its own receives: the sender puts each into the receiver's list when it sends. So every rank's list
is a part of one order of all transfers in which each comes after all that its sender needs; no two ranks can wait for
each other, even where a message leaves only when the reader asks for it and messages of two ranks cannot overtake.
This is the lowering of ``torch.distributed.pipelining`` 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from pipesim.schedules import rules
from pipesim.schedules.action import Schedule

T = TypeVar("T")


class Send(NamedTuple):
    """What action ``source`` of this rank made goes to action ``target`` of another; both index the schedule."""

    source: int
    target: int


class Receive(NamedTuple):
    """What action ``source`` of another rank made comes to action ``target`` of this one."""

    source: int
    target: int


class Slot(NamedTuple):
    """The actions, one or an overlapped pair, that a rank runs next; they index the schedule."""

    actions: tuple[int, ...]


def slots(schedule: Schedule, rank: int) -> list[Slot]:
    """What the rank runs, in order."""
    found, i, stop = [], int(schedule.rank_start[rank]), int(schedule.rank_start[rank + 1])
    while i < stop:
        found.append(Slot(tuple(range(i, i + 1 + int(schedule.joined[i])))))
        i += len(found[-1].actions)
    return found


def weave(schedule: Schedule, todo: Sequence[Sequence[tuple[T, tuple[int, ...]]]]) -> list[list[T | Send | Receive]]:
    """Each rank's steps with its sends and receives put in. A step comes with the actions that it runs, if any.

    Raises ``ValueError`` if ranks wait for each other for ever.
    """
    rank_of = schedule.rank_of().tolist()
    remote = rules.dependencies(schedule).remote.tolist()
    reader = [-1] * len(schedule)
    for i, needed in enumerate(remote):
        if needed >= 0 and rank_of[needed] != rank_of[i]:
            reader[needed] = i
    woven: list[list[T | Send | Receive]] = [[] for _ in todo]
    head, ran = [0] * schedule.p, [False] * len(schedule)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(todo):
            if head[rank] == len(steps):
                continue
            step, actions = steps[head[rank]]
            if not all(remote[i] < 0 or ran[remote[i]] for i in actions):
                continue
            woven[rank].append(step)
            for i in actions:
                ran[i] = True
                if reader[i] >= 0:
                    woven[rank].append(Send(i, reader[i]))
                    woven[rank_of[reader[i]]].append(Receive(i, reader[i]))
            head[rank] += 1
            moved = True
    if not all(ran):
        stuck = schedule.action(ran.index(False))
        raise ValueError(f"{schedule.name} deadlocks: {stuck} never gets what it needs. Simulate it to see the cycle.")
    return woven
