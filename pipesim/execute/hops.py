"""How long a message takes from rank to rank, measured by sending it back and forth while nobody computes."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch

from pipesim.execute import layout
from pipesim.execute.groups import Shape
from pipesim.execute.interpreter import message_shape
from pipesim.execute.job import Job
from pipesim.execute.programs import Result
from pipesim.execute.rank import Task
from pipesim.execute.ties import Ties
from pipesim.schedules.action import Op

ROUNDS, WARM_UP = 20, 4


class Hop(NamedTuple):
    """One way between two pipeline ranks: seconds of one number, and of the largest message of a step, of its bytes."""

    empty_s: float
    full_s: float
    full_bytes: int


def hops(task: Task, ties: Ties) -> dict[tuple[int, int], Hop]:
    """Every pair of pipeline ranks that talk, the lower first, as that one measured it. Collective."""
    job, place, found = task.job, task.place, {}
    full = full_shape(job)
    for pair in pairs(job):
        ties.tell("the calibration of links")
        ties.everyone.barrier()
        if place.pipeline in pair:
            peer = place._replace(pipeline=sum(pair) - place.pipeline).number(job)
            first = place.pipeline == pair[0]
            empty_s, full_s = (
                _one_way_s(ties, shape, peer, job, first=first) for shape in (Shape((1,), job.torch_dtype), full)
            )
            if first:
                found[pair] = Hop(empty_s, full_s, _bytes(full))
    return found


def pairs(job: Job) -> list[tuple[int, int]]:
    """The pipeline ranks that send to each other, in either direction, in an order that every process keeps."""
    return sorted({(min(link), max(link)) for link in layout.link_bytes(job)})


def full_shape(job: Job) -> Shape:
    """The largest message of a step."""
    outputs = [Result(Op.F, 0, number) for number in range(job.schedule.m)]
    return Shape(max(message_shape(output, job) for output in outputs), job.torch_dtype)


def _bytes(shape: Shape) -> int:
    return int(torch.Size(shape.sizes).numel()) * shape.dtype.itemsize


def _one_way_s(ties: Ties, shape: Shape, peer: int, job: Job, *, first: bool) -> float:
    """Half of the median round trip."""
    tag = 2 * job.schedule.stages * job.schedule.m + 1  # one that no result of a step has, nor the clock
    x = torch.zeros(shape.sizes, dtype=shape.dtype, device=ties.device)
    trips = []
    for _ in range(WARM_UP + ROUNDS):
        left_s = time.monotonic()
        if first:
            ties.wire.send(x, peer, tag)
        ties.wire.receive(shape, peer, tag).wait()
        if ties.device.type == "cuda":
            torch.cuda.synchronize(ties.device)
        trips.append(time.monotonic() - left_s)
        if not first:
            ties.wire.send(x, peer, tag)
    return statistics.median(trips[WARM_UP:]) / 2
