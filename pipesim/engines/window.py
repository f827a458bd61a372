"""Keeps a bounded number of tasks with an engine, and gives those back whose workers died."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

PER_WORKER = 2
"""Tasks with each worker: one that it works on, one that waits."""


def windowed(
    tasks: Iterable[T], submit: Callable[[T], Any], some_done: Callable[[list[Any]], Iterable[Any]],
    result: Callable[[Any], R], most: int,
) -> Iterator[R]:  # fmt: skip
    """At most ``most`` tasks at a time: ``submit`` gives a handle, ``some_done`` waits for at least one of several."""
    waiting: list[Any] = []

    def collect() -> Iterator[R]:
        for handle in some_done(waiting):
            waiting.remove(handle)
            yield result(handle)

    for task in tasks:
        waiting.append(submit(task))
        if len(waiting) >= most:
            yield from collect()
    while waiting:
        yield from collect()
