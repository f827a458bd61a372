"""What the ranks bring back, put together: losses summed, parts united, spans laid beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipesim.execute import layout, tensor_parallel
from pipesim.execute.job import Job, Place
from pipesim.execute.rank import Outcome
from pipesim.simulate.timeline import Timeline

ByPlace = Mapping[Place, Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What came out. Gradients are the last step's, of the whole batch's mean loss; weights are those after it.

    ``losses`` and ``timelines`` have one entry a step; timelines, ``peak_live`` (activations in memory at once, counted,
    per pipeline rank) and ``link_bytes`` (one step's, sender and receiver) are those of replica 0, tensor rank 0.
    ``unlike_copies`` are the parameters whose copies differ after the last step: none, or the run is wrong.
    """

    losses: list[float]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]
    timelines: list[Timeline]
    peak_live: tuple[int, ...]
    link_bytes: dict[tuple[int, int], int]
    unlike_copies: tuple[str, ...]


def together(job: Job, outcomes: Sequence[Outcome]) -> Executed:
    """From the outcome of every rank."""
    by_place = {outcome.place: outcome for outcome in outcomes}
    first = [by_place[Place(r, 0, 0)] for r in range(job.p)]
    return Executed(
        losses=[_loss(job, by_place, step) for step in range(job.steps)],
        gradients=_whole(job, {place: outcome.gradients for place, outcome in by_place.items()}),
        weights=_whole(job, {place: outcome.weights for place, outcome in by_place.items()}),
        timelines=[_timeline(job, first, step) for step in range(job.steps)],
        peak_live=tuple(max(step.peak_live for step in outcome.steps) for outcome in first),
        link_bytes=dict(
            sorted(
                ((r, peer), sent) for r, each in enumerate(first) for peer, sent in each.steps[-1].sent_bytes.items()
            )
        ),
        unlike_copies=_unlike(job, by_place),
    )


def _loss(job: Job, by_place: ByPlace, step: int) -> float:
    """Summed in the order of replicas and micro-batches, in the job's own precision."""
    parts = []
    for replica in range(job.d):
        found: dict[tuple[int, int], float] = {}
        for place, outcome in by_place.items():
            if place.replica == replica and (job.sequence_parallel or place.tensor == 0):
                found |= {(number, place.tensor): loss for number, loss in outcome.steps[step].losses.items()}
        parts += [found[key] for key in sorted(found)]
    total = torch.zeros((), dtype=job.torch_dtype)
    for part in parts:
        total += part
    return float(total)


def _whole(job: Job, parts: Mapping[Place, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Every parameter in the order of the model, from the first copy of each."""
    return {
        name: tensor_parallel.unite(name, [parts[Place(ranks[0], 0, k)][name] for k in range(job.t)])
        for name, ranks in layout.holders(job).items()
    }


def _timeline(job: Job, outcomes: Sequence[Outcome], step: int) -> Timeline:
    """All ranks' actions in the order of the schedule; the first of them starts at 0."""
    start_s = np.concatenate([outcome.steps[step].start_s for outcome in outcomes])
    end_s = np.concatenate([outcome.steps[step].end_s for outcome in outcomes])
    return Timeline(schedule=job.schedule, start_s=start_s - start_s.min(), end_s=end_s - start_s.min())


def _unlike(job: Job, by_place: ByPlace) -> tuple[str, ...]:
    """Parameters of which two copies differ in any bit."""
    found = []
    for name, ranks in layout.holders(job).items():
        for k in range(job.t):
            copies = [by_place[Place(r, i, k)].weights[name] for r in ranks for i in range(job.d)]
            if not all(torch.equal(copies[0], copy) for copy in copies):
                found.append(name)
                break
    return tuple(found)
