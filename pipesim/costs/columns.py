"""Many points as columns: what one rank works on, and the shapes of several models as if they were one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipesim.specs import ModelSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Number = float | FloatArray


def column(values: Sequence[float | int | None]) -> FloatArray:
    """Shape (points, 1), so that it multiplies with (points, stages)."""
    return np.array(values, np.float64)[:, None]


def codes(column: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct values of whole numbers of at least 0, in rising order, and which each of them is."""
    top = int(column.max(initial=0)) + 1
    if top > 1_000_000:
        values, which = np.unique(column, return_inverse=True)
        return values, which
    occurs = np.zeros(top, np.bool_)
    occurs[column] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[column]


def distinct(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Rows of whole numbers of at least 0: where each combination of values occurs first, and which each row has."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, which = codes(column)
        whole = codes(whole * len(values) + which)[1]
    first = np.zeros(int(whole.max(initial=-1)) + 1, np.int64)
    first[whole[::-1]] = np.arange(len(whole))[::-1]
    return first, whole


def alike(rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Rows (n, k) equal to the last bit: where each of them occurs first, and which each row is."""
    found: dict[bytes, int] = {}
    width = rows.shape[1] * rows.itemsize
    written = np.ascontiguousarray(rows).tobytes()
    which = np.array([found.setdefault(written[at : at + width], len(found)) for at in range(0, len(written), width)])
    return np.unique(which, return_index=True)[1], which


def in_order(values: FloatArray) -> FloatArray:
    """The sum over the first axis, one after the other: numpy's own rounds one column alone in another way than many."""
    total: FloatArray = values[0].copy()
    for value in values[1:]:
        total += value
    return total


def stacked(models: Sequence[ModelSpec]) -> ModelSpec:
    """A model whose sizes are columns, one entry a point; what is no number must be the same for all (``kind``).

    Every formula that takes a model takes this too.
    """
    first = models[0]
    if all(model is first for model in models):
        return first
    return cast(ModelSpec, _stacked(models))


def kind(model: ModelSpec) -> tuple[object, ...]:
    """What is no number in a model: models of one kind can be stacked."""
    return (
        model.gated, model.bias, model.tied_embeddings, model.embedding_norm, model.final_norm, model.positions,
        model.norm, model.mla is not None, model.moe and (bool(model.moe.shared_experts), model.moe.router_bias),
    )  # fmt: skip


def taken(model: ModelSpec, members: IntArray) -> ModelSpec:
    """The same of some of the points."""
    return cast(ModelSpec, _taken(model, members))


def _taken(value: Any, members: IntArray) -> Any:
    if isinstance(value, _Columns):
        return _Columns({name: _taken(each, members) for name, each in vars(value).items()})
    return value[members] if isinstance(value, np.ndarray) else value


class _Columns:
    """Answers for the fields of a spec, without its checks."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def _stacked(specs: Sequence[Any]) -> Any:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(specs[0]):
        each = [getattr(spec, field.name) for spec in specs]
        if dataclasses.is_dataclass(each[0]):
            values[field.name] = _stacked(each)
        elif isinstance(each[0], bool) or not isinstance(each[0], int):
            values[field.name] = each[0]
        else:
            values[field.name] = each[0] if len(set(each)) == 1 else column(each)
    return _Columns(values)
