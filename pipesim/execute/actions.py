"""How one action runs: F makes an activation; B, or I and then W, use it up. What is used up is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pipesim.execute import stages
from pipesim.execute.batch import micro_batch
from pipesim.execute.dropout import Dropout
from pipesim.execute.job import Job
from pipesim.execute.live import Activation, Live, saving_for
from pipesim.execute.stages import Call, KeyValue
from pipesim.execute.tensor_parallel import Team
from pipesim.schedules.action import Action, Op

Key = tuple[int, int]
"""Stage and micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What a forward leaves for its backward: where the graph starts and ends."""

    given: Tensor | None
    output: Tensor
    activation: Activation
    kept: Mapping[str, KeyValue]


@dataclass(slots=True, kw_only=True)
class Bench:
    """Where a rank's actions of one step work: ``weights`` it has, ``batch`` of its replica, what is not yet used up."""

    job: Job
    replica: int
    step: int
    batch: Tensor
    weights: Mapping[str, Tensor]
    team: Team
    live: Live
    forwarded: dict[Key, Forwarded] = field(default_factory=dict)
    owed: dict[Key, Activation] = field(default_factory=dict)
    losses: dict[int, Tensor] = field(default_factory=dict)


def run(action: Action, given: Tensor | None, bench: Bench) -> Tensor | None:
    """Computes the action from what the neighbour stage made (``programs.needed``); returns what it makes for the next.

    F takes and gives (batch, length, width), B and I the gradient of that; W takes and gives nothing.
    """
    if action.op == Op.F:
        return _forward(action, given, bench)
    if action.op == Op.W:
        bench.owed.pop(action[::2]).pay()
        return None
    return _backward(action, given, bench)


def _forward(action: Action, given: Tensor | None, bench: Bench) -> Tensor | None:
    job, number = bench.job, action.micro_batch
    activation = bench.live.new()
    call = _call(action, bench, activation)
    if given is None:
        inputs, _ = micro_batch(job, bench.batch, number // job.schedule.segments)
        start = inputs[:, call.start : call.start + job.segment_length]
    else:
        start = given = given.detach().requires_grad_()
    with saving_for(activation):
        output = stages.forward(job.units[action.stage], start, call)
    bench.forwarded[action.stage, number] = Forwarded(given=given, output=output, activation=activation, kept=call.kept)
    if call.targets is None:
        return output.detach()
    bench.losses[number] = output.detach()
    return None


def _backward(action: Action, gradient: Tensor | None, bench: Bench) -> Tensor | None:
    """Through the stage's graph, which is freed. Its weight gradients are computed with it in a B, not in an I."""
    key = action.stage, action.micro_batch
    done = bench.forwarded.pop(key)
    done.activation.now = action.op == Op.B
    roots, gradients = [done.output], [gradient]
    for each in done.kept.values():
        for root, leaf in ((each.key, each.key_leaf), (each.value, each.value_leaf)):
            roots.append(root)
            gradients.append(leaf.grad)
    torch.autograd.backward(roots, gradients)
    if action.op == Op.I:
        bench.owed[key] = done.activation
    return None if done.given is None else done.given.grad


def _call(action: Action, bench: Bench, activation: Activation) -> Call:
    job, segments = bench.job, bench.job.schedule.segments
    number, segment = divmod(action.micro_batch, segments)
    start = segment * job.segment_length
    last = action.stage == job.schedule.stages - 1
    earlier = [bench.forwarded[action.stage, number * segments + k].kept for k in range(segment)]
    return Call(
        model=job.model,
        weights=bench.weights,
        activation=activation,
        team=bench.team,
        start=start,
        targets=_targets(bench, number, start) if last else None,
        batch_tokens=job.tokens,
        masks=_masks(bench, number) if job.dropout else None,
        earlier=earlier,
        keeps=segment < segments - 1,
    )


def _targets(bench: Bench, number: int, start: int) -> Tensor:
    _, targets = micro_batch(bench.job, bench.batch, number)
    return targets[:, start : start + bench.job.segment_length]


def _masks(bench: Bench, number: int) -> Dropout:
    job = bench.job
    return Dropout(
        rate=job.dropout,
        seed=job.seed,
        step=bench.step,
        replica=bench.replica,
        micro_batch=number,
        sequences=job.micro_batches[number],
        length=job.length,
        width=job.model.width,
    )
