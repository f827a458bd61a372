"""The best layouts of a part of a plan: bounds first, then whole estimates of those alone that may be among the best.

Exact by construction: what is left out is surely too large, or surely slower than enough layouts that fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipesim import headroom, legality
from pipesim.costs.columns import FloatArray
from pipesim.estimate import priced
from pipesim.estimate.bounds import bounds
from pipesim.plan import grid
from pipesim.plan.asked.groups import Group, groups
from pipesim.plan.asked.space import Config, Slice
from pipesim.plan.keep import MOST_FAILED, front
from pipesim.plan.search import question
from pipesim.results import schema
from pipesim.schedules.action import IntArray

AT_FIRST = 64
"""Layouts that are estimated first, those with the smallest bounds; then twice as many, and so on."""

MORE = 4
"""Times as many layouts are kept as are told, where some may become faster (``plan.search.refine``)."""

Mask = NDArray[np.bool_]


class Wanted(NamedTuple):
    """For each number of GPUs the ``top`` layouts by step time, of equal ones those with less memory, that leave the share
    ``headroom`` of a GPU's memory free. ``beside`` (GPUs, seconds) is a layout of which is counted how many are faster.
    """

    top: int
    headroom: float
    prune: bool
    beside: tuple[int, float] | None


class Counted(NamedTuple):
    """Names of what a part counts."""

    FITS: str = "fit"
    TOO_LARGE: str = "too large"
    SLOWER: str = "surely slower"
    FAILED: str = "failed"
    FASTER: str = "faster than the config's own"


COUNTED = Counted()


def best(slices: Sequence[Slice], wanted: Wanted) -> tuple[pa.Table, dict[str, int]]:
    """The rows of legal layouts that are kept, and how many came to what: everything but ``FASTER`` sums to all of them."""
    pool = _Pool(groups(slices), wanted)
    if wanted.prune:
        _search(pool)
        _front(pool)
        _nearest(pool)
    else:
        pool.estimate(np.arange(len(pool)))
    table = schema.sorted_table(pa.concat_tables(pool.tables))
    return thinned(table, wanted), pool.counts()


def thinned(table: pa.Table, wanted: Wanted) -> pa.Table:
    """The best of rows in order, the Pareto front of GPUs, step time and memory, the first that failed, and if nothing fits
    those that lack least. Thinning the thinned out tables of parts is thinning the whole.
    """
    roomy = np.flatnonzero(has_room(table, wanted))
    step_s, memory, gpus = (_numbers(table, name) for name in ("step_time_s", "memory_bytes", "gpus"))
    kept = np.zeros(table.num_rows, bool)
    kept[np.flatnonzero(pc.equal(table["status"], "failed").to_numpy())[:MOST_FAILED]] = True
    for count in np.unique(gpus[roomy]):
        own = roomy[gpus[roomy] == count]
        kept[own[np.lexsort((memory[own], step_s[own]))[: wanted.top]]] = True
    kept[roomy[front(np.zeros(len(roomy), np.int64), gpus[roomy], step_s[roomy], memory[roomy])]] = True
    if not len(roomy):
        kept[np.lexsort((step_s, memory))[: wanted.top]] = True
    return table.filter(pa.array(kept))


def has_room(table: pa.Table, wanted: Wanted) -> Mask:
    """Which rows fit with the head-room."""
    status = pc.is_in(table["status"], pa.array(["ok", "infeasible"])).to_numpy()
    room = (1 - wanted.headroom) * _numbers(table, "memory_limit_bytes")
    return np.asarray(status & (_numbers(table, "memory_bytes") <= room))


def _numbers(table: pa.Table, name: str) -> FloatArray:
    """Missing ones are endless."""
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), float("inf")).to_numpy(), np.float64)


class _Pool:
    """The points of a part with their bounds, and what is known of those that were estimated."""

    def __init__(self, asked: Sequence[Group], wanted: Wanted) -> None:
        self.wanted, self.groups = wanted, asked
        room = (1 - wanted.headroom) * _memory_bytes(asked)
        found = [_bounded(group, room) for group in asked]
        self.step_s, self.memory, self.gpus = (np.concatenate(each) for each in zip(*found, strict=True))
        sizes = [len(group.at) for group in asked]
        self.group_of = np.repeat(np.arange(len(asked)), sizes)
        self.place_of = np.concatenate([np.arange(size) for size in sizes])
        self.left: Mask = self.memory <= room
        """Points that may fit and that are neither estimated nor known to be slower."""
        self.estimated: Mask = np.zeros(len(self), np.bool_)
        self.tables: list[pa.Table] = []
        self.roomy: list[FloatArray] = []
        """Step time, memory and GPUs of what fits: (3, n) each time."""
        self._counts: Counter[str] = Counter({COUNTED.TOO_LARGE: int((~self.left).sum())})

    def __len__(self) -> int:
        return len(self.step_s)

    def estimate(self, points: IntArray) -> None:
        """Makes their rows."""
        points = np.sort(points)
        for own in np.split(points, np.flatnonzero(np.diff(self.group_of[points])) + 1):
            if len(own):
                self.tables.append(grid.table(_some(self.groups[self.group_of[own[0]]], self.place_of[own]), False))
                self._learn(self.tables[-1])
        self._counts[COUNTED.TOO_LARGE] -= int(
            (self.memory[points] > (1 - self.wanted.headroom) * _memory_bytes(self.groups)).sum()
        )
        self.estimated[points], self.left[points] = True, False

    def _learn(self, table: pa.Table) -> None:
        roomy = has_room(table, self.wanted)
        step_s, memory, gpus = (_numbers(table, name)[roomy] for name in ("step_time_s", "memory_bytes", "gpus"))
        self.roomy.append(np.stack([step_s, memory, gpus]))
        failed = int(np.sum(pc.equal(table["status"], "failed").to_numpy()))
        self._counts[COUNTED.FITS] += len(step_s)
        self._counts[COUNTED.FAILED] += failed
        self._counts[COUNTED.TOO_LARGE] += table.num_rows - failed - len(step_s)
        if self.wanted.beside is not None:
            count, seconds = self.wanted.beside
            self._counts[COUNTED.FASTER] += int(((gpus == count) & (step_s < seconds)).sum())

    def known(self) -> FloatArray:
        return np.concatenate([np.empty((3, 0)), *self.roomy], axis=1)

    def counts(self) -> dict[str, int]:
        counts = Counter(self._counts)
        counts[COUNTED.SLOWER] = len(self) - sum(n for name, n in counts.items() if name != COUNTED.FASTER)
        return {name: counts[name] for name in COUNTED if counts[name]}


def _search(pool: _Pool) -> None:
    """For each number of GPUs rising bounds, until enough layouts that fit are no slower than the next bound."""
    for count in np.unique(pool.gpus[pool.left]):
        size = AT_FIRST
        may = np.flatnonzero(pool.left & (pool.gpus == count))
        may = may[np.argsort(pool.step_s[may], kind="stable")]
        while len(may):
            pool.estimate(may[:size])
            may = may[size:]
            may, size = may[pool.step_s[may] <= _enough_s(pool, count)], 2 * size


def _enough_s(pool: _Pool, count: float) -> float:
    """Step time beyond which no layout of so many GPUs is asked for."""
    step_s, _, gpus = pool.known()
    own, top = np.sort(step_s[gpus == count]), pool.wanted.top
    most = own[top - 1] if len(own) >= top else np.inf
    beside = pool.wanted.beside
    return float(max(most, beside[1]) if beside is not None and beside[0] == count else most)


def _front(pool: _Pool) -> None:
    """Of what is left, what no layout that fits is sure to beat in time, memory and GPUs: first those whose bounds no
    other's bounds beat, for their estimates beat most of the rest.
    """
    may = np.flatnonzero(pool.left)
    while len(may := may[~_beaten(pool, may)]):
        bounds = (values[may] for values in (pool.gpus, pool.step_s, pool.memory))
        first = front(np.zeros(len(may), np.int64), *bounds)
        pool.estimate(may[first])
        may = np.delete(may, first)
    pool.left[:] = False


def _beaten(pool: _Pool, points: IntArray) -> Mask:
    """Whether a layout that fits takes no more than a point's bounds of each. Bounds lie below what they bound."""
    step_s, memory, gpus = pool.known()
    beaten = np.zeros(len(points), np.bool_)
    for count in np.unique(gpus):
        own = np.flatnonzero(gpus <= count)
        own = own[np.argsort(step_s[own], kind="stable")]
        least = np.minimum.accumulate(memory[own])
        at = np.searchsorted(step_s[own], pool.step_s[points], side="right") - 1
        beaten |= (pool.gpus[points] >= count) & (at >= 0) & (least[at] <= pool.memory[points])
    return beaten


def _nearest(pool: _Pool) -> None:
    """If nothing fits: the smallest bounds of memory, until enough layouts are no larger than the next one."""
    rest, size = np.flatnonzero(~pool.estimated), AT_FIRST
    rest = rest[np.argsort(pool.memory[rest], kind="stable")]
    while len(rest) and not pool.known().shape[1]:
        pool.estimate(rest[:size])
        held = np.sort(np.concatenate([_numbers(table, "memory_bytes") for table in pool.tables]))
        most = held[pool.wanted.top - 1] if len(held) >= pool.wanted.top else np.inf
        rest = rest[size:]
        rest, size = rest[pool.memory[rest] <= most], 2 * size


def _bounded(group: Group, room_bytes: float) -> tuple[FloatArray, FloatArray, IntArray]:
    """Bounds of step time and memory, and the GPUs, of points that keep the rules; a step of 0 s where there is no room."""
    assert group.like is not None
    numbers = legality.filled_in(group.like, group.numbers)
    points = grid.points_of(group.like, numbers)
    found = bounds(points, priced(points), room_bytes)
    return found.step_time_s, found.memory_bytes, numbers["t"] * numbers["p"] * numbers["c"] * numbers["d"]


def _memory_bytes(asked: Sequence[Group]) -> float:
    """Of a GPU: a plan is of one cluster."""
    (size,) = {group.like.cluster.memory_bytes for group in asked if group.like is not None}
    return float(size)


def _some(group: Group, places: IntArray) -> Group:
    return replace(
        group,
        at=group.at[places],
        numbers={name: values[places] for name, values in group.numbers.items()},
        shown={name: values.take(pa.array(places)) for name, values in group.shown.items()},
        point_hashes=group.point_hashes[places],
    )


def own_row(config: Config) -> schema.Row:
    """The row of the layout that a plan's config itself describes, whatever comes of it."""
    (row,) = grid.rows([config])
    return row


def wanted_of(config: Config) -> Wanted:
    """What a plan's config asks for, beside its own layout if that fits."""
    asked, row = config["task"]["plan"], own_row(config)
    beside = (row["gpus"], row["step_time_s"]) if question.has_room(config, row) else None
    prune = asked["prune"] and not config["cluster"]["parts"]  # bounds are those of equal nodes
    top = asked["best"] * (MORE if asked["partitions"] or asked["rank_orders"] else 1)
    return Wanted(top, headroom.of(config), prune, beside)
