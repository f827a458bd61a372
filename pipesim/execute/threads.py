"""Ranks as threads of one process: messages in order between each two of them, and sums in the order of the ranks."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from pipesim.execute import layout, rank
from pipesim.execute.failures import Failure, error, silent_rank
from pipesim.execute.groups import Alone, Group, Pending, Shape, There
from pipesim.execute.rank import Task
from pipesim.execute.seat import STARTING, Doing
from pipesim.execute.ties import Members, Ties, ties


class Abandoned(RuntimeError):
    """Another rank failed, so what this one waits for will never come."""


Work = Callable[[Task, Ties], Any]
"""What a rank does and what it brings back."""


def run(tasks: Sequence[Task], timeout_s: float, work: Work = rank.work) -> list[Any]:
    """Each task in a thread of its own, one intra-op thread each; results in the same order. Raises ``RankFailed``."""
    exchange = Exchange()
    workers = [Worker(number=number, task=task, exchange=exchange, work=work) for number, task in enumerate(tasks)]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    until_s = time.monotonic() + timeout_s
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))
    finally:
        silent = {worker.number: worker.doing for worker in workers if not (worker.outcome or worker.error)}
        exchange.abandon()
    failures = [_failure(worker) for worker in workers if worker.error and not worker.abandoned]
    if silent and not failures:
        number = silent_rank(silent)
        failures.append(_hung(workers[number], threads[number], timeout_s))
    if failures:
        raise error(failures[0], silent, len(tasks))
    return [worker.outcome for worker in workers if worker.outcome]


def _failure(worker: Worker) -> Failure:
    doing = worker.doing
    what = f"raised {worker.kind}"
    return Failure(rank=worker.number, what=what, doing=doing, at_s=doing.since_s, trace=worker.error)


def _hung(worker: Worker, thread: threading.Thread, timeout_s: float) -> Failure:
    now_s = time.monotonic()
    what = f"hangs, silent for {now_s - worker.doing.since_s:.1f} s (timeout_s={timeout_s:g} is over),"
    frame = sys._current_frames().get(thread.ident or 0)
    trace = "".join(traceback.format_stack(frame)) if frame else ""
    return Failure(rank=worker.number, what=what, doing=worker.doing, at_s=now_s, trace=trace)


@dataclass(slots=True, kw_only=True)
class Worker:
    """One rank, what it is doing, and how it ended: with an outcome, or the traceback of an error."""

    number: int
    task: Task
    exchange: Exchange
    work: Work = rank.work
    doing: Doing = field(default_factory=lambda: Doing(text=STARTING, since_s=time.monotonic()))
    outcome: Any = None
    error: str = ""
    kind: str = ""
    abandoned: bool = False

    def run(self) -> None:
        torch.set_num_threads(1)
        try:
            self.outcome = self.work(self.task, connect(self))
        except Exception as error:
            self.abandoned = isinstance(error, Abandoned)
            self.kind, self.error = type(error).__name__, traceback.format_exc()
            self.exchange.abandon()

    def tell(self, doing: str, waits_for: int | None = None) -> None:
        self.doing = Doing(text=doing, since_s=time.monotonic(), waits_for=waits_for)


def connect(worker: Worker) -> Ties:
    """The thread's wires and groups."""
    job, place = worker.task.job, worker.task.place
    groups: dict[Members, Group] = {(number,): Alone() for number in layout.everyone(job)}
    for members in layout.groups(job):
        if worker.number in members:
            own = members.index(worker.number)
            groups[members] = ThreadGroup(exchange=worker.exchange, members=members, rank=own)
    wire = ThreadWire(exchange=worker.exchange, number=worker.number)
    return ties(job, place, wire, groups, tell=worker.tell, device=torch.device(job.device))


@dataclass(slots=True, kw_only=True)
class Exchange:
    """What the threads share: messages by (sender, receiver, how manieth), and meetings by (members, how manieth)."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    messages: dict[tuple[int, int, int], tuple[int, Tensor]] = field(default_factory=dict)
    meetings: dict[tuple[tuple[int, ...], int], dict[int, list[Tensor]]] = field(default_factory=dict)
    failed: bool = False

    def abandon(self) -> None:
        """Ends every wait with ``Abandoned``."""
        with self.changed:
            self.failed = True
            self.changed.notify_all()

    def wait_until(self, ready: Callable[[], Any]) -> None:
        """Waits until ``ready``; call it while holding ``changed``."""
        self.changed.wait_for(lambda: self.failed or ready())
        if self.failed:
            raise Abandoned("another rank failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWire:
    """One thread's end of all its wires. The k-th receive from a sender gets what it sent k-th, as with NCCL."""

    exchange: Exchange
    number: int
    sent: Counter[int] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)

    def send(self, x: Tensor, to: int, tag: int) -> Pending:
        key = self.number, to, self.sent[to]
        self.sent[to] += 1
        with self.exchange.changed:
            self.exchange.messages[key] = tag, x.detach().clone()
            self.exchange.changed.notify_all()
        return There(x)

    def receive(self, shape: Shape, sender: int, tag: int) -> Pending:
        key = sender, self.number, self.asked[sender]
        self.asked[sender] += 1
        return _Asked(self.exchange, key, tag, shape)

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Asked:
    exchange: Exchange
    key: tuple[int, int, int]
    tag: int
    shape: Shape

    def wait(self) -> Tensor:
        with self.exchange.changed:
            self.exchange.wait_until(self.done)
            tag, x = self.exchange.messages.pop(self.key)
        assert tag == self.tag, f"message {self.key} has tag {tag}; its reader expects {self.tag}"
        assert (tuple(x.shape), x.dtype) == self.shape, f"message {self.key} is {x.shape}, expected {self.shape}"
        return x

    def done(self) -> bool:
        return self.key in self.exchange.messages


@dataclass(slots=True, kw_only=True)
class ThreadGroup:
    """One thread's part in a group; ``members`` are numbers in the world."""

    exchange: Exchange
    members: tuple[int, ...]
    rank: int
    meetings: int = 0

    @property
    def size(self) -> int:
        return len(self.members)

    def all_reduce(self, x: Tensor) -> Tensor:
        return _sum([parts[0] for parts in self._meet([x])])

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return [parts[0] for parts in self._meet([x])]

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        return _sum([each[self.rank] for each in self._meet(parts)])

    def barrier(self) -> None:
        self._meet([])

    def _meet(self, given: Sequence[Tensor]) -> list[list[Tensor]]:
        """What every member gave, by rank."""
        key = self.members, self.meetings
        self.meetings += 1
        exchange = self.exchange
        with exchange.changed:
            table = exchange.meetings.setdefault(key, {})
            table[self.rank] = [x.detach().clone() for x in given]
            exchange.changed.notify_all()
            exchange.wait_until(lambda: len(table) == self.size)
            exchange.meetings.pop(key, None)
        return [table[rank] for rank in range(self.size)]


def _sum(parts: Sequence[Tensor]) -> Tensor:
    """From the first to the last, into memory of its own."""
    return reduce(lambda total, part: total + part, parts[1:], parts[0].clone())
