"""One rank's whole run: its part of the weights, step after step, and what it brings back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from pipesim.execute import data_parallel, interpreter, layout, tensor_parallel
from pipesim.execute.actions import Bench
from pipesim.execute.data_parallel import Share
from pipesim.execute.interpreter import Pass
from pipesim.execute.job import Job, Place, places
from pipesim.execute.live import Live
from pipesim.execute.programs import Program, programs
from pipesim.execute.tensor_parallel import Team
from pipesim.execute.ties import Ties
from pipesim.simulate.kernel import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one rank is to do: its part of the weights and its replica's batches, (sequences, length + 1) a step."""

    job: Job
    place: Place
    program: Program
    weights: Mapping[str, Tensor]
    batches: Sequence[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a rank saw in one step: when its actions ran, its losses by micro-batch, bytes sent by pipeline rank."""

    start_s: FloatArray
    end_s: FloatArray
    losses: Mapping[int, float]
    sent_bytes: Mapping[int, int]
    peak_live: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rank brings back: its part of the last step's gradients and of the weights after it."""

    place: Place
    steps: list[Step]
    gradients: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]


def tasks(job: Job, state: Mapping[str, Tensor], batches: Sequence[Tensor]) -> list[Task]:
    """Of every rank by number, cut out of the whole state and of batches of shape (d, sequences, length + 1)."""
    every = programs(job.schedule)
    return [_task(job, place, every[place.pipeline], state, batches) for place in places(job)]


def _task(job: Job, place: Place, program: Program, state: Mapping[str, Tensor], batches: Sequence[Tensor]) -> Task:
    names = layout.parameters_of_rank(job, place.pipeline)
    return Task(
        job=job,
        place=place,
        program=program,
        weights={name: tensor_parallel.divide(name, state[name], job.t, place.tensor).clone() for name in names},
        batches=[batch[place.replica].clone() for batch in batches],
    )


def work(given: Task, ties: Ties) -> Outcome:
    """Every step of the job."""
    job, weights = given.job, weights_of(given, ties)
    shares = _shares(job, weights, ties)
    steps: list[Step] = []
    gradients: dict[str, Tensor] = {}
    for number in range(job.steps):
        bench = bench_of(given, weights, ties, number)
        ties.tell("the start of a step")
        ties.everyone.barrier()
        steps.append(_seen(interpreter.run(given.program, bench, given.place, ties)))
        ties.tell("the sum of gradients")
        tensor_parallel.sum_whole_gradients(weights, bench.team)
        data_parallel.sum_gradients(shares)
        if number == job.steps - 1:
            gradients = data_parallel.gradients(shares, {weight: name for name, weight in weights.items()})
        ties.tell("the optimizer's step")
        data_parallel.step(shares)
    return Outcome(place=given.place, steps=steps, gradients=_on_cpu(gradients), weights=_on_cpu(weights))


def weights_of(given: Task, ties: Ties) -> dict[str, Tensor]:
    """The rank's own copy of its part of the weights, on its device and without gradients."""
    return {
        name: weight.detach().to(ties.device, given.job.torch_dtype, copy=True).requires_grad_()
        for name, weight in given.weights.items()
    }


def bench_of(given: Task, weights: Mapping[str, Tensor], ties: Ties, number: int) -> Bench:
    """An empty one for step ``number``."""
    return Bench(
        job=given.job,
        replica=given.place.replica,
        step=number,
        batch=given.batches[number].to(ties.device),
        weights=weights,
        team=Team(group=ties.team, sequence_parallel=given.job.sequence_parallel),
        live=Live(),
    )


def _shares(job: Job, weights: Mapping[str, Tensor], ties: Ties) -> list[Share]:
    return [
        data_parallel.share(
            [weights[name] for name in bucket.names],
            ties.copies[bucket.holders],
            job.zero,
            job.optimizer,
            job.learning_rate,
        )
        for bucket in layout.buckets(job)
        if bucket.holders in ties.copies
    ]


def _seen(done: Pass) -> Step:
    return Step(
        start_s=done.start_s,
        end_s=done.end_s,
        losses={number: float(loss) for number, loss in sorted(done.bench.losses.items())},
        sent_bytes=dict(sorted(done.sent_bytes.items())),
        peak_live=done.bench.live.peak,
    )


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
