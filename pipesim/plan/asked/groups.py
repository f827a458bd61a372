"""From slices of spaces to groups of points that differ in numbers alone, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipesim import config as configs
from pipesim.checks import Checks, Invalid
from pipesim.legality import NONE
from pipesim.plan.asked import names
from pipesim.plan.asked.space import Config, Slice, Space, with_values
from pipesim.point_id import leaf_hash, point_hash
from pipesim.schedules.action import IntArray
from pipesim.specs import Point

NUMBERS: dict[str, int | None] = {
    "parallel.t": 1, "parallel.p": 1, "parallel.c": 1, "parallel.d": None, "parallel.e": 1, "parallel.v": None,
    "training.micro_batch": 1, "training.global_batch": 1, "training.seq_length": None,
}  # fmt: skip
"""Config keys whose values stand in columns, with a value that is always legal by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """n asked points that share all words."""

    at: IntArray
    """Which of the asked points they are."""
    config: Config
    """With the numbers of ``NUMBERS`` set to what is legal by itself."""
    like: Point | None
    """None if the words are illegal."""
    problems: tuple[str, ...]
    """What is wrong with the words."""
    numbers: dict[str, IntArray]
    """By the last part of their keys, shape (n,); ``NONE`` where none is given, and where the value is illegal by itself."""
    shown: dict[str, pa.Array]
    """The numbers as asked; null where none is given or where it does not fit into 64 bits."""
    wrong: list[tuple[NDArray[np.bool_], str]]
    """For every value that is illegal by itself: which points have it, and the problem."""
    point_hashes: NDArray[np.uint64]
    told: tuple[str, ...] = ()
    """Keys whose values the rows' settings tell."""


def groups(slices: Sequence[Slice]) -> list[Group]:
    """All points of the slices; what they are asked with is theirs by place: the first of the first slice is 0."""
    found, first = [], 0
    for each in slices:
        found += [*_groups(each, first)]
        first += each.stop - each.start
    return found


def _groups(asked: Slice, first: int) -> Iterator[Group]:
    space = asked.space
    kept = np.flatnonzero(names.mask(asked))
    if not len(kept):
        return
    digits = [digit[kept] for digit in space.digits(asked.start, asked.stop)]
    words = np.zeros(len(kept), np.int64)
    wordy = [(axis, digit) for axis, digit in zip(space.axes, digits, strict=True) if set(axis.keys) - NUMBERS.keys()]
    for axis, digit in wordy:
        words = words * len(axis.values) + digit
    order = np.argsort(words, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(words[order])) + 1):
        changes = {
            key: value
            for axis, digit in wordy
            for key, value in zip(axis.keys, axis.values[digit[members[0]]], strict=True)
            if key not in NUMBERS
        }
        yield _group(space, [digit[members] for digit in digits], changes, kept[members] + first)


def _group(space: Space, digits: Sequence[IntArray], changes: Mapping[str, Any], at: IntArray) -> Group:
    config = with_values(space.base, changes)
    hashes = np.full(len(at), point_hash(config), np.uint64)
    numbers, shown, wrong = {}, {}, []
    for key in NUMBERS:
        part, name = key.split(".")
        values, which = [config[part][name]], np.zeros(len(at), np.int64)
        for axis, digit in zip(space.axes, digits, strict=True):
            if key in axis.keys:
                values, which = _occurring([value[axis.keys.index(key)] for value in axis.values], digit)
        legal, problems = _checked(part, name, values)
        numbers[name] = legal[which]
        shown[name] = _fitting(values).take(pa.array(which))
        wrong += [(which == index, problem) for index, problem in problems if (which == index).any()]
        own = np.array([leaf_hash(key, value) for value in values], np.uint64)
        hashes += own[which] - np.uint64(leaf_hash(key, config[part][name]))
    config = with_values(config, NUMBERS)
    like, broken = _built(config)
    return Group(
        at=at,
        config=config,
        like=like,
        problems=broken,
        numbers=numbers,
        shown=shown,
        wrong=wrong,
        point_hashes=hashes,
        told=space.told,
    )


def _occurring(values: list[Any], which: IntArray) -> tuple[list[Any], IntArray]:
    """Of many whole numbers those that occur, each once, and which each point has."""
    if len(values) < 64 or set(map(type, values)) != {int}:
        return values, which
    try:
        numbers, found = np.unique(np.array(values, np.int64)[which], return_inverse=True)
    except OverflowError:
        return values, which
    return numbers.tolist(), found


def _checked(part: str, name: str, values: Sequence[Any]) -> tuple[IntArray, list[tuple[int, str]]]:
    """The values as whole numbers, and what is wrong with the others by their index."""
    whole, problems = np.zeros(len(values), np.int64), []
    for index, value in enumerate(values):
        checks = Checks(part)
        checks.whole(**{name: value})
        problems += [(index, problem) for problem in checks.problems]
        whole[index] = NONE if value is None or checks.problems else value
    return whole, problems


def _fitting(values: Sequence[Any]) -> pa.Array:
    return pa.array([value if isinstance(value, int) and abs(value) < 2**63 else None for value in values], pa.int64())


def _built(config: Config) -> tuple[Point | None, tuple[str, ...]]:
    try:
        return configs.build(config), ()
    except Invalid as error:
        return None, tuple(error.problems)
