"""From a schedule to the programs of its ranks: what to compute, to send and to receive, in order.

The order of sends and receives is that of ``schedules.transfers``: the same on both sides of every pair of ranks, so it
needs no tags (NCCL has none) and cannot deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pipesim.schedules.action import Action, Op, Schedule
from pipesim.schedules.transfers import Receive, Send, Slot, slots, weave


class Result(NamedTuple):
    """What an action makes: the output of a stage (kind F) or the gradient at its input (kind B), of a micro-batch."""

    kind: Op
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        what = "output" if self.kind == Op.F else "gradient"
        return f"{what} of {Action(self.stage, self.kind, self.micro_batch)}"


class Run(NamedTuple):
    """Compute ``actions``: one, or an overlapped pair. ``at`` is where the first stands in the schedule."""

    actions: tuple[Action, ...]
    at: int

    def __str__(self) -> str:
        return " ".join(map(str, self.actions))


class SendTo(NamedTuple):
    """Hand ``result`` to pipeline rank ``peer`` and go on at once."""

    result: Result
    peer: int


class ReceiveFrom(NamedTuple):
    """Make room for ``result`` of pipeline rank ``peer`` and go on at once; who needs it waits for it."""

    result: Result
    peer: int


Instruction = Run | SendTo | ReceiveFrom


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What one pipeline rank does in a step."""

    rank: int
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.instructions))


def programs(schedule: Schedule) -> tuple[Program, ...]:
    """The program of every rank. ``ValueError`` if ranks would wait for each other for ever."""
    rank_of = schedule.rank_of().tolist()
    woven = weave(schedule, [[(slot, slot.actions) for slot in slots(schedule, rank)] for rank in range(schedule.p)])
    return tuple(
        Program(rank=rank, instructions=tuple(_instruction(schedule, step, rank_of) for step in steps))
        for rank, steps in enumerate(woven)
    )


def needed(action: Action, stages: int) -> Result | None:
    """What the action takes from the neighbour stage: the output before it, the gradient after it; None at the ends."""
    if action.op == Op.F:
        return Result(Op.F, action.stage - 1, action.micro_batch) if action.stage else None
    if action.op == Op.W or action.stage == stages - 1:
        return None
    return Result(Op.B, action.stage + 1, action.micro_batch)


def made(action: Action, stages: int) -> Result | None:
    """What the action makes for the neighbour stage; None for W and at the ends."""
    if action.op == Op.F:
        return Result(Op.F, action.stage, action.micro_batch) if action.stage < stages - 1 else None
    if action.op == Op.W or action.stage == 0:
        return None
    return Result(Op.B, action.stage, action.micro_batch)


def _instruction(schedule: Schedule, step: Slot | Send | Receive, rank_of: list[int]) -> Instruction:
    if isinstance(step, Slot):
        return Run(tuple(map(schedule.action, step.actions)), step.actions[0])
    result = made(schedule.action(step.source), schedule.stages)
    assert result is not None, "only results travel"
    if isinstance(step, Send):
        return SendTo(result, rank_of[step.target])
    return ReceiveFrom(result, rank_of[step.source])
