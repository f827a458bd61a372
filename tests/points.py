"""Points that several tests of estimates share: composed as the command line does, with some values changed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipesim import compose, config
from pipesim.legality import NONE
from pipesim.plan import grid
from pipesim.plan.asked import NUMBERS, Group
from pipesim.plan.space import Space
from pipesim.specs import LinkSpec, Point


@functools.cache
def composed(*overrides: str) -> Point:
    with compose.composer() as (make, _):
        return config.build(config.plain(make(list(overrides))))


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
    return [row for each in points for row in grid.table(alone(each), details=True).to_pylist()]


def alone(at: Point) -> Group:
    """A point as asked for by itself, under the names of the default config."""
    numbers = {}
    for key in NUMBERS:
        part, name = key.split(".")
        numbers[name] = np.array([getattr(at.layout if part == "parallel" else at.training, name) or NONE])
    shown = {name: pa.array(values) for name, values in numbers.items()}
    return Group(
        at=np.zeros(1, np.int64), config=default(), like=at, problems=(), numbers=numbers, shown=shown, wrong=[],
        point_hashes=np.zeros(1, np.uint64),
    )  # fmt: skip


@functools.cache
def default() -> dict[str, Any]:
    with compose.composer() as (make, _):
        return config.plain(make([]))


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
