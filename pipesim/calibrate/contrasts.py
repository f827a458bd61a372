"""How far two layouts' errors lie apart, by how different the layouts are: what decides whether a ranking holds.

An error that layouts share (a network slower than stated, another version of a framework) moves all of them alike and
leaves their order. What is left of a pair is the difference of its two log(measured / predicted). Over the pairs of
comparable runs of the calibration table it grows with the root of the distance h between two layouts and has long
tails: it is ``spread`` sqrt(h) times a variable of Student's t with ``DEGREES`` degrees of freedom. h counts doublings
of the sizes and changed words. So errors wander over layouts like a variable with a linear variogram.

``spread`` is the median of |difference| / sqrt(h) over t's own, all sources alike, in each all questions alike.

Sources: Matheron, "Principles of geostatistics", Economic Geology 58, 1963 (variogram); Lange, Little and Taylor,
"Robust statistical modeling using the t distribution", JASA 84, 1989.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from pipesim.calibrate import classes, regret, residuals
from pipesim.calibrate.rows import Measurement
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point

SIZES = ("t", "p", "c", "e", "v", "micro_batch", "gpus", "global_batch", "seq_length")
"""Columns of a row whose doublings count; d follows from them."""
WORDS = ("schedule", "zero", "recompute", "sequence_parallel", "precision", "attention", "settings")
"""Columns of a row that count one where they differ."""

DEGREES = 3
"""Of freedom; the likelihood of the calibration pairs is largest at 2.9."""
MEDIAN = 0.765
"""Of the absolute value of Student's t with three degrees of freedom, from tables."""

CONTRASTS = "contrasts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasts:
    """``spread`` is a logarithm for each root of a doubling; the counts are of what it was measured on."""

    spread: float
    pairs: int
    questions: int
    sources: int


class Question(NamedTuple):
    """Comparable runs: the columns of each, and the logarithms of its step time in seconds."""

    source: str
    rows: list[dict[str, Any]]
    predicted: FloatArray
    measured: FloatArray


class Pair(NamedTuple):
    """Two runs of one question: how different they are, and the logarithms of how many times the second is slower."""

    source: str
    question: int
    h: float
    predicted: float
    measured: float


def distances(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> FloatArray:
    """h between layouts given by the columns ``SIZES`` and ``WORDS``, shape (ones, others)."""
    found = np.zeros((len(ones), len(others)))
    for name in SIZES:
        a, b = (np.log2([float(row[name] or 1) for row in rows]) for rows in (ones, others))
        found += np.abs(np.subtract.outer(a, b))
    for name in WORDS:
        known: dict[Any, int] = {}
        codes = [np.array([known.setdefault(row[name], len(known)) for row in rows]) for rows in (ones, others)]
        found += np.not_equal.outer(*codes)
    return found


def columns(point: Point) -> dict[str, Any]:
    """``SIZES`` and ``WORDS`` of a resolved point, as its row has them."""
    layout, training = point.layout, point.training
    own = {name: getattr(layout, name) for name in ("t", "p", "c", "e", "v", "zero", "sequence_parallel")}
    names = ("micro_batch", "global_batch", "seq_length", "recompute", "precision", "attention")
    own |= {name: getattr(training, name) for name in names}
    again = "" if training.recompute_layers is None else f"{training.recompute_layers}"
    return {**own, "gpus": point.cluster.gpus, "schedule": point.schedule, "settings": again}


def questions(measurements: Sequence[Measurement]) -> list[Question]:
    """Timed runs, without experts and fp8, by what they answer."""
    usable = [each for each in measurements if each.is_timed and classes.kept(each)]
    points = [each.point for each in usable if each.point is not None]
    left = np.array([rest.log for rest in residuals.rests(usable, points, "step_time_s")])
    measured = np.log([each.step_time_s or math.nan for each in usable])
    return [
        Question(usable[of[0]].source, [columns(points[i]) for i in of], (measured - left)[of], measured[of])
        for of in regret.comparable(usable)
    ]


def pairs(asked: Sequence[Question]) -> list[Pair]:
    """All that differ in their layout."""
    found = []
    for number, (source, rows, predicted, measured) in enumerate(asked):
        h = distances(rows, rows)
        found += [
            Pair(source, number, float(h[i, j]), float(predicted[j] - predicted[i]), float(measured[j] - measured[i]))
            for i, j in zip(*np.nonzero(np.triu(h)), strict=True)
        ]
    return found


def weights(found: Sequence[Pair]) -> FloatArray:
    """Of each pair: sources alike, in each its questions alike, in each its pairs alike."""
    count = Counter((pair.source, pair.question) for pair in found)
    asked = Counter(source for source, _ in count)
    return np.array([1 / (asked[pair.source] * count[pair.source, pair.question]) for pair in found])


def measured(asked: Sequence[Question]) -> Contrasts:
    """Of the questions of the calibration table."""
    found = pairs(asked)
    return Contrasts(
        spread=round(spread_of(found), 4),
        pairs=len(found),
        questions=len({pair.question for pair in found}),
        sources=len({pair.source for pair in found}),
    )


def spread_of(found: Sequence[Pair]) -> float:
    size = np.array([abs(pair.measured - pair.predicted) / math.sqrt(pair.h) for pair in found])
    order = np.argsort(size)
    reached = np.cumsum(weights(found)[order])
    return float(size[order][np.searchsorted(reached, reached[-1] / 2)]) / MEDIAN


def surely(slower: Any, h: Any, spread: float) -> Any:
    """Probability that a layout is truly faster than another that is predicted ``slower`` (a logarithm): 0.5 at 0.

    The distribution function of Student's t with three degrees of freedom in closed form. Floats or arrays.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.nan_to_num(np.asarray(slower) / (spread * np.sqrt(h) * math.sqrt(DEGREES)), nan=0.0)
        return 0.5 + (np.arctan(x) + 1 / (x + 1 / x)) / math.pi


@cache
def packaged() -> Contrasts:
    """Measured on the calibration table with the constants of this version."""
    text = (resources.files(__package__) / "data" / CONTRASTS).read_text(encoding="utf-8")
    return Contrasts(**json.loads(text))


def dump(known: Contrasts) -> str:
    return json.dumps(asdict(known), indent=1) + "\n"
