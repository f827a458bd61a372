"""A rank's own work without waiting: the same program, but every message is made up and there at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pipesim.execute import interpreter, rank
from pipesim.execute.groups import Pending, Shape, There
from pipesim.execute.rank import Task
from pipesim.execute.ties import Ties
from pipesim.simulate.kernel import FloatArray


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


class Alone(NamedTuple):
    """Seconds of each of the rank's actions, shape (actions,), and the share of the pass for which it had a core."""

    seconds: FloatArray
    core_share: float


def alone(task: Task, ties: Ties) -> Alone:
    """One pass through the rank's program, while all other ranks go through theirs.

    Groups of tensor-parallel ranks really meet; pipeline ranks do not, so no time is spent on waiting for them.
    """
    wire = MadeUpWire(torch.Generator(ties.device).manual_seed(task.job.seed))
    bench = rank.bench_of(task, rank.weights_of(task, ties), ties, 0)
    ties.tell("the calibration")
    ties.everyone.barrier()
    began_s, began_cpu_s = time.monotonic(), time.thread_time()
    done = interpreter.run(task.program, bench, task.place, replace(ties, wire=wire))
    core_share = (time.thread_time() - began_cpu_s) / (time.monotonic() - began_s)
    return Alone(done.end_s - done.start_s, core_share)
