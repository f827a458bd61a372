"""Which layouts keep the rules, one at a time or as columns."""

from __future__ import annotations

import dataclasses

from pipesim import schedules
from pipesim.checks import Invalid
from pipesim.legality.many import NONE, Judged, filled_in, judge, partition_of, warning_of
from pipesim.legality.rules import RULES
from pipesim.specs import Point

__all__ = ["NONE", "Judged", "filled_in", "judge", "micro_batches", "partition_of", "resolve", "warning_of"]


def resolve(point: Point) -> Point:
    """The point with ``d`` derived and the partition spelt out; raises ``Invalid`` with every broken rule."""
    layout = point.layout
    v = layout.v or schedules.stages_per_rank(point.schedule)
    degrees = layout.t * layout.p * layout.c
    d = layout.d or (point.cluster.gpus // degrees if point.cluster.gpus % degrees == 0 else None)
    point = dataclasses.replace(point, layout=dataclasses.replace(layout, v=v, d=d))
    problems = [problem for rule in RULES for problem in rule.problems(point)]
    if problems:
        raise Invalid(problems)
    partition = partition_of(point.schedule, point.options, point.model.units, layout.partition, layout.p, v)
    return dataclasses.replace(point, layout=dataclasses.replace(point.layout, partition=partition))


def micro_batches(point: Point) -> int:
    """m of a resolved point: micro-batches per replica and step."""
    assert point.layout.d is not None
    return point.training.global_batch // (point.training.micro_batch * point.layout.d)
