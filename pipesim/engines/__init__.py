"""Where the parts of a sweep are worked on: in this process, in others, or on Ray, Dask or Slurm through their own clients.

``work`` is a function of a module, never of ``__main__``; it and its tasks and results are pickled on the way. Each task
leaves its result on a disk that all workers share, so that a worker's death costs the tasks that it had.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

from pipesim.checks import Invalid

T = TypeVar("T")
R = TypeVar("R")

Conf = Mapping[str, Any]

ENGINES = {
    "inline": (),
    "processes": (),
    "ray": ("ray",),
    "dask": ("dask", "distributed"),
    "submitit": ("submitit",),
}
"""Each engine and the packages that it needs, which the extra of its name installs."""


class WorkerDied(Exception):
    """Workers that had this task died again and again."""


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    """The result of every task, as they come. Closing the iterator stops what was started.

    Raises ``Invalid`` for settings that cannot work and for an engine that is not installed, ``WorkerDied`` for a task that
    ended its workers, and what ``work`` raises.
    """
    _check(conf)
    name = conf["name"]
    try:
        engine = importlib.import_module(f"pipesim.engines.on_{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ENGINES[name]:
            raise
        raise Invalid(
            [
                f"engine={name} needs {error.name}, which is not installed. Install it: pip install 'pipesim[{name}]', "
                f"or in a checkout: pip install -e '.[{name}]'."
            ]
        ) from None
    found: Generator[R, None, None] = engine.run(conf, work, tasks)
    return found


def workers(conf: Conf) -> int:
    """How many to start on this machine: as asked, or one for each core, or for as many cores as a task needs."""
    cores = len(os.sched_getaffinity(0))
    return int(conf["workers"] or max(1, cores // max(1, int(conf["cpus_per_point"]))))


def _check(conf: Conf) -> None:
    problems = []
    name, known = conf["name"], ", ".join(ENGINES)
    if name not in ENGINES:
        raise Invalid([f"engine.name={name!r} must be one of {known}."])
    problems += [
        f"engine.{key}={conf[key]} must be at least {least}. Nearest: {least}."
        for key, least in (
            ("workers", 1),
            ("cpus_per_point", 1),
            ("gpus_per_point", 0),
            ("retries", 0),
            ("timeout_min", 1),
        )
        if conf[key] is not None and conf[key] < least
    ]
    if conf["address"] is not None and name not in ("ray", "dask"):
        problems.append(
            f"engine.address={conf['address']}: engine={name} has none. Nearest: engine=ray or engine=dask."
        )
    if conf["address"] is not None and conf["workers"] is not None:
        problems.append("engine.workers: a cluster that is there has workers of its own. Leave it null.")
    if conf["gpus_per_point"] and name not in ("inline", "ray", "submitit"):
        problems.append(
            f"engine.gpus_per_point: engine={name} hands out no GPUs. Nearest: engine=ray or engine=submitit."
        )
    if problems:
        raise Invalid(problems)
