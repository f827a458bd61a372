"""Points that several tests of estimates share: composed as the command line does, with some values changed."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipesim import compose, config
from pipesim.legality import NONE
from pipesim.plan import grid
from pipesim.plan.asked.groups import NUMBERS, Group
from pipesim.plan.asked.space import Space
from pipesim.specs import LinkSpec, Point


@functools.cache
def _plain(*overrides: str) -> dict[str, Any]:
    with compose.composer() as (make, _):
        return config.plain(make(list(overrides)))


def plain(*overrides: str) -> dict[str, Any]:
    """What the command line would compose; Hydra takes a quarter of a second, so each is kept, and given as a copy."""
    return copy.deepcopy(_plain(*overrides))


@functools.cache
def composed(*overrides: str) -> Point:
    return config.build(plain(*overrides))


def configs(spaces: Sequence[Space]) -> list[dict[str, Any]]:
    """The plain config of every combination."""
    return [dict(space.config(index)) for space in spaces for index in range(len(space))]


def point(*overrides: str, **changes: Any) -> Point:
    """A composed point with some values of its layout, training, cluster, stack and costs changed."""
    base = composed(*overrides)
    parts: dict[str, Any] = {}
    for name in ("layout", "training", "cluster", "stack", "costs"):
        part = getattr(base, name)
        mine = {key: value for key, value in changes.items() if key in type(part).__slots__}
        parts[name] = dataclasses.replace(part, **mine) if mine else part
    schedule = changes.get("schedule", base.schedule)
    known = {key for part in parts.values() for key in type(part).__slots__} | {"schedule"}
    assert not set(changes) - known
    return dataclasses.replace(base, schedule=schedule, **parts)


def rows(*points: Point) -> list[dict[str, Any]]:
    """A row with details for each point, in their order; those that differ in numbers alone are priced together."""
    alike: list[tuple[Point, list[int]]] = []
    for i, each in enumerate(points):
        words = _without_numbers(each)
        same = next((places for other, places in alike if other == words), None)
        if same is None:
            alike.append((words, [i]))
        else:
            same.append(i)
    found: dict[int, dict[str, Any]] = {}
    for _, places in alike:
        table = grid.table(_group([points[i] for i in places]), details=True)
        found |= dict(zip(places, table.to_pylist(), strict=True))
    return [found[i] for i in range(len(points))]


def _without_numbers(at: Point) -> Point:
    numbers: dict[str, dict[str, int]] = {"parallel": {}, "training": {}}
    for key in NUMBERS:
        part, name = key.split(".")
        numbers[part][name] = 1
    return dataclasses.replace(
        at,
        layout=dataclasses.replace(at.layout, **numbers["parallel"]),
        training=dataclasses.replace(at.training, **numbers["training"]),
    )


def _group(points: Sequence[Point]) -> Group:
    """Points that differ in numbers alone, as asked for under the names of the default config."""
    numbers = {}
    for key in NUMBERS:
        part, name = key.split(".")
        given = [getattr(each.layout if part == "parallel" else each.training, name) for each in points]
        numbers[name] = np.array([value or NONE for value in given])
    shown = {name: pa.array(values) for name, values in numbers.items()}
    return Group(
        at=np.arange(len(points)), config=default(), like=points[0], problems=(), numbers=numbers, shown=shown, wrong=[],
        point_hashes=np.zeros(len(points), np.uint64),
    )  # fmt: skip


def default() -> dict[str, Any]:
    return plain()


def row(*overrides: str, **changes: Any) -> dict[str, Any]:
    (only,) = rows(point(*overrides, **changes))
    assert only["status"] in ("ok", "infeasible"), only["reason"]
    return only


SMALL = "model=llama2_7b", "cluster=dgx_a100", "training=megatron", "stack=megatron_lm"
DEEPSEEK = (
    "model=deepseek_v3", "cluster=hgx_h200", "training=megatron", "stack=megatron_lm", "parallel.t=1",
    "parallel.p=16", "parallel.e=16", "training.recompute=full",
)  # fmt: skip
MIXTRAL = (
    "model=mixtral_8x7b", "cluster=dgx_h100", "training=megatron", "stack=megatron_lm", "training.seq_length=4096",
    "parallel.t=4", "parallel.p=4", "parallel.e=8",
)  # fmt: skip
TOY = "model=toy", "cluster=dgx_h100", "parallel=one_gpu", "training.global_batch=32"
EVERY = {"bloom": (), "llama": SMALL, "deepseek": DEEPSEEK, "mixtral": MIXTRAL, "toy": TOY}


def with_cluster(at: Point, **changes: Any) -> Point:
    return dataclasses.replace(at, cluster=dataclasses.replace(at.cluster, **changes))


def wider(link: LinkSpec, by: float) -> LinkSpec:
    return dataclasses.replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * by)
