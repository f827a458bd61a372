"""Task: the partition of one layout that makes its step shortest, beside the balanced one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim import config as configs
from pipesim import headroom, legality
from pipesim.checks import Invalid
from pipesim.plan import grid
from pipesim.plan.partition import Split, compared, within
from pipesim.plan.partition.bound import bound_s
from pipesim.specs import Point
from pipesim.tasks import Done
from pipesim.tasks.partition.page import Told, page


def partition(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for a layout that breaks rules, or where there is nothing to divide or to run again."""
    point = legality.resolve(configs.build(config))
    recompute = config["task"]["partition"]["recompute"]
    _refuse(point, recompute)
    splits = compared(within(point, headroom.of(config)), recompute)
    if not splits[0].fits:  # with the head-room
        splits = compared(point, recompute)
    rows = grid.rows(_with(config, split) for split in splits)
    names = ("best", "balanced", "as asked")
    told = [Told(name, split, row) for name, split, row in zip(names, splits, rows, strict=False)]
    distinct = {row["point_id"]: row for row in rows}
    return Done(
        document=page(point, told, bound_s(point, recompute), headroom.of(config)), rows=list(distinct.values())
    )


def _refuse(point: Point, recompute: bool) -> None:
    problems = []
    if point.layout.p == 1:
        problems.append("parallel.p=1 is one stage, which holds every unit. Nearest: parallel.p=2.")
    if point.costs.kind == "lecture":
        problems.append("costs.kind=lecture cuts the model into equal blocks. Nearest: costs=full.")
    if recompute and point.training.recompute == "none":
        problems.append(
            "task.partition.recompute=true chooses which layers run again, and training.recompute=none runs none. "
            "Nearest: training.recompute=full or selective."
        )
    if problems:
        raise Invalid(problems)


def _with(config: Mapping[str, Any], split: Split) -> dict[str, Any]:
    training = dict(config["training"])
    if split.recompute_layers is not None:
        training["recompute_layers"] = list(split.recompute_layers)
    return {
        **config,
        "parallel": {**config["parallel"], "partition": list(split.partition)},
        "training": training,
        "task": None,
    }
