"""What a choice by prediction costs: of runs that differ in their layout alone, the predicted best against the best."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import classes, scores
from pipesim.calibrate.rows import Measurement
from pipesim.costs.columns import FloatArray

SAME = (
    "source_group",
    "layers",
    "hidden",
    "heads",
    "ffn",
    "vocab",
    "gpu",
    "n_gpus",
    "global_batch",
    "seq_len",
    "precision",
)
"""Columns in which comparable runs agree; the rest, from t to the schedule, is the layout that is chosen."""

_GIVEN = (
    r"kernel = [^;]*",
    *classes.RELEASES,
    r"(?:vanilla|async) TP",
    r"iteration-?\s?\d",
)
"""Words of notes that name a kernel, a version or a date of the software, which no layout changes."""

TIE = 1e-9
"""Predictions that differ by less, as a fraction, are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Over groups of comparable runs, as fractions of the best measured step. Without groups: not a number."""

    groups: int
    rows: int
    mean: float
    median: float
    largest: float
    rank_correlation: float
    """Spearman's, mean of the groups in which prediction and measurement both know an order."""


def comparable(measurements: Sequence[Measurement]) -> list[list[int]]:
    """Indices of at least two runs each that answer the same question with different layouts, in order of appearance."""
    found: dict[tuple[str, ...], list[int]] = {}
    for index, each in enumerate(measurements):
        found.setdefault(question(each), []).append(index)
    return [members for members in found.values() if len(members) > 1]


def question(measurement: Measurement) -> tuple[str, ...]:
    """What a run has in common with those it is compared to."""
    cells = measurement.cells
    given = (found[0] if (found := re.search(pattern, cells["notes"])) else "" for pattern in _GIVEN)
    return (measurement.stack, *(cells[name] for name in SAME), *given)


def regret(groups: Sequence[Sequence[int]], predicted: FloatArray, measured: FloatArray) -> Regret:
    """Choosing the predicted best of each group. Where several are predicted equally fast, the mean over them."""
    if not groups:
        return Regret(groups=0, rows=0, mean=np.nan, median=np.nan, largest=np.nan, rank_correlation=np.nan)
    each = [_one(predicted[list(members)], measured[list(members)]) for members in groups]
    orders = [scores.rank_correlation(predicted[list(members)], measured[list(members)]) for members in groups]
    known = [order for order in orders if not np.isnan(order)]
    return Regret(
        groups=len(groups),
        rows=sum(map(len, groups)),
        mean=float(np.mean(each)),
        median=float(np.median(each)),
        largest=float(np.max(each)),
        rank_correlation=float(np.mean(known)) if known else np.nan,
    )


def _one(predicted: FloatArray, measured: FloatArray) -> float:
    chosen = predicted <= predicted.min() * (1 + TIE)
    return float(measured[chosen].mean() / measured.min() - 1)
