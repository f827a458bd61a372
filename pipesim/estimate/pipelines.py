"""The pipeline behind a row, simulated anew: for pictures, traces and causes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pipesim.estimate.orders import for_times
from pipesim.schedules.action import Schedule
from pipesim.simulate import idle, lower_bounds, simulate
from pipesim.simulate.timeline import Timeline


class Pipeline(NamedTuple):
    """The pipeline behind a row: when everything runs, how short it could be, and idle seconds of all ranks by cause."""

    timeline: Timeline
    lower_bound_s: float
    idle_s: dict[str, float]


def pipeline(row: Mapping[str, Any]) -> Pipeline:
    """Of a row of ``results.schema`` with details."""
    schedule, times = timed(row)
    timeline = simulate(schedule, *times)
    bound = lower_bounds(schedule, *times)
    return Pipeline(timeline, bound.makespan_s, {str(cause): s for cause, s in idle(timeline).by_cause().items()})


def timed(row: Mapping[str, Any]) -> tuple[Schedule, list[Any]]:
    """The schedule of a row with details, and its seconds: forward, input and weight gradient of every stage, and a hop.

    A row's seconds are of a whole micro-batch; where a schedule cuts it into segments, each takes its share.
    """
    stage_s = [np.array(row[f"stage_{op}_s"], np.float64) for op in ("forward", "input_grad", "weight_grad")]
    options = tuple(json.loads(row["schedule_options"] or "{}").items())
    sizes = (row["p"], row["num_microbatches"], row["v"])
    schedule = for_times(row["schedule"], *sizes, options, [*stage_s, row["hop_s"]])
    return schedule, [*(op / schedule.segments for op in stage_s), row["hop_s"] / schedule.segments]
