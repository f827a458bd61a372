"""``execute``: a job on real ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from pipesim.execute import distributed, rank, threads
from pipesim.execute.batch import check_batches, random_batches
from pipesim.execute.job import Job, check
from pipesim.execute.merge import Executed, together
from pipesim.execute.rank import Outcome, Task
from pipesim.execute.reference import check_state, initial_state

MODES: dict[str, Callable[[Sequence[Task], float], list[Outcome]]] = {
    "threads": threads.run,
    "processes": distributed.run,
}


def execute(
    job: Job,
    state: Mapping[str, Tensor] | None = None,
    batches: Sequence[Tensor] | None = None,
    *,
    mode: str = "processes",
    timeout_s: float = 600.0,
) -> Executed:
    """Runs every step of the job, each rank a process of this machine (``processes``) or a thread of this one.

    ``state`` are the weights to start with, by name (None: new ones); ``batches`` one a step, int64 of shape
    (d, sequences, length + 1) (None: random tokens). Raises ``ValueError`` for every rule that the job breaks before
    anything starts, and ``RankFailed`` with the rank, its action and its traceback if one fails or ``timeout_s`` is over.
    """
    check(job)
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} must be one of {', '.join(MODES)}. Nearest: processes.")
    state = initial_state(job) if state is None else state
    check_state(job, state)
    batches = random_batches(job) if batches is None else batches
    check_batches(job, batches)
    return together(job, MODES[mode](rank.tasks(job, state, batches), timeout_s))
