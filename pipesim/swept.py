"""What tells the points of a sweep apart where no column of a row does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from pipesim.plan.asked.space import Space
from pipesim.point_id import ASKED, leaves

_IN_COLUMNS = {
    *(f"parallel.{key}" for key in ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")),
    *(
        f"training.{key}"
        for key in ("recompute", "precision", "attention", "micro_batch", "global_batch", "seq_length")
    ),
}
_NAMES = ("model.name", "cluster.name", "stack.name", "costs.kind", "schedule.name")


def with_told(spaces: Sequence[Space]) -> list[Space]:
    """The spaces with the keys that tell their points from others of the same names, where no column of a row does."""
    values: dict[tuple[Any, ...], dict[str, set[str]]] = {}
    for space in spaces:
        seen = values.setdefault(_names(space), {})
        for key, value in _values(space):
            seen.setdefault(key, set()).add(repr(value))
    return [
        dataclasses.replace(
            space,
            told=tuple(key for key, each in values[_names(space)].items() if len(each) > 1 and key not in _IN_COLUMNS),
        )
        for space in spaces
    ]


def _names(space: Space) -> tuple[Any, ...]:
    told = dict(leaves({key: space.base[key] for key in ASKED}))
    return tuple(told[name] for name in _NAMES)


def _values(space: Space) -> Iterator[tuple[str, Any]]:
    """Every key with each value that it takes."""
    for key, value in leaves({key: space.base[key] for key in ASKED}):
        axis = next((axis for axis in space.axes if key in axis.keys), None)
        if axis is None:
            yield key, value
        else:
            yield from ((key, values[axis.keys.index(key)]) for values in axis.values)
