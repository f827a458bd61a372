"""The rules for many points at once: one answer for all that agree in what a rule depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim import schedules
from pipesim.costs.columns import IntArray, codes, distinct
from pipesim.costs.stage import balanced_partition
from pipesim.legality.rules import RULES, Rule
from pipesim.schedules.remembered import remembered
from pipesim.specs import Point

NONE = 0
"""Stands for a number that is not given, or that cannot be derived."""

LAYOUT, TRAINING = ("t", "p", "c", "d", "e", "v"), ("micro_batch", "global_batch", "seq_length")


class Judged(NamedTuple):
    """``numbers`` with d, v and seq_length filled in; what each of the n points breaks: ``broken`` holds every set of
    problems that occurs (the first is none), ``which`` (n,) says which of them a point has.
    """

    numbers: dict[str, IntArray]
    broken: list[tuple[str, ...]]
    which: IntArray

    @property
    def legal(self) -> NDArray[np.bool_]:
        return np.asarray(self.which == 0)


def judge(like: Point, numbers: Mapping[str, IntArray]) -> Judged:
    """``numbers`` are columns (n,) of what ``LAYOUT`` and ``TRAINING`` name; d, v and seq_length may be ``NONE``.
    ``like`` is any of the points, of whose words the rules are asked.
    """
    filled = filled_in(like, numbers)
    broken: list[tuple[str, ...]] = [()]
    which = np.zeros(len(filled["t"]), np.int64)
    for rule in RULES:
        found, of = _found(rule, like, filled)
        if len(found) == 1:
            continue
        pairs, which = codes(which * len(found) + of)
        broken = [broken[pair // len(found)] + found[pair % len(found)] for pair in pairs.tolist()]
        if broken[0]:  # every point breaks a rule: the first place stays for those that break none
            broken, which = [(), *broken], which + 1
    return Judged(filled, broken, which)


def filled_in(like: Point, numbers: Mapping[str, IntArray]) -> dict[str, IntArray]:
    """The numbers with d, v and seq_length where they are ``NONE``."""
    gpus = like.cluster.gpus
    cut = 1.0 * numbers["t"] * numbers["p"] * numbers["c"]  # products of whole numbers may not fit into 64 bits
    derived = np.where((cut <= gpus) & (gpus % cut == 0), gpus // cut, NONE).astype(np.int64)
    v, length = schedules.stages_per_rank(like.schedule), like.training.seq_length or like.model.context
    given: dict[str, IntArray] = {
        "d": derived,
        "v": np.full_like(derived, v),
        "seq_length": np.full_like(derived, length),
    }
    return {
        name: np.where(values == NONE, given[name], values) if name in given else values
        for name, values in numbers.items()
    }


def _found(rule: Rule, like: Point, numbers: Mapping[str, IntArray]) -> tuple[list[tuple[str, ...]], IntArray]:
    """Every set of problems that occurs, the first one none, and which each point has."""
    n = len(numbers["t"])
    found: dict[tuple[str, ...], int] = {(): 0}
    which = np.zeros(n, np.int64)
    asked = np.arange(n) if rule.holds is None else np.flatnonzero(~np.broadcast_to(rule.holds(like, numbers), n))
    if len(asked):
        columns = {name: numbers[name][asked] for name in rule.numbers}
        first, of = distinct(list(columns.values()))
        sizes = [{name: int(column[i]) for name, column in columns.items()} for i in first]
        answers = [found.setdefault(tuple(rule.problems(_point(like, size))), len(found)) for size in sizes]
        which[asked] = np.array(answers)[of]
    return list(found), which


def _point(like: Point, numbers: Mapping[str, int]) -> Point:
    """``like`` with some of its numbers changed."""
    layout = {name: numbers[name] or None for name in LAYOUT if name in numbers}
    training = {name: numbers[name] or None for name in TRAINING if name in numbers}
    return dataclasses.replace(
        like,
        layout=dataclasses.replace(like.layout, **layout),  # type: ignore[arg-type]
        training=dataclasses.replace(like.training, **training),  # type: ignore[arg-type]
    )


Options = tuple[tuple[str, int | float | str], ...]


@remembered(maxsize=10_000)
def partition_of(
    schedule: str, options: Options, units: int, asked: str | tuple[int, ...], p: int, v: int
) -> tuple[int, ...]:
    """Units on each of the p * v stages of a legal layout."""
    if not isinstance(asked, str):
        return asked
    return balanced_partition(units, p * v, schedules.ranks_of_stages(schedule, p, v, **dict(options)))


@remembered(maxsize=10_000)
def warning_of(schedule: str, options: Options, p: int, m: int, v: int) -> str | None:
    """What of a legal order runs but is unwise."""
    return " ".join(schedules.warnings(schedule, p, m, v, **dict(options))) or None
