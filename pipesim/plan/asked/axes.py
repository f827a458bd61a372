"""The axes of a declared grid as they stand in its config: lists, ranges, powers of two, divisors, several keys together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pipesim.checks import MAX_INT, Invalid, divisors

MOST_VALUES = 1_000_000
"""On one axis; more are refused, for each value is checked and held."""

RULES = "range, log2 or divisors_of"


class Asked(NamedTuple):
    """An axis whose values may have to wait for a config: ``divisors_of`` is the key whose divisors they are."""

    keys: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...] = ()
    divisors_of: str | None = None

    def of(self, number: Any) -> Asked:
        """The same with the divisors of ``number``, the value of the key that it waits for."""
        where = f"{named(self.keys)}: divisors_of: {self.divisors_of}"
        return Asked(self.keys, tuple((n,) for n in divisors(_whole(where, number))))


def read(axes: Mapping[str, Any]) -> list[Asked]:
    """Axes by key, or by several keys with commas between them, which change together; rules and all are spelt out.

    Raises ``Invalid`` with everything that is no axis.
    """
    found, problems = [], []
    for key, values in axes.items():
        try:
            found.append(_read(tuple(each.strip() for each in key.split(",")), values))
        except Invalid as error:
            problems += error.problems
    keys = [key for axis in found for key in axis.keys]
    problems += [f"grid.axes: {key} has more than one axis." for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if problems:
        raise Invalid(problems)
    return found


def named(keys: Iterable[str]) -> str:
    return f"grid.axes: {', '.join(keys)}"


def _read(keys: tuple[str, ...], values: Any) -> Asked:
    where = named(keys)
    _refuse_mappings(where, keys, values)
    if len(keys) > 1:
        return Asked(keys, _zipped(where, len(keys), values))
    if isinstance(values, Mapping):
        return _rule(where, keys, values)
    if not isinstance(values, list):
        raise Invalid([f"{where}: {values!r} must be a list of values, or one of {RULES}. Nearest: [{values}]."])
    return Asked(keys, _checked(where, [(value,) for value in values]))


def _zipped(where: str, width: int, values: Any) -> tuple[tuple[Any, ...], ...]:
    if not isinstance(values, list):
        raise Invalid(
            [f"{where}: {values!r} must be a list of values for {width} keys, such as [[1, 512], [2, 1024]]."]
        )
    if wrong := [each for each in values if not isinstance(each, list) or len(each) != width]:
        raise Invalid([f"{where}: {wrong[0]!r} must be a list of {width} values, one for each key."])
    return _checked(where, [tuple(each) for each in values])


def _refuse_mappings(where: str, keys: tuple[str, ...], values: Any) -> None:
    for value in values if isinstance(values, list) else ():
        for key, each in zip(keys, value if len(keys) > 1 and isinstance(value, list) else [value], strict=False):
            if isinstance(each, Mapping):
                inner, given = ", ".join(f"{key}.{name}" for name in each), ", ".join(map(str, each.values()))
                nearest = (
                    f" Nearest: {inner}: [{given if len(each) == 1 else f'[{given}]'}, …]." if "." not in key else ""
                )
                said = f"{where}: {dict(each)} is a mapping; the values of an axis are names, numbers and lists."
                raise Invalid([said + nearest])


def _rule(where: str, keys: tuple[str, ...], rule: Mapping[str, Any]) -> Asked:
    if len(rule) != 1 or not set(rule) <= {"range", "log2", "divisors_of"}:
        near = [each for key in rule for each in difflib.get_close_matches(key, ["range", "log2", "divisors_of"], 1)]
        nearest = f" Nearest: {near[0]}." if near else ""
        raise Invalid([f"{where}: {dict(rule)} must be one of {RULES}.{nearest}"])
    ((kind, bounds),) = rule.items()
    where = f"{where}: {kind}: {bounds}"
    if kind == "divisors_of" and isinstance(bounds, str):
        return Asked(keys, divisors_of=bounds)
    if kind == "divisors_of":
        return Asked(keys, _numbers(divisors(_whole(where, bounds))))
    most = 3 if kind == "range" else 2
    if not isinstance(bounds, list) or not 2 <= len(bounds) <= most:
        raise Invalid([f"{where} must be [first, last{', step' if kind == 'range' else ''}], both included."])
    numbers = [_whole(where, bound) for bound in bounds]
    if numbers[0] > numbers[1]:
        raise Invalid([f"{where} is empty: first is above last. Nearest: [{numbers[1]}, {numbers[0]}]."])
    if kind == "log2":
        return Asked(keys, _numbers(_powers_of_two(where, *numbers)))
    return Asked(keys, _checked(where, range(numbers[0], numbers[1] + 1, *numbers[2:])))


def _powers_of_two(where: str, first: int, last: int) -> Iterable[int]:
    for bound in (first, last):
        if bound & (bound - 1):
            raise Invalid(
                [
                    f"{where}: {bound} is no power of two. Nearest: {1 << bound.bit_length() - 1} or {1 << bound.bit_length()}."
                ]
            )
    return (1 << k for k in range(first.bit_length() - 1, last.bit_length()))


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_INT:
        raise Invalid([f"{where}: {value!r} must be a whole number between 1 and {MAX_INT:.0e}."])
    return value


def _checked(where: str, values: range | list[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    if not values:
        raise Invalid([f"{where} has no values."])
    if len(values) > MOST_VALUES:
        raise Invalid([f"{where} has {len(values):,} values; an axis takes at most {MOST_VALUES:,}."])
    return _numbers(values) if isinstance(values, range) else tuple(values)


def _numbers(values: Iterable[int]) -> tuple[tuple[int], ...]:
    return tuple((value,) for value in values)
