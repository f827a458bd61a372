"""``engine=dask``: a scheduler that is there (``engine.address``), or workers on this machine for the time of the sweep."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable
from typing import Any

import dask
from distributed import Client, LocalCluster, wait
from distributed.scheduler import KilledWorker

from pipesim.engines import Conf, R, T, WorkerDied, workers
from pipesim.engines.window import PER_WORKER, windowed


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    """Dask itself gives a dead worker's task to another, ``engine.retries`` times."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set({"distributed.scheduler.allowed-failures": conf["retries"]}), _client(conf) as client:
        threads = sum(client.nthreads().values())
        yield from windowed(
            tasks, lambda task: client.submit(work, task, pure=False), _some_done, _result, PER_WORKER * max(1, threads)
        )


def _client(conf: Conf) -> Any:
    if conf["address"] is not None:
        return Client(conf["address"])
    return _Local(workers(conf))


class _Local:
    """A cluster of processes with one thread each, bound to this machine, and its client.

    Ctrl-C is left to this process: what is started while it is blocked never sees it.
    """

    def __init__(self, count: int) -> None:
        self.before = set(multiprocessing.active_children())
        seen = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.cluster = LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, seen)
        self.client = Client(self.cluster)

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        for process in set(multiprocessing.active_children()) - self.before:
            process.kill()  # what they have made is on the disk, what they are making is asked for again
        self.cluster.close()


def _some_done(waiting: list[Any]) -> list[Any]:
    return list(wait(waiting, return_when="FIRST_COMPLETED").done)


def _result(future: Any) -> Any:
    try:
        return future.result()
    except KilledWorker as error:
        raise WorkerDied(str(error).splitlines()[0]) from None
