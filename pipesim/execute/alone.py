"""A rank's own work without waiting: the same program, but every message is made up and there at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipesim.execute import interpreter, rank
from pipesim.execute.groups import Pending, Shape
from pipesim.execute.rank import Task
from pipesim.execute.ties import Ties
from pipesim.simulate.kernel import FloatArray


@dataclass(frozen=True, slots=True)
class There:
    """A message that nobody has to wait for."""

    x: Tensor

    def wait(self) -> Tensor:
        return self.x

    def done(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MadeUpWire:
    """Nothing travels: what is sent is dropped, what is received is drawn from ``source``."""

    source: torch.Generator

    def send(self, x: Tensor, to: int, tag: int) -> Pending:
        return There(x)

    def receive(self, shape: Shape, sender: int, tag: int) -> Pending:
        return There(torch.randn(shape.sizes, generator=self.source, dtype=shape.dtype, device=self.source.device))

    def close(self) -> None:
        return


def alone_s(task: Task, ties: Ties) -> FloatArray:
    """Seconds of each of the rank's actions, shape (actions,), while all other ranks do theirs.

    Groups of tensor-parallel ranks really meet; pipeline ranks do not, so no time is spent on waiting for them.
    """
    wire = MadeUpWire(torch.Generator(ties.device).manual_seed(task.job.seed))
    bench = rank.bench_of(task, rank.weights_of(task, ties), ties, 0)
    ties.tell("the calibration")
    ties.everyone.barrier()
    done = interpreter.run(task.program, bench, task.place, replace(ties, wire=wire))
    return done.end_s - done.start_s
