"""A plan's best refined: of each layout the fastest order of ranks over nodes and the best division into stages are kept."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipesim import config as configs
from pipesim import headroom, legality
from pipesim.launch import rules
from pipesim.plan import grid, partition
from pipesim.plan.asked.behind import config_behind
from pipesim.plan.asked.space import PLAN_PART, Config, Slice, Space, cut, total, with_values
from pipesim.plan.search import best, placement, question
from pipesim.plan.search import layouts as search
from pipesim.results import schema

ORDER, PARTITION = "parallel.rank_order", "parallel.partition"
LEAST_GAIN = 1e-4
"""Of the step: for less no layout is made more peculiar."""


def refined(table: pa.Table, config: Config) -> pa.Table:
    """The table of a plan with some of its layouts placed and divided anew, where that is faster: twice as many as
    ``task.plan.best``, those that were fastest if stages could be equal.
    """
    rows = [same[0] for same in question.apart(question.ranked(config, table.to_pylist()), share=0)]
    rows = sorted(rows, key=lambda row: row["step_time_s"] - row["imbalance_s"])[: 2 * config["task"]["plan"]["best"]]
    faster = {row["point_id"]: found for row in rows if (found := _refined(row, config)) is not None}
    rest = table.filter(pc.invert(pc.is_in(table["point_id"], pa.array(list(faster), pa.string()))))
    return schema.sorted_table(pa.concat_tables([rest, *faster.values()]))


def _refined(row: Mapping[str, Any], config: Config) -> pa.Table | None:
    """The layout's row with what is faster; None where nothing is, and where a table cannot tell the layout."""
    own, asked = config_behind(row, config), config["task"]["plan"]
    if own is None:
        return None
    changes: dict[str, Any] = {}
    if asked["rank_orders"]:
        changes |= _placed(row, own)
    if asked["partitions"]:
        changes |= _divided(with_values(own, changes))
    if not changes:
        return None
    table = _table(with_values(own, changes), tuple(changes))
    return table if _is_faster(table.to_pylist()[0], row, config) else None


def _placed(row: Mapping[str, Any], own: Config) -> dict[str, Any]:
    """The fastest order of ranks over nodes, of those that put some group on another link."""
    point = legality.resolve(configs.build(own))
    orders = [order for order in placement.orders(point) if order != point.layout.rank_order]
    if own["task"]["plan"]["framework_rules"]:
        layouts = [dataclasses.replace(point.layout, rank_order=order) for order in orders]
        runs = [not rules.problems(dataclasses.replace(point, layout=layout)) for layout in layouts]
        orders = list(itertools.compress(orders, runs))
    tables = [_table(with_values(own, {ORDER: order}), (ORDER,)) for order in orders]
    found = [(each["step_time_s"], order) for table, order in zip(tables, orders, strict=True)
             for each in table.to_pylist() if _is_faster(each, row, own)]  # fmt: skip
    return {ORDER: min(found)[1]} if found else {}


def _divided(own: Config) -> dict[str, Any]:
    """The best division of the layout's units within the head-room."""
    point = legality.resolve(configs.build(own))
    split = partition.best(partition.within(point, headroom.of(own)))
    return {} if split.partition == point.layout.partition else {PARTITION: list(split.partition)}


def _table(config: Config, told: tuple[str, ...]) -> pa.Table:
    return grid.evaluate([Slice(Space(base=config, told=told), 0, 1)], details=False)


def _is_faster(row: Mapping[str, Any], than: Mapping[str, Any], config: Config) -> bool:
    return question.has_room(config, row) and row["step_time_s"] < (1 - LEAST_GAIN) * than["step_time_s"]


def ranked_rows(config: Config) -> list[schema.Row]:
    """The rows of a plan's best, the best first, searched in parts in this process."""
    spaces, wanted = search.spaces(config), best.wanted_of(config)
    starts = range(0, total(spaces), PLAN_PART)
    tables = [best.best([*cut(spaces, start, start + PLAN_PART)], wanted)[0] for start in starts]
    rows = refined(best.thinned(schema.sorted_table(pa.concat_tables(tables)), wanted), config).to_pylist()
    same = question.apart(question.ranked(config, rows))
    return [dict(each[0]) for each in same[: config["task"]["plan"]["best"]]]
