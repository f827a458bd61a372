"""Layers in order into contiguous parts, such that the worst part is as good as can be: dynamic programming, exact."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipesim.costs.columns import FloatArray

ROUNDING = 1e-12
"""Costs that are no further apart are equal: they are sums of the same seconds."""


def least_worst(cost: FloatArray, then: FloatArray | None = None) -> tuple[float, tuple[int, ...]]:
    """``cost`` (parts, layers + 1, layers + 1) of each part that holds the layers from one border to the next, infinite
    where it may not. The least that the dearest part can cost, and the borders where parts end, of all such cuts the
    one with the least sum of ``then`` (the same shape). No border if no cut is allowed.
    """
    worst, borders = _cheapest(cost, "worst")
    if then is not None and np.isfinite(worst):
        _, borders = _cheapest(np.where(cost <= worst * (1 + ROUNDING), then, np.inf), "sum")
    return worst, borders


def _cheapest(cost: FloatArray, of: Literal["worst", "sum"]) -> tuple[float, tuple[int, ...]]:
    """best[b] is what the parts so far cost if they end at border b; ties go to the earlier border."""
    joined = np.maximum if of == "worst" else np.add
    best = np.full(cost.shape[1], np.inf)
    best[0] = 0.0
    came_from = np.zeros(cost.shape[:2], np.int64)
    for part, own in enumerate(cost):
        ways = joined(best[:, None], own)
        came_from[part] = np.argmin(ways, axis=0)
        best = ways.min(axis=0)
    if not np.isfinite(best[-1]):
        return float("inf"), ()
    borders, at = [], cost.shape[1] - 1
    for part in range(len(cost) - 1, -1, -1):
        borders.append(at)
        at = int(came_from[part, at])
    return float(best[-1]), tuple(reversed(borders))
