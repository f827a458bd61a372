"""A plan's best with their units divided anew: of each layout the faster division into stages is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipesim import config as configs
from pipesim.plan import best, grid, partition, question, search
from pipesim.plan.behind import config_behind
from pipesim.plan.space import PART, Config, Slice, Space, cut, total, with_values
from pipesim.results import schema

KEY = "parallel.partition"
LEAST_GAIN = 1e-4
"""Of the step: a smaller one is not worth stages that are uneven."""


def refined(table: pa.Table, config: Config) -> pa.Table:
    """The table of a plan with its best ``task.plan.best`` layouts divided as ``partition.best`` finds, where that is faster."""
    asked = config["task"]["plan"]
    if not asked["partitions"]:
        return table
    found = {
        row["point_id"]: _divided(row, config) for row in question.ranked(config, table.to_pylist())[: asked["best"]]
    }
    faster = {point_id: rows for point_id, rows in found.items() if rows is not None}
    rest = table.filter(pc.invert(pc.is_in(table["point_id"], pa.array(list(faster), pa.string()))))
    return schema.sorted_table(pa.concat_tables([rest, *faster.values()]))


def _divided(row: Mapping[str, Any], config: Config) -> pa.Table | None:
    """The row of the layout with its best division; None where that is no faster, and where a table cannot tell the layout."""
    if row["imbalance_s"] + row["bubble_s"] < LEAST_GAIN * row["step_time_s"]:
        return None
    own = config_behind(row, config)
    if own is None:
        return None
    point = configs.build(own)
    room = (1 - config["task"]["plan"]["headroom"]) * point.cluster.memory_bytes
    split = partition.best(dataclasses.replace(point, cluster=dataclasses.replace(point.cluster, memory_bytes=room)))
    if not split.fits or split.step_time_s > (1 - LEAST_GAIN) * row["step_time_s"]:
        return None
    divided = with_values(own, {KEY: list(split.partition)})
    return grid.evaluate([Slice(Space(base=divided, told=(KEY,)), 0, 1)], details=False)


def ranked_rows(config: Config) -> list[schema.Row]:
    """The rows of a plan's best, the best first, searched in parts in this process."""
    spaces, wanted = search.spaces(config), best.wanted_of(config)
    tables = [best.best([*cut(spaces, start, start + PART)], wanted)[0] for start in range(0, total(spaces), PART)]
    rows = refined(best.thinned(schema.sorted_table(pa.concat_tables(tables)), wanted), config).to_pylist()
    return [dict(row) for row in question.ranked(config, rows)[: wanted.top]]
