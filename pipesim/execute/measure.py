"""Measures a job on its real ranks: what each action takes, what each link takes, and whole steps of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from pipesim.execute import distributed, rank, threads
from pipesim.execute.alone import Alone, alone
from pipesim.execute.batch import check_batches, random_batches
from pipesim.execute.hops import Hop, hops
from pipesim.execute.job import Job, Place, check
from pipesim.execute.launch import Seat, run_processes
from pipesim.execute.merge import Executed, together
from pipesim.execute.rank import Outcome, Task
from pipesim.execute.reference import check_state, initial_state
from pipesim.execute.ties import Ties
from pipesim.simulate.kernel import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one rank brings back: a calibration for each pass, and an outcome with a step for each."""

    alone: list[Alone]
    hops: Mapping[tuple[int, int], Hop]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """``executed`` has one step for each repeat, all from the same weights; its gradients and weights are the last's.

    ``alone_s`` are the seconds of every action without waiting, shape (repeats, actions), of replica 0, tensor rank 0;
    ``hops`` are by pairs of pipeline ranks, the lower first. ``core_share`` is the share of each calibration for which
    the worst placed rank had a core, shape (repeats,): below 1 where other programs, or ranks, wanted it too.
    """

    job: Job
    executed: Executed
    alone_s: FloatArray
    hops: Mapping[tuple[int, int], Hop]
    core_share: FloatArray


def measure(
    job: Job,
    state: Mapping[str, Tensor] | None = None,
    batches: Sequence[Tensor] | None = None,
    *,
    repeats: int = 5,
    warm_up: int = 1,
    mode: str = "processes",
    timeout_s: float = 600.0,
) -> Measured:
    """``warm_up + repeats`` times a calibration pass and then a step; those of the warm-up are dropped.

    The two alternate, so that a machine that slows down slows both. Other arguments and errors as ``run.execute``;
    ``job.steps`` must be 1.
    """
    check(job)
    if found := _problems(job, repeats, warm_up, mode):
        raise ValueError("\n".join(found))
    state = initial_state(job) if state is None else state
    check_state(job, state)
    batches = random_batches(job) if batches is None else batches
    check_batches(job, batches)
    taken = MODES[mode](rank.tasks(job, state, batches), warm_up + repeats, timeout_s)
    return _kept(job, taken, repeats)


def work(task: Task, ties: Ties, passes: int) -> Taken:
    """What each rank does."""
    found = hops(task, ties)
    calibrations, outcomes = [], []
    for _ in range(passes):
        calibrations.append(alone(task, ties))
        outcomes.append(rank.work(task, ties))
    steps = [step for outcome in outcomes for step in outcome.steps]
    return Taken(alone=calibrations, hops=found, outcome=replace(outcomes[-1], steps=steps))


def _problems(job: Job, repeats: int, warm_up: int, mode: str) -> list[str]:
    found = []
    for name, value, least in (("repeats", repeats, 1), ("warm_up", warm_up, 0)):
        if value < least:
            found.append(f"{name}={value} must be at least {least}. Nearest: {least}.")
    if job.steps != 1:
        found.append(f"steps={job.steps}: every repeat is one step from the same weights. Nearest: steps=1.")
    if mode not in MODES:
        found.append(f"mode={mode!r} must be one of {', '.join(MODES)}. Nearest: processes.")
    return found


def _in_threads(tasks: Sequence[Task], passes: int, timeout_s: float) -> list[Taken]:
    return threads.run(tasks, timeout_s, partial(work, passes=passes))


def _in_processes(tasks: Sequence[Task], passes: int, timeout_s: float) -> list[Taken]:
    return run_processes(process, [(task, passes) for task in tasks], timeout_s=timeout_s)


def process(seat: Seat, given: tuple[Task, int]) -> Taken:
    """The whole life of one process."""
    task, passes = given
    with distributed.tied(seat, task) as ties:
        return work(task, ties, passes)


MODES: dict[str, Callable[[Sequence[Task], int, float], list[Taken]]] = {
    "processes": _in_processes,
    "threads": _in_threads,
}


def _kept(job: Job, taken: Sequence[Taken], repeats: int) -> Measured:
    outcomes = [replace(each.outcome, steps=each.outcome.steps[-repeats:]) for each in taken]
    first = [each for each in taken if each.outcome.place[1:] == Place(0, 0, 0)[1:]]
    return Measured(
        job=job,
        executed=together(replace(job, steps=repeats), outcomes),
        alone_s=np.concatenate([[passed.seconds for passed in each.alone[-repeats:]] for each in first], axis=1),
        hops={pair: hop for each in first for pair, hop in each.hops.items()},
        core_share=np.min([[passed.core_share for passed in each.alone[-repeats:]] for each in taken], axis=0),
    )
