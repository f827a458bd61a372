"""What a report of one layout says beyond its row's numbers: every collective, and what each fix could gain at most."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from pipesim.costs import gains, traffic
from pipesim.costs.columns import FloatArray, codes
from pipesim.costs.prices import Prices
from pipesim.costs.stage import StageSeconds
from pipesim.estimate import mixed
from pipesim.estimate.points import Points
from pipesim.estimate.runs import Run, counted, members_of
from pipesim.schedules.action import IntArray, Op


def details(points: Points, prices: Prices, run: Run, items: dict[str, FloatArray]) -> dict[str, list[Any]]:
    """Columns ``communication`` and ``fixes`` of a run's members, as JSON; ``items`` are their seconds."""
    sends = counted(run, "sends")
    found: dict[str, list[Any]] = {name: [None] * len(run.members) for name in ("communication", "fixes")}
    for at in members_of(codes(run.m)[1]):
        order = run.orders[run.order_of[at[0]]]
        by_stage = _by_stage(points, prices, run, at)
        schedule, holds = order.schedule, np.zeros((run.shape.p, len(run.shape.rank_of)))
        for rank, own in enumerate(run.stages):
            holds[rank, own[own >= 0]] = 1
        split, barrier = bool((schedule.op == Op.W).any()), points.like.training.optimizer_barrier
        gained = gains.at_most(
            by_stage,
            {item: seconds[at] for item, seconds in items.items()},
            gains.Run(holds, int(run.m[at[0]]), schedule.segments, split, barrier),
        )
        tables = traffic.tables(
            by_stage.collectives, holds, round(sends[at[0]] * schedule.segments), schedule.segments, len(at)
        )
        for i, index in enumerate(at):
            found["communication"][index] = tables[i]
            rounding_s = 1e-9 * float(sum(seconds[index] for seconds in items.values()))
            found["fixes"][index] = json.dumps({fix: float(s[i]) for fix, s in gained.items() if s[i] > rounding_s})
    return found


def _by_stage(points: Points, prices: Prices, run: Run, at: IntArray) -> Prices:
    """The prices of some members with one m, for every stage instead of every kind of stage, with what sends cost, and
    with the collectives of a step.
    """
    kind_of, shape, m = list(run.shape.kind_of), points.stages.head.shape, int(run.m[at[0]])
    cells = run.cells[run.cell_of[at]]

    def spread(values: Any) -> FloatArray:
        return np.broadcast_to(np.asarray(values, np.float64), shape)[cells][:, kind_of]

    ops = [{item: spread(seconds) for item, seconds in op.items()} for op in prices.seconds]
    cut, sent = points.cut.taken(cells), prices.hop_bytes[cells][:, None]
    if run.standing_s is not None:
        boundary_s = mixed.boundary_s(points, run.shape, cut, sent)
        nothing = np.zeros((len(cells), 1))
        ops[0]["hop"], ops[1]["hop"] = np.hstack([boundary_s, nothing]), np.hstack([nothing, boundary_s])
    arrays = {
        field.name: getattr(prices, field.name)
        for field in dataclasses.fields(prices)
        if isinstance(getattr(prices, field.name), np.ndarray)
    }
    changed: dict[str, Any] = {
        name: values[cells] if values.ndim == 1 else spread(values) for name, values in arrays.items()
    }
    collectives = [
        each._replace(times=m * each.times) if each.dimension in traffic.EVERY_MICRO_BATCH else each
        for each in traffic.taken(prices.collectives, cells, kind_of)
    ]
    sends = mixed.sends(points, run.shape, cut, sent)
    return dataclasses.replace(prices, seconds=StageSeconds(*ops), collectives=(*collectives, sends), **changed)
