"""Checking what was asked: every broken rule of one spec at once, with its config key, its value and the nearest."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

MAX_INT = 10**12
"""Larger whole numbers are refused: products of several must stay exact in 64 bits."""


class Invalid(ValueError):
    """What was asked breaks rules. ``problems`` holds one sentence for each, with its config key and value."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Checks:
    """Collects every broken rule of one spec, so that a user sees them all at once."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.problems: list[str] = []

    def whole(self, low: int = 1, **values: int | None) -> None:
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                self.problems.append(f"{self.group}.{name}={value!r} must be a whole number.")
            elif not low <= value <= MAX_INT:
                nearest = min(max(value, low), MAX_INT)
                self.problems.append(
                    f"{self.group}.{name}={value} must lie between {low} and {MAX_INT:.0e}. Nearest: {nearest}."
                )

    def positive(self, **values: float) -> None:
        self._finite(values, "above 0", lambda value: value > 0)

    def at_most(self, most: float, **values: float) -> None:
        """Of what is a number above it: larger ones would leave what floats can tell apart."""
        for name, value in values.items():
            if most < value < math.inf:
                self.problems.append(f"{self.group}.{name}={value} must be at most {most:g}. Nearest: {most:g}.")

    def not_negative(self, **values: float) -> None:
        self._finite(values, "of at least 0", lambda value: value >= 0)

    def _finite(self, values: Mapping[str, float], low: str, holds: Callable[[float], bool]) -> None:
        for name, value in values.items():
            if not (math.isfinite(value) and holds(value)):
                self.problems.append(f"{self.group}.{name}={value} must be a finite number {low}.")

    def fraction(self, **values: float) -> None:
        for name, value in values.items():
            if not 0 <= value <= 1:
                self.problems.append(f"{self.group}.{name}={value} must lie between 0 and 1.")

    def choice(self, options: object, **values: str) -> None:
        for name, value in values.items():
            if value not in get_args(options):
                self.problems.append(
                    f"{self.group}.{name}={value!r} must be one of {', '.join(get_args(options))}."
                    + suggest(str(value), get_args(options))
                )

    def rule(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def done(self) -> None:
        if self.problems:
            raise Invalid(self.problems)


def suggest(wanted: str, options: Iterable[str]) -> str:
    """`` Nearest: …`` with the options most like what was typed, or nothing.

    >>> suggest("ful", ["none", "full"])
    ' Nearest: full.'
    """
    near = alike(wanted, options)
    return f" Nearest: {' or '.join(near)}." if near else ""


def alike(wanted: str, options: Iterable[str]) -> list[str]:
    """At most three of the options, those most like what was typed first. What was typed may be a part of a name.

    >>> alike("seq", ["e", "seq_length"]), alike("batch", ["m", "micro_batch", "global_batch"])
    (['seq_length'], ['micro_batch', 'global_batch'])
    """
    names = list(options)
    parts = [name for name in names if wanted in name] if len(wanted) >= PART else []
    parts.sort(key=lambda name: (not name.startswith(wanted), len(name)))
    return parts[:3] or difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)


PART = 3
"""Letters of a name that say which is meant."""


MOST_LISTED = 16
"""Entries of a list that a message tells in full."""


def listed(values: Sequence[object]) -> str:
    """A list as a message tells it: the first three, how many more and the last where it is long.

    >>> listed([2] * 47 + [1])
    '[2, 2, 2, … 44 more …, 1]'
    """
    if len(values) <= MOST_LISTED:
        return str(list(values))
    return f"[{', '.join(map(str, values[:3]))}, … {len(values) - 4} more …, {values[-1]}]"


def divisors(n: int) -> Iterator[int]:
    """The divisors of ``n`` in rising order.

    >>> list(divisors(12))
    [1, 2, 3, 4, 6, 12]
    """
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    yield from small
    yield from (n // k for k in reversed(small) if k * k != n)


def nearest_divisors(n: int, wanted: int) -> str:
    """The divisors of ``n`` around ``wanted``, as an error message names them.

    >>> nearest_divisors(96, 5)
    '4 or 6'
    >>> nearest_divisors(96, 200)
    '96'
    """
    below = [k for k in divisors(n) if k <= wanted]
    above = [k for k in divisors(n) if k > wanted]
    return " or ".join(str(k) for k in below[-1:] + above[:1])
