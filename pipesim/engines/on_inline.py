"""``engine=inline``: one task after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from pipesim.engines import Conf, R, T


def run(conf: Conf, work: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
    for task in tasks:
        yield work(task)
