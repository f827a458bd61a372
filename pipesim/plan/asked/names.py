"""What the words of a grid's conditions stand for: a space's own values, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim import schedules
from pipesim.checks import Invalid
from pipesim.plan.asked import where
from pipesim.plan.asked.space import Slice, Space
from pipesim.point_id import leaves
from pipesim.schedules.action import IntArray

SHORT = {
    **{key: f"parallel.{key}" for key in ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")},
    **{key: f"training.{key}" for key in ("micro_batch", "global_batch", "seq_length")},
    **{key: f"training.{key}" for key in ("recompute", "precision", "attention")},
    **{key: f"cluster.{key}" for key in ("gpus", "gpus_per_node", "memory_gb")},
    **{key: f"model.{key}" for key in ("layers", "hidden", "heads", "kv_heads")},
    **{key: f"{key}.name" for key in ("model", "cluster", "stack", "schedule")},
    "costs": "costs.kind",
}
"""Names that need no dots. ``gpus`` are the cluster's."""


def check(spaces: list[Space]) -> None:
    """Raises ``Invalid`` with every condition that cannot be read or names what is not there."""
    problems: dict[str, None] = {}
    for space in spaces:
        for condition in space.where:
            try:
                if len(space):
                    where.holds(condition, Names(Slice(space, 0, 1)))
                else:
                    where.tree(condition)
            except Invalid as error:
                problems |= dict.fromkeys(error.problems)
    if problems:
        raise Invalid(list(problems))


def mask(part: Slice) -> where.Mask:
    """Which combinations of the slice meet all conditions of its space. Raises ``Invalid`` as ``where.holds`` does."""
    kept = np.ones(part.stop - part.start, bool)
    if part.space.where:
        names = Names(part)
        for condition in part.space.where:
            kept &= where.holds(condition, names)
    return kept


class Names(Mapping[str, Any]):
    """Every config key of the slice, and the short names; a value, or one for each combination where it changes.

    What is null has the value that it stands for: d every GPU (a fraction where none is left whole), v the schedule's own,
    seq_length the model's context, kv_heads all heads.
    """

    def __init__(self, part: Slice) -> None:
        self.part = part
        axes = part.space.axes
        self.axes = {key: (axis, i, k) for i, axis in enumerate(axes) for k, key in enumerate(axis.keys)}

    @cached_property
    def digits(self) -> list[IntArray]:
        return self.part.space.digits(self.part.start, self.part.stop)

    @cached_property
    def keys_(self) -> dict[str, Any]:
        return dict(leaves(self.part.space.base)) | dict.fromkeys(self.axes)

    def __iter__(self) -> Iterator[str]:
        yield from SHORT
        yield from self.keys_

    def __len__(self) -> int:
        return len(SHORT) + len(self.keys_)

    def __getitem__(self, name: str) -> Any:
        key = SHORT.get(name, name)
        if key not in self.keys_:
            raise KeyError(name)
        if key not in self.axes:
            value = self.keys_[key]
            return self._meant(key) if value is None else _spelt(key, value)
        axis, i, k = self.axes[key]
        values = [each[k] for each in axis.values]
        if None not in values:
            return np.asarray([_spelt(key, value) for value in values])[self.digits[i]]
        given = np.asarray([value is not None for value in values])[self.digits[i]]
        known = np.asarray([value or 0 for value in values], np.float64)[self.digits[i]]
        return np.where(given, known, self._meant(key))

    def _meant(self, key: str) -> NDArray[Any]:
        """What null stands for."""
        if key == "parallel.d":
            with np.errstate(all="ignore"):  # a degree of 0 is asked too, and told as invalid
                cut = np.float64(1) * self["t"] * self["p"] * self["c"]
                return np.asarray(self["gpus"] / cut)
        if key == "parallel.v":
            names, which = np.unique(self["schedule"], return_inverse=True)
            return np.asarray([schedules.stages_per_rank(name) for name in names.tolist()])[which]
        if key in ("training.seq_length", "model.kv_heads"):
            return np.asarray(self["model.context" if key.startswith("training") else "heads"])
        raise Invalid([f"grid.where: {key} is null in some combination: no condition can use it."])


def _spelt(key: str, value: Any) -> Any:
    if isinstance(value, list):
        raise Invalid([f"grid.where: {key} is a list in some combination: no condition can use it."])
    return schedules.canonical_name(value) or value if key == "schedule.name" else value
