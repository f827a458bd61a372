"""What no partition of a layout can beat, found by the same dynamic program."""

from __future__ import annotations

import numpy as np

from pipesim import legality
from pipesim.estimate import priced
from pipesim.estimate.runs import runs
from pipesim.estimate.splits import splits_of
from pipesim.plan.partition.bottleneck import least_worst
from pipesim.plan.partition.many import contents_of
from pipesim.plan.partition.rank_costs import Tables, tables
from pipesim.specs import Point


def bound_s(point: Point, recompute: bool = False) -> float:
    """Seconds that a step of this layout takes at least, however its units are divided and whatever order it runs.

    Where each rank holds one stage: the least that the worst rank can take for all its work and the shortest way to it
    and back, of whole layers, and the least that the worst one's exchange shows. Else the mean work of all ranks.
    """
    point = legality.resolve(point)
    recompute = recompute and point.training.recompute != "none"
    every = contents_of(point, np.array([point.layout.partition]))
    points = splits_of(point, every, np.zeros(every.shape[:2]) if recompute else None)
    prices = priced(points)
    run = next(runs(points, prices))
    mean_s = float(run.m[0] * run.whole_s.sum() / run.shape.p)
    if point.schedule == "auto" or point.costs.kind == "lecture":  # an order for each point's times; equal blocks
        return mean_s + prices.step_s
    table = tables(point, recompute)
    return (_worst_s(point, table, recompute) if table.single else mean_s) + prices.step_s


def _worst_s(point: Point, table: Tables, recompute: bool) -> float:
    """Steps that follow each other without a barrier hide the way to the worst rank. An exchange behind more backward
    that runs again may show less, and ZeRO-3 exchanges beside the pipeline: then only the pipeline counts.
    """
    pipeline_s, _ = least_worst(table.passed_s if point.training.optimizer_barrier else table.busy_s)
    if recompute or point.layout.zero == 3:
        return pipeline_s
    return pipeline_s + least_worst(table.exchange_s)[0] + least_worst(table.optimizer_s)[0]
