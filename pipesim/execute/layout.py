"""Who is in which group, and which ranks have a copy of which parameter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.execute import partition
from pipesim.execute.job import Job, Place, places
from pipesim.schedules.rules import dependencies


class Bucket(NamedTuple):
    """Parameters that lie on the same pipeline ranks (``holders``): their gradients are summed in one go."""

    names: tuple[str, ...]
    holders: tuple[int, ...]


def stages_of_ranks(job: Job) -> list[tuple[int, ...]]:
    """The stages of each pipeline rank."""
    schedule = job.schedule
    each = zip(schedule.rank_start[:-1], schedule.rank_start[1:], strict=True)
    return [tuple(np.unique(schedule.stage[start:stop]).tolist()) for start, stop in each]


def stage_of_parameter(job: Job) -> dict[str, int]:
    """The first stage that has each parameter, in the order of the model."""
    found: dict[str, int] = {}
    for stage, units in enumerate(job.units):
        for unit in units:
            for name in partition.parameter_names(job.model, unit):
                found.setdefault(name, stage)
    return found


def parameters_of_rank(job: Job, rank: int) -> tuple[str, ...]:
    """What a pipeline rank has of the model, each name once even if two of its stages use it."""
    stages = stages_of_ranks(job)[rank]
    units = [unit for stage in stages for unit in job.units[stage]]
    return tuple(dict.fromkeys(name for unit in units for name in partition.parameter_names(job.model, unit)))


def holders(job: Job) -> dict[str, tuple[int, ...]]:
    """The pipeline ranks that have each parameter: several for tied ones and where a stage is on two ranks."""
    owned = [set(parameters_of_rank(job, rank)) for rank in range(job.p)]
    return {name: tuple(r for r, own in enumerate(owned) if name in own) for name in stage_of_parameter(job)}


def buckets(job: Job) -> list[Bucket]:
    """All parameters by who has them, in one order that every process keeps."""
    found: dict[tuple[int, ...], list[str]] = {}
    for name, ranks in holders(job).items():
        found.setdefault(ranks, []).append(name)
    return [Bucket(tuple(names), ranks) for ranks, names in sorted(found.items())]


def link_bytes(job: Job) -> dict[tuple[int, int], int]:
    """Bytes of a step from pipeline rank to pipeline rank, of one replica and one tensor rank: what must be measured.

    Every result that the next action needs from another rank travels once: (sequences, length, width) of the dtype.
    """
    schedule, rank_of = job.schedule, job.schedule.rank_of()
    token_bytes = job.model.width * job.torch_dtype.itemsize
    tokens = job.segment_length // (job.t if job.sequence_parallel else 1)
    found: dict[tuple[int, int], int] = {}
    for reader, maker in enumerate(dependencies(schedule).remote.tolist()):
        link = int(rank_of[maker]), int(rank_of[reader])
        if maker >= 0 and link[0] != link[1]:
            sequences = job.micro_batches[int(schedule.micro_batch[reader]) // schedule.segments]
            found[link] = found.get(link, 0) + sequences * tokens * token_bytes
    return dict(sorted(found.items()))


def team(job: Job, place: Place) -> tuple[int, ...]:
    """The t processes that share the layers of ``place``."""
    return tuple(place._replace(tensor=k).number(job) for k in range(job.t))


def copies(job: Job, place: Place, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The processes that have the same part of parameters that lie on pipeline ``ranks``, over all replicas."""
    return tuple(sorted(Place(r, i, place.tensor).number(job) for r in ranks for i in range(job.d)))


def everyone(job: Job) -> tuple[int, ...]:
    return tuple(range(job.world))


def groups(job: Job) -> list[tuple[int, ...]]:
    """The members of every group of more than one, in one order that every process keeps."""
    found = {everyone(job)}
    for place in places(job):
        found.add(team(job, place))
        found |= {copies(job, place, bucket.holders) for bucket in buckets(job) if place.pipeline in bucket.holders}
    return sorted(members for members in found if len(members) > 1)
