"""Layouts to explain, priced once for all tests of them."""

from __future__ import annotations

import functools
from typing import Any

from points import plain

from pipesim import config, legality
from pipesim.plan import explain, grid
from pipesim.plan.explain import Explained
from pipesim.specs import Point

IDEAL = "costs=lecture", "stack=ideal", "model=gpt3_175b", "parallel=one_gpu", "training.micro_batch=1"
"""Stages that are all alike where embedding, layers and head divide."""


@functools.cache
def asked(*overrides: str) -> tuple[dict[str, Any], Point, dict[str, Any]]:
    """A plain config, its resolved point and its row."""
    conf = plain(*overrides)
    (row,) = grid.rows([conf])
    assert row["step_time_s"] is not None, row["reason"]
    return conf, legality.resolve(config.build(conf)), row


@functools.cache
def found(*overrides: str) -> Explained:
    return explain.explained(*asked(*overrides))


def ideal(p: int, layers: int, *more: str) -> Point:
    return asked(
        *IDEAL, f"parallel.p={p}", f"cluster.gpus={p}", f"model.layers={layers}", "training.global_batch=64", *more
    )[1]
