"""What a study asks, as data: configs with axes, never a list of points, so that millions of them cost nothing to say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipesim.schedules.action import IntArray

Config = Mapping[str, Any]

PART = 131_072
"""A study is evaluated in parts of so many combinations: large enough to be fast, small enough for little memory."""

PLAN_PART = 4 * PART
"""A plan is searched in larger parts: each begins by estimating layouts that bounds are then compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Config keys that change together, and their values: one key has an axis of its own, several are zipped."""

    keys: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    """One value for each key, each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every combination of the axes' values, set in ``base``; the last axis changes fastest.

    ``where`` are conditions (see ``plan.asked.where``) that a combination must meet to be asked at all.
    """

    base: Config
    """A plain config, see ``config.plain``."""
    axes: tuple[Axis, ...] = ()
    where: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """Keys whose values a row's settings tell, see ``swept.with_told``."""

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def digits(self, start: int, stop: int) -> list[IntArray]:
        """For each axis the indices of its values at the combinations ``start`` to ``stop``."""
        index, found = np.arange(start, stop), []
        for axis in reversed(self.axes):
            index, digit = np.divmod(index, len(axis.values))
            found.append(digit)
        return found[::-1]

    def config(self, index: int) -> Config:
        """The plain config of one combination."""
        changes = {
            key: value
            for axis, digit in zip(self.axes, self.digits(index, index + 1), strict=True)
            for key, value in zip(axis.keys, axis.values[digit[0]], strict=True)
        }
        return with_values(self.base, changes)


class Slice(NamedTuple):
    """Some of a space's combinations."""

    space: Space
    start: int
    stop: int


def total(spaces: Sequence[Space]) -> int:
    """Combinations of all spaces, those that ``where`` leaves out included."""
    return sum(len(space) for space in spaces)


def cut(spaces: Sequence[Space], start: int, stop: int) -> Iterator[Slice]:
    """The combinations ``start`` to ``stop`` of all spaces in a row."""
    for space in spaces:
        size = len(space)
        if start < size and stop > 0:
            yield Slice(space, max(start, 0), min(stop, size))
        start, stop = start - size, stop - size


def with_values(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with dotted keys set; what does not change is shared."""
    changed = dict(config)
    for key, value in changes.items():
        *groups, last = key.split(".")
        inner = changed
        for group in groups:
            inner[group] = dict(inner[group])
            inner = inner[group]
        inner[last] = value
    return changed
