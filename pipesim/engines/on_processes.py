"""``engine=processes``: a pool of processes on this machine, made anew when one of them dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess

from pipesim.engines import Conf, R, T, WorkerDied, workers
from pipesim.engines.window import PER_WORKER


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    """A task that was with a pool when it broke is given to the next one, ``engine.retries`` times."""
    count, left = workers(conf), iter(tasks)
    again: deque[tuple[T, int]] = deque()
    while True:
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_settle)
        given: dict[Future[R], tuple[T, int]] = {}
        try:
            while True:
                while len(given) < PER_WORKER * count and (next_one := _next(again, left)):
                    given[pool.submit(work, next_one[0])] = next_one
                if not given:
                    return
                for future in wait(given, return_when=FIRST_COMPLETED).done:
                    found = future.result()
                    del given[future]
                    yield found
        except BrokenProcessPool:
            for task, deaths in given.values():
                if deaths >= conf["retries"]:
                    raise WorkerDied(f"{deaths + 1} processes died while they had one of the same few tasks.") from None
                again.append((task, deaths + 1))
        finally:
            _end(pool, [each for each in multiprocessing.active_children() if each not in before])


def _next(again: deque[tuple[T, int]], left: Iterator[T]) -> tuple[T, int] | None:
    return again.popleft() if again else next(((task, 0) for task in islice(left, 1)), None)


def _end(pool: ProcessPoolExecutor, processes: Iterable[BaseProcess]) -> None:
    """At once: what they have made is on the disk, what they are making is asked for again."""
    for process in processes:
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _settle() -> None:
    """A worker leaves Ctrl-C to the process that started it, and ends when that one does, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
