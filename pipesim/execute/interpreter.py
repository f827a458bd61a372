"""One pass of a rank through its program: it computes, sends and receives, and notes when and how much."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipesim.execute import actions
from pipesim.execute.actions import Bench
from pipesim.execute.groups import Pending, Shape
from pipesim.execute.job import Job, Place
from pipesim.execute.programs import Program, ReceiveFrom, Result, Run, SendTo, made, needed
from pipesim.execute.ties import Ties
from pipesim.schedules.action import Action, Op
from pipesim.simulate.kernel import FloatArray


class Coming(NamedTuple):
    """A result that another process sends."""

    pending: Pending
    sender: int


@dataclass(slots=True, kw_only=True)
class Pass:
    """What one pass holds and notes. ``results`` are made or on their way, ``leaving`` are sends under way.

    ``start_s`` and ``end_s`` are of the rank's own actions, on the clock of process 0; ``sent_bytes`` by pipeline rank.
    """

    bench: Bench
    place: Place
    ties: Ties
    start_s: FloatArray
    end_s: FloatArray
    results: dict[Result, Tensor | Coming] = field(default_factory=dict)
    leaving: list[Pending] = field(default_factory=list)
    sent_bytes: Counter[int] = field(default_factory=Counter)


def run(program: Program, bench: Bench, place: Place, ties: Ties) -> Pass:
    """All micro-batches forward and backward: afterwards every result is used up and every message has left."""
    starts = bench.job.schedule.rank_start
    first = int(starts[program.rank])
    start_s, end_s = np.zeros((2, int(starts[program.rank + 1]) - first))
    done = Pass(bench=bench, place=place, ties=ties, start_s=start_s, end_s=end_s)
    for instruction in program.instructions:
        if isinstance(instruction, Run):
            _compute(instruction, first, done)
        elif isinstance(instruction, SendTo):
            _send(instruction, done)
        else:
            _receive(instruction, done)
    for pending in done.leaving:
        pending.wait()
    unused = [*done.results, *bench.forwarded, *bench.owed]
    assert not unused, f"made and never used: {unused}"
    return done


def message_shape(result: Result, job: Job) -> tuple[int, int, int]:
    """(batch, length, width) of what a stage hands on; with sequence parallelism each of the t ranks hands on a part."""
    parts = job.t if job.sequence_parallel else 1
    sequences = job.micro_batches[result.micro_batch // job.schedule.segments]
    return sequences, job.segment_length // parts, job.model.width


def _compute(slot: Run, first: int, done: Pass) -> None:
    """Waits for what the slot's actions need, then computes them one after another."""
    given = [_take(action, done) for action in slot.actions]
    done.ties.tell(str(slot))
    own = slice(slot.at - first, slot.at - first + len(slot.actions))
    done.start_s[own] = _now_s(done.ties)
    for action, x in zip(slot.actions, given, strict=True):
        output = actions.run(action, x, done.bench)
        result = made(action, done.bench.job.schedule.stages)
        if result is not None:
            assert output is not None, f"{action} made nothing"
            done.results[result] = output
    done.end_s[own] = _now_s(done.ties)


def _take(action: Action, done: Pass) -> Tensor | None:
    """What the action needs from the neighbour stage, of this rank or of another, once it is there."""
    result = needed(action, done.bench.job.schedule.stages)
    if result is None:
        return None
    found = done.results.pop(result)
    if isinstance(found, Tensor):
        return found
    done.ties.tell(str(action), waits_for=found.sender)
    return found.pending.wait()


def _send(instruction: SendTo, done: Pass) -> None:
    x = done.results.pop(instruction.result)
    assert isinstance(x, Tensor), "a rank sends what it made"
    job = done.bench.job
    done.leaving = [pending for pending in done.leaving if not pending.done()]
    done.leaving.append(done.ties.wire.send(x.contiguous(), _peer(instruction, done), tag(instruction.result, job)))
    done.sent_bytes[instruction.peer] += x.numel() * x.element_size()


def _receive(instruction: ReceiveFrom, done: Pass) -> None:
    job, sender = done.bench.job, _peer(instruction, done)
    shape = Shape(message_shape(instruction.result, job), job.torch_dtype)
    pending = done.ties.wire.receive(shape, sender, tag(instruction.result, job))
    done.results[instruction.result] = Coming(pending, sender)


def _peer(instruction: SendTo | ReceiveFrom, done: Pass) -> int:
    """The other process, which has the same place in its team and replica."""
    return done.place._replace(pipeline=instruction.peer).number(done.bench.job)


def tag(result: Result, job: Job) -> int:
    """A number for every result of a step, below ``2 * stages * m``."""
    schedule = job.schedule
    return (int(result.kind == Op.B) * schedule.stages + result.stage) * schedule.m + result.micro_batch


def _now_s(ties: Ties) -> float:
    if ties.device.type == "cuda":
        torch.cuda.synchronize(ties.device)
    return time.monotonic() + ties.clock_offset_s
