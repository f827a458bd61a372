"""Ranks as processes over ``torch.distributed``: gloo on the loopback interface, or NCCL with a GPU for each rank."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from pipesim.execute import clock, layout, rank
from pipesim.execute.groups import Alone, Group, Pending, Shape, Wire
from pipesim.execute.job import Job
from pipesim.execute.launch import Seat, join, run_processes
from pipesim.execute.rank import Outcome, Task
from pipesim.execute.ties import Members, Ties, ties


def run(tasks: Sequence[Task], timeout_s: float) -> list[Outcome]:
    """Each task in a process of its own; outcomes in the same order. Raises ``RankFailed``."""
    return run_processes(work, tasks, timeout_s=timeout_s)


def work(seat: Seat, task: Task) -> Outcome:
    """The whole life of one process."""
    with tied(seat, task) as ties:
        return rank.work(task, ties)


@contextmanager
def tied(seat: Seat, task: Task) -> Iterator[Ties]:
    """The process's wires and groups, until all processes have left."""
    cuda = task.job.device == "cuda"
    device = torch.device("cuda", seat.rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    with join(seat, "nccl" if cuda else "gloo"):
        wire = NcclWire(device) if cuda else GlooWire()
        yield connect(task, seat, wire, device)
        wire.close()


def connect(task: Task, seat: Seat, wire: Wire, device: torch.device) -> Ties:
    """Makes every group of the job; all processes do it in the same order, members or not."""
    job = task.job
    groups: dict[Members, Group] = {(number,): Alone() for number in layout.everyone(job)}
    for members in layout.groups(job):
        made = distributed.new_group(list(members))
        if seat.rank in members:
            groups[members] = ProcessGroup(made, members.index(seat.rank), len(members), device)
    offset_s = clock.offset_s(wire, seat.rank, seat.world, _clock_tag(job), device)
    return ties(job, task.place, wire, groups, tell=seat.tell, device=device, clock_offset_s=offset_s)


@dataclass(frozen=True, slots=True)
class Arriving:
    """A message that is written into ``into``."""

    work: Any
    into: Tensor

    def wait(self) -> Tensor:
        self.work.wait()
        return self.into

    def done(self) -> bool:
        return bool(self.work.is_completed())


@dataclass(frozen=True, slots=True)
class NcclWire:
    """Messages between GPUs. NCCL has no tags: those of a pair come in the order in which both sides ask for them."""

    device: torch.device

    def send(self, x: Tensor, to: int, tag: int) -> Pending:
        return Arriving(distributed.isend(x, to), x)

    def receive(self, shape: Shape, sender: int, tag: int) -> Pending:
        into = torch.empty(shape.sizes, dtype=shape.dtype, device=self.device)
        return Arriving(distributed.irecv(into, sender), into)

    def close(self) -> None:
        return


class GlooWire:
    """Messages between processes of this machine.

    Gloo tells that a message has left to none but who waits for it, so a thread does: what is sent is freed in time.
    """

    def __init__(self) -> None:
        self._leaving: queue.SimpleQueue[Leaving | None] = queue.SimpleQueue()
        self._watch = threading.Thread(target=self._wait_for_each, daemon=True)
        self._watch.start()

    def send(self, x: Tensor, to: int, tag: int) -> Pending:
        leaving = Leaving(distributed.isend(x, to, tag=tag), x)
        self._leaving.put(leaving)
        return leaving

    def receive(self, shape: Shape, sender: int, tag: int) -> Pending:
        into = torch.empty(shape.sizes, dtype=shape.dtype)
        return Arriving(distributed.irecv(into, sender, tag=tag), into)

    def close(self) -> None:
        self._leaving.put(None)
        self._watch.join()

    def _wait_for_each(self) -> None:
        while (leaving := self._leaving.get()) is not None:
            leaving.watch()


class Leaving:
    """A message that the watching thread waits for."""

    def __init__(self, work: Any, x: Tensor) -> None:
        self._work, self._x = work, x
        self._left = threading.Event()
        self._error: BaseException | None = None

    def watch(self) -> None:
        """Waits until it has left; an error is told to who asks."""
        try:
            self._work.wait()
        except RuntimeError as error:
            self._error = error
        self._left.set()

    def wait(self) -> Tensor:
        self._left.wait()
        if self._error is not None:
            raise self._error
        return self._x

    def done(self) -> bool:
        return self._left.is_set() and self._error is None


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A sub-group of the processes."""

    made: Any
    rank: int
    size: int
    device: torch.device

    def all_reduce(self, x: Tensor) -> Tensor:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total, group=self.made)
        return total

    def all_gather(self, x: Tensor) -> list[Tensor]:
        found = [torch.empty(x.shape, dtype=x.dtype, device=self.device) for _ in range(self.size)]
        distributed.all_gather(found, x.detach().contiguous(), group=self.made)
        return found

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        mine = torch.empty(parts[0].shape, dtype=parts[0].dtype, device=self.device)
        distributed.reduce_scatter(mine, [part.detach().contiguous() for part in parts], group=self.made)
        return mine

    def barrier(self) -> None:
        distributed.all_reduce(torch.zeros(1, device=self.device), group=self.made)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _clock_tag(job: Job) -> int:
    """One that no result of a step has."""
    return 2 * job.schedule.stages * job.schedule.m
