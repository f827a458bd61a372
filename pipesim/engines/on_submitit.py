"""``engine=submitit``: one array task of Slurm for each worker, which works on its share of the tasks one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import submitit

from pipesim.engines import Conf, R, T, WorkerDied, workers

POLL_S = 0.2


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    """The shares of array tasks that ended badly are submitted anew, ``engine.retries`` times: what is kept is quick then."""
    asked = list(tasks)
    shares = [share for start in range(workers(conf)) if (share := asked[start :: workers(conf)])]
    for _ in range(conf["retries"] + 1):
        left: list[list[T]] = []
        jobs = _executor(conf).map_array(_several, [work] * len(shares), shares) if shares else []
        try:
            for index in _as_they_end(jobs):
                if jobs[index].exception() is None:
                    yield from jobs[index].result()
                else:
                    left.append(shares[index])
        finally:
            for job in jobs:
                if not job.done():
                    job.cancel(check=False)
        if not left:
            return
        ended_badly, shares = jobs, left
    why = [str(job.exception()) for job in ended_badly if job.exception() is not None]
    raise WorkerDied(f"{len(left)} array tasks ended badly. The first: {why[0].strip()}")


def _executor(conf: Conf) -> submitit.AutoExecutor:
    executor = submitit.AutoExecutor(folder=Path(conf["folder"]), cluster=conf["cluster"])
    executor.update_parameters(
        name="pipesim", timeout_min=conf["timeout_min"], cpus_per_task=int(conf["cpus_per_point"])
    )
    if conf["gpus_per_point"]:
        executor.update_parameters(gpus_per_node=int(conf["gpus_per_point"]))
    if conf["cluster"] != "local":
        executor.update_parameters(slurm_partition=conf["partition"], slurm_array_parallelism=workers(conf))
    return executor


def _several(work: Callable[[T], R], share: list[T]) -> list[R]:
    return [work(task) for task in share]


def _as_they_end(jobs: list[Any]) -> Iterator[int]:
    running = list(range(len(jobs)))
    while running:
        for index in [each for each in running if jobs[each].done()]:
            running.remove(index)
            yield index
        time.sleep(POLL_S if running else 0)
