"""Facts about training that every order must keep: what depends on what, and what makes a schedule legal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.compiled import compiled


class IllegalSchedule(ValueError):
    """An order that breaks a rule; the message shows the grid with an arrow at the bad step."""


class Results(NamedTuple):
    """The rules of training as tables of shape (ops, stages), for an action and the results of its own micro-batch.

    Results have rows: row s is the output of stage s, row ``stages + s`` the gradient at its input. ``remote`` and
    ``local`` are the rows that an action needs, from the neighbour stage and from its own; ``made`` is the row that it
    fills. -1 is none.
    """

    remote: NDArray[np.int32]
    local: NDArray[np.int32]
    made: NDArray[np.int32]


def results(stages: int) -> Results:
    """F of stage s needs F of stage s - 1; B or I of stage s needs F of s and B or I of stage s + 1; W needs I."""
    output = np.arange(stages, dtype=np.int32)
    gradient = stages + output
    remote, local, made = np.full((3, len(Op), stages), -1, np.int32)
    remote[Op.F, 1:] = output[:-1]
    made[Op.F] = output
    for op in (Op.B, Op.I):
        remote[op, :-1] = gradient[1:]
        local[op] = output
        made[op] = gradient
    local[Op.W] = gradient
    return Results(remote, local, made)


class Dependencies(NamedTuple):
    """For each action the index of up to two actions that must end first, or -1. Shape (actions,) each.

    ``remote`` is the neighbour stage's action, whose result travels; ``local`` is of the same stage and micro-batch.
    """

    remote: NDArray[np.int32]
    local: NDArray[np.int32]


def dependencies(schedule: Schedule) -> Dependencies:
    """Which actions make what ``results`` says is needed; -1 too where no action does (see ``validate``)."""
    found = np.empty((2, len(schedule)), np.int32)
    made_by = np.full((2 * schedule.stages, schedule.m), -1, np.int32)
    _find(schedule.stage, schedule.op, schedule.micro_batch, results(schedule.stages), made_by, found)
    return Dependencies(found[0], found[1])


@compiled
def _find(stage, op, micro_batch, rows, made_by, found):  # type: ignore[no-untyped-def]
    """Fills ``found``, shape (2, actions). ``made_by`` is all -1 when called."""
    remote, local, made = rows
    for i in range(len(op) - 1, -1, -1):  # of several that make one result the first counts
        row = made[op[i], stage[i]]
        if row >= 0:
            made_by[row, micro_batch[i]] = i
    for i in range(len(op)):
        row = remote[op[i], stage[i]]
        found[0, i] = made_by[row, micro_batch[i]] if row >= 0 else -1
        row = local[op[i], stage[i]]
        found[1, i] = made_by[row, micro_batch[i]] if row >= 0 else -1


def validate(schedule: Schedule) -> None:
    """Raises ``IllegalSchedule`` unless each stage runs each micro-batch once, whole or split, in a legal order.

    A deadlock across ranks is found where the schedule is simulated.
    """
    _check_every_action_once(schedule)
    _check_pairs(schedule)
    index, rank = np.arange(len(schedule)), schedule.rank_of()
    local = dependencies(schedule).local
    for i in np.flatnonzero((local >= 0) & (rank != rank[local])):
        needed = schedule.action(int(local[i]))
        raise IllegalSchedule(_picture(schedule, int(i), f"{schedule.action(int(i))} needs {needed}, of another rank"))
    for i in np.flatnonzero(local >= index):
        needed = schedule.action(int(local[i]))
        raise IllegalSchedule(_picture(schedule, int(i), f"{schedule.action(int(i))} comes before {needed}"))
    if schedule.segments > 1:
        _check_segments(schedule)


def _check_every_action_once(schedule: Schedule) -> None:
    if len(schedule) < 2 * schedule.stages * schedule.m:  # and do not make tables for a micro-batch 999999999
        ran = np.unique((schedule.stage.astype(np.int64) * schedule.m + schedule.micro_batch)[schedule.op == Op.F])
        gap = np.flatnonzero(ran != np.arange(len(ran)))
        first = int(gap[0]) if len(gap) else len(ran)
        if first < schedule.stages * schedule.m:
            stage, micro_batch = divmod(first, schedule.m)
            raise IllegalSchedule(_missing(schedule, stage, "F", micro_batch))
    forward, backward, weight = tables = _tables(schedule)
    table_of_op = np.array([0, 1, 1, 2])
    first = np.stack(tables)[table_of_op[schedule.op], schedule.stage, schedule.micro_batch]
    for i in np.flatnonzero(first != np.arange(len(schedule))):
        raise IllegalSchedule(_picture(schedule, int(i), f"{schedule.action(int(i))} runs a second time"))
    for stage, micro_batch in np.argwhere(forward < 0):
        raise IllegalSchedule(_missing(schedule, int(stage), "F", int(micro_batch)))
    for stage, micro_batch in np.argwhere(backward < 0):
        raise IllegalSchedule(_missing(schedule, int(stage), "B", int(micro_batch)))
    split = schedule.op[backward] == Op.I
    for stage, micro_batch in np.argwhere(split & (weight < 0)):
        raise IllegalSchedule(_missing(schedule, int(stage), "W", int(micro_batch)))
    for stage, micro_batch in np.argwhere(~split & (weight >= 0)):
        alone = int(weight[stage, micro_batch])
        problem = f"{schedule.action(alone)} has no I; its stage has a whole B"
        raise IllegalSchedule(_picture(schedule, alone, problem))


def _check_pairs(schedule: Schedule) -> None:
    """An overlapped pair is a forward and a backward of one rank, of which neither needs the other."""
    for i in np.flatnonzero(schedule.joined).tolist():
        if i + 1 in schedule.rank_start:
            raise IllegalSchedule(_picture(schedule, i, f"{schedule.action(i)} is overlapped with nothing"))
        first, second = schedule.action(i), schedule.action(i + 1)
        if schedule.joined[i + 1] or first.op != Op.F or second.op not in (Op.B, Op.I):
            problem = f"{first} and {second} are no pair; a forward overlaps one backward"
            raise IllegalSchedule(_picture(schedule, i, problem))
        if (first.stage, first.micro_batch) == (second.stage, second.micro_batch):
            raise IllegalSchedule(_picture(schedule, i, f"{second} needs {first} and cannot overlap it"))


def _check_segments(schedule: Schedule) -> None:
    """On each stage a segment's forward comes after those of the segments before it, and its gradient before theirs."""
    forward, backward, _ = _tables(schedule)
    for table, sign, rule in ((forward, 1, "before"), (backward, -1, "after")):
        steps = sign * np.diff(table.reshape(schedule.stages, -1, schedule.segments), axis=2)
        for stage, sequence, k in np.argwhere(steps < 0):
            late = int(table[stage, sequence * schedule.segments + k + (sign > 0)])
            other = int(table[stage, sequence * schedule.segments + k + (sign < 0)])
            problem = f"{schedule.action(late)} comes before {schedule.action(other)}, a segment {rule} it"
            raise IllegalSchedule(_picture(schedule, late, problem))


def _tables(schedule: Schedule) -> tuple[IntArray, IntArray, IntArray]:
    """Where F, B or I, and W of each (stage, micro-batch) stand, -1 where absent; the first of several."""
    shape = (schedule.stages, schedule.m)
    found = []
    for ops in ((Op.F,), (Op.B, Op.I), (Op.W,)):
        table = np.full(shape, -1, np.int64)
        where = np.flatnonzero(np.isin(schedule.op, ops))[::-1]
        table[schedule.stage[where], schedule.micro_batch[where]] = where
        found.append(table)
    return found[0], found[1], found[2]


def _missing(schedule: Schedule, stage: int, op: str, micro_batch: int) -> str:
    what = f"{stage}{op}{micro_batch} is missing: every stage runs every micro-batch forward and backward"
    return f"{what}.\n{_grid(schedule)}"


def _picture(schedule: Schedule, bad: int, problem: str) -> str:
    rank = int(schedule.rank_of()[bad])
    return f"{problem} (rank {rank}, step {bad - int(schedule.rank_start[rank])}).\n{_grid(schedule, bad)}"


def _grid(schedule: Schedule, bad: int | None = None, around: int = 8) -> str:
    """The ranks' actions in columns; with ``bad``, those around it and an arrow under it."""
    steps = np.diff(schedule.rank_start)
    rank_of = schedule.rank_of()
    at = 0 if bad is None else int(bad - schedule.rank_start[rank_of[bad]])
    first, last = max(0, at - around), min(int(steps.max(initial=0)), at + around + 1)
    width = max(len(str(schedule.action(i))) for i in range(len(schedule)))
    lines = []
    for rank in range(schedule.p):
        start = int(schedule.rank_start[rank])
        names = [str(schedule.action(start + k)) if k < steps[rank] else "" for k in range(first, last)]
        head = f"rank {rank:<3}|" + (" … " if first else " ")
        lines.append((head + " ".join(name.rjust(width) for name in names)).rstrip())
        if bad is not None and rank == rank_of[bad]:
            lines.append(" " * (len(head) + (at - first) * (width + 1)) + "^" * width)
    return "\n".join(lines)
