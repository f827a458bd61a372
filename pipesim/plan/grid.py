"""Evaluates asked points as columns: every one becomes a row, whatever comes of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from pipesim import legality
from pipesim.costs.columns import distinct
from pipesim.estimate import Points, evaluate_columns
from pipesim.estimate.points import Shape, columns, priced_micro_batches, shape
from pipesim.plan.asked.groups import Group, groups
from pipesim.plan.asked.space import Config, Slice, Space
from pipesim.plan.rows import Rows
from pipesim.results import schema
from pipesim.results.schema import Row
from pipesim.schedules.action import IntArray
from pipesim.simulate import Deadlock
from pipesim.specs import Point

log = logging.getLogger(__name__)


def evaluate(slices: Iterable[Slice], details: bool) -> pa.Table:
    """A row of ``results.schema`` for every point of the slices, sorted. ``details`` fills the columns that hold a list."""
    tables = [table(group, details) for group in groups([*slices])]
    return schema.sorted_table(pa.concat_tables(tables)) if tables else schema.SCHEMA.empty_table()


def rows(configs: Iterable[Config], details: bool = True) -> list[Row]:
    """A row for each plain config, in the same order."""
    alone = (Slice(Space(base=config), 0, 1) for config in configs)
    return [row for group in groups([*alone]) for row in table(group, details).to_pylist()]


def table(group: Group, details: bool) -> pa.Table:
    """The rows of a group, in its order."""
    problems = np.full(len(group.at), " ".join(group.problems), object)
    for mask, problem in group.wrong:
        problems[mask] = [f"{said} {problem}".strip() for said in problems[mask]]
    rows = Rows(group)
    rows.refuse(np.flatnonzero(problems != ""), problems)
    if group.like is not None:
        whole = np.flatnonzero(problems == "")
        judged = legality.judge(group.like, {name: values[whole] for name, values in group.numbers.items()})
        rows.derive(whole, judged.numbers)
        texts = np.array([" ".join(broken) for broken in judged.broken], object)
        problems[whole] = texts[judged.which]
        rows.refuse(whole[~judged.legal], problems)
        legal = np.flatnonzero(judged.legal)
        _evaluate(
            group.like, {name: values[legal] for name, values in judged.numbers.items()}, whole[legal], rows, details
        )
    return rows.table()


def _evaluate(like: Point, numbers: Mapping[str, IntArray], at: IntArray, rows: Rows, details: bool) -> None:
    """Fills the rows ``at`` of legal points. Those that fail are told apart by halves, so that one costs one row."""
    if not len(at):
        return
    try:
        points = points_of(like, numbers)
        rows.fill(at, points, evaluate_columns(points, details), details)
    except Deadlock as error:
        rows.refuse(at, np.full(len(rows), str(error), object))
    except Exception as error:
        if len(at) == 1:
            log.exception("a point failed")
            rows.fail(at, f"{type(error).__name__}: {error}")
            return
        for half in np.array_split(np.arange(len(at)), 2):
            _evaluate(like, {name: values[half] for name, values in numbers.items()}, at[half], rows, details)


def points_of(like: Point, numbers: Mapping[str, IntArray]) -> Points:
    """Legal points that share the words of ``like``, from their numbers: columns (n,), none of them missing."""
    m = numbers["global_batch"] // (numbers["micro_batch"] * numbers["d"])
    priced = {**numbers, "num_microbatches": priced_micro_batches(like, numbers["p"], m)}
    del priced["global_batch"]
    first, cell_of = distinct(list(priced.values()))
    cells = {name: values[first] for name, values in priced.items()}
    sized, shape_of = distinct([cells["p"], cells["v"]])
    shapes = tuple(_shape(like, int(cells["p"][i]), int(cells["v"][i])) for i in sized)
    shard = None if like.layout.shard is None else np.full((len(first), 1), float(like.layout.shard))
    floats = {name: values[:, None].astype(np.float64) for name, values in cells.items()}
    return columns(like, like.model, floats, shard, shapes, shape_of, cell_of, m)


def _shape(like: Point, p: int, v: int) -> Shape:
    model, layout = like.model, like.layout
    return shape(
        model.layers,
        model.dense_layers,
        legality.partition_of(like.schedule, like.options, model.units, layout.partition, p, v),
        layout.spread_vocab != "none",
        like.training.recompute_layers,
        p,
        v,
        like.schedule,
        like.options,
    )
