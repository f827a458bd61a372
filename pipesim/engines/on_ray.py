"""``engine=ray``: a cluster that is there (``engine.address``), or a small one on this machine for the time of the sweep."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Generator, Iterable
from typing import Any

_handler = signal.getsignal(signal.SIGTERM)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray  # noqa: E402 - it reads the environment, and takes SIGTERM for itself

from pipesim.engines import Conf, R, T, WorkerDied, workers  # noqa: E402
from pipesim.engines.window import PER_WORKER, windowed  # noqa: E402


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    """Ray itself gives a dead worker's task to another, ``engine.retries`` times."""
    try:
        _connect(conf)
        signal.signal(signal.SIGTERM, _handler)
        remote = ray.remote(work).options(
            num_cpus=conf["cpus_per_point"], num_gpus=conf["gpus_per_point"], max_retries=conf["retries"]
        )
        slots = max(1, int(ray.cluster_resources().get("CPU", 1) // conf["cpus_per_point"]))
        yield from windowed(tasks, remote.remote, _some_done, _result, PER_WORKER * slots)
    finally:
        ray.shutdown()


def _connect(conf: Conf) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    if conf["address"] is not None:
        ray.init(address=conf["address"], **quiet)
    else:
        ray.init(
            address="local", num_cpus=workers(conf) * conf["cpus_per_point"], include_dashboard=False,
            _node_ip_address="127.0.0.1", **quiet,
        )  # fmt: skip


def _some_done(waiting: list[Any]) -> list[Any]:
    done: list[Any] = ray.wait(waiting, num_returns=1)[0]
    return done


def _result(handle: Any) -> Any:
    try:
        return ray.get(handle)
    except ray.exceptions.WorkerCrashedError as error:
        raise WorkerDied(str(error).splitlines()[0]) from None
