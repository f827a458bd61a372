"""Keeps the best rows of a table too large to keep: the top of each group and its Pareto front, exactly, part by part."""

from __future__ import annotations

import bisect
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipesim.checks import Invalid
from pipesim.results import schema
from pipesim.schedules.action import IntArray

FRONT = ("gpus", "step_time_s", "memory_bytes")
"""What the Pareto front trades off; less of each is better."""

MOST_FAILED = 100
"""Rows with status failed that are kept, the first ones, so that their reasons can be read."""

Mask = NDArray[np.bool_]


class Keeper:
    """Of all rows added: the ``top`` that fit of each group of equal ``per``, by ``by`` (``-by``: the largest first) and
    then by their order; with ``pareto`` also each group's rows that fit and that no other beats in step time, memory or
    GPUs without losing in one; and the first failed. Memory is what it keeps and one part.

    What a keeper keeps of parts that keepers of the same kind have thinned out is what it keeps of the whole.

    Raises ``Invalid`` for columns that are not there.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.top, self.per, self.pareto = conf["top"], list(conf["per"]), conf["pareto"]
        self.by, self.sign = conf["by"].lstrip("-"), -1.0 if conf["by"].startswith("-") else 1.0
        numbers = [
            field.name for field in schema.SCHEMA if pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        ]
        scalars = [field.name for field in schema.SCHEMA if not pa.types.is_nested(field.type)]
        problems = _unknown("by", [self.by], numbers) + _unknown("per", self.per, scalars)
        if self.top < 0:
            problems.append(f"grid.keep.top={self.top} must be at least 0. Nearest: 0.")
        if self.top == 0 and not self.pareto:
            problems.append(
                "grid.keep.top=0 and grid.keep.pareto=false keep no row. Nearest: top=1 or pareto=true; "
                "study.dry_run=true counts without keeping."
            )
        if problems:
            raise Invalid(problems)
        self.counts: Counter[str] = Counter()
        """Of everything that was added, by status."""
        self._parts: list[pa.Table] = []
        self._order: IntArray = np.empty(0, np.int64)

    def add(self, table: pa.Table) -> None:
        """Rows in the schema; those of an earlier part come first."""
        start = self.counts.total()
        self.counts.update(table["status"].to_pylist())
        both = pa.concat_tables([*self._parts, table])
        order = np.concatenate([self._order, np.arange(start, start + table.num_rows)])
        kept = np.flatnonzero(self._kept(both))
        self._parts, self._order = [both.take(kept).combine_chunks()], order[kept]

    def table(self) -> pa.Table:
        """The rows kept, in the order in which they were added."""
        return self._parts[0] if self._parts else schema.SCHEMA.empty_table()

    def told(self) -> str:
        """What was evaluated and what of it is kept, as a sentence for the report."""
        statuses = {"ok": "fit", "infeasible": "do not fit", "invalid": "break rules", "failed": "failed"}
        counted = ", ".join(f"{self.counts[each]:,} {word}" for each, word in statuses.items() if self.counts[each])
        groups = f" of each {' and '.join(self.per)}" if self.per else ""
        order = "largest" if self.sign < 0 else "smallest"
        top = f"the {self.top:,} with the {order} {self.by}{groups} that fit" if self.top else ""
        front = f"the Pareto front of step time, memory and GPUs{'' if self.top else groups}" if self.pareto else ""
        return (
            f"Of {self.counts.total():,} points that were evaluated ({counted}) the table keeps {self.table().num_rows:,}: "
            f"{', and '.join(filter(None, (top, front)))}."
        )

    def _kept(self, table: pa.Table) -> Mask:
        kept = np.zeros(table.num_rows, bool)
        failed = np.flatnonzero(pc.fill_null(pc.equal(table["status"], "failed"), False).to_numpy())
        kept[failed[:MOST_FAILED]] = True
        fits = np.flatnonzero(pc.fill_null(pc.equal(table["status"], "ok"), False).to_numpy())
        groups = _groups([table[name].take(fits) for name in self.per], len(fits))
        kept[fits[_top(groups, _numbers(table[self.by].take(fits), self.sign), self.top)]] = True
        if self.pareto:
            kept[fits[front(groups, *(_numbers(table[name].take(fits)) for name in FRONT))]] = True
        return kept


def _unknown(key: str, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    near = {name: difflib.get_close_matches(name, columns, n=3, cutoff=0.5) or columns[:3] for name in names}
    return [
        f"grid.keep.{key}: {name} is no column that can be used. Nearest: {' or '.join(near[name])}."
        for name in names
        if name not in columns
    ]


def _numbers(column: pa.ChunkedArray, sign: float = 1.0) -> NDArray[np.float64]:
    """Smaller is better; missing values are the worst."""
    values = sign * column.cast(pa.float64()).to_numpy()
    return np.where(np.isnan(values), np.inf, values)


def _groups(columns: Sequence[pa.ChunkedArray], count: int) -> IntArray:
    """Equal numbers for rows of equal values."""
    found = np.zeros(count, np.int64)
    for column in columns:
        codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        found = np.unique(found * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
    return found


def _top(groups: IntArray, values: NDArray[np.float64], count: int) -> IntArray:
    """Rows with the smallest values of each group; of equal ones the first."""
    ranked = np.lexsort((values, groups))
    place = np.arange(len(ranked)) - np.searchsorted(groups[ranked], groups[ranked])
    return ranked[place < count]


def front(
    groups: IntArray, gpus: NDArray[np.float64], step: NDArray[np.float64], memory: NDArray[np.float64]
) -> list[int]:
    """Rows of each group that no other row dominates: at most as much of everything and less of something.

    Rows of as many GPUs are thinned out first, as arrays; what is left meets the rows of fewer GPUs on a staircase.
    """
    order = np.lexsort((memory, step, gpus, groups))
    left = order[_undominated_of_as_many(groups[order], gpus[order], step[order], memory[order])]
    found: list[int] = []
    stairs: tuple[list[float], list[float]] = ([], [])
    asked = list(zip(left.tolist(), *(values[left].tolist() for values in (groups, gpus, step, memory)), strict=True))
    for k, (_, group, *_) in enumerate(asked):
        if k == 0 or group != asked[k - 1][1]:
            stairs = ([], [])
            equals: list[tuple[int, float, float]] = []
        row, _, count, seconds, size = asked[k]
        if not _dominated(stairs, seconds, size):
            equals.append((row, seconds, size))
        if k + 1 == len(asked) or asked[k + 1][1:3] != (group, count):
            for row, seconds, size in equals:
                found.append(row)
                _climb(stairs, seconds, size)
            equals = []
    return found


def _undominated_of_as_many(groups: IntArray, gpus: Any, step: Any, memory: Any) -> Mask:
    """Of rows sorted by all four: those that no other of the same group and GPUs dominates."""
    new = np.empty(len(groups), bool)
    new[:1] = True
    new[1:] = (np.diff(groups) != 0) | (np.diff(gpus) != 0)
    block = np.cumsum(new)
    rank = np.unique(memory, return_inverse=True)[1]
    falling = rank - block * (
        len(rank) + 1
    )  # a later block lies below all earlier ones, so that the minimum starts anew
    least = np.minimum.accumulate(falling)
    before = np.concatenate([[np.iinfo(np.int64).max], least[:-1]])
    same = np.zeros(len(groups), bool)
    same[1:] = ~new[1:] & (np.diff(step) == 0) & (np.diff(memory) == 0)
    better = new | (falling < before)
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(groups))))
    return np.asarray(better[first])


def _dominated(stairs: tuple[list[float], list[float]], step: float, memory: float) -> bool:
    steps, memories = stairs
    at = bisect.bisect_right(steps, step) - 1
    return at >= 0 and memories[at] <= memory


def _climb(stairs: tuple[list[float], list[float]], step: float, memory: float) -> None:
    """Adds a row to the staircase: steps rise, memories fall."""
    steps, memories = stairs
    if _dominated(stairs, step, memory):
        return
    at = bisect.bisect_left(steps, step)
    after = at
    while after < len(steps) and memories[after] >= memory:
        after += 1
    steps[at:after], memories[at:after] = [step], [memory]
