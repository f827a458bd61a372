"""What validation leaves unexplained, measured on the calibration rows: the terms of ``intervals``.

``scatter``  the 90 % split-conformal quantile of |log(measured / predicted)|, every source weighted alike; where a
             stack's own runs scatter more, theirs
``study``    the shift of a study as a whole. Calibration takes a source's own shift away, so it is measured on what other
             studies change, one model on one chip: 1.645 root mean squares of their medians, sources alike, and for
             step times with ``VERSIONS``, for every source was calibrated in its own versions
``stack``    the same rows predicted as every other stack: the 90 % quantile, in excess of the above
``chip``     the same rows predicted with the matrix efficiency of the stack's other chips: likewise
``moe``, ``fp8``  the quantile of such rows, likewise
``size``     no rows can tell

A term is at least the scatter again, so that every reason widens; where rows are too few or none it is the scatter
doubled (with the scatter itself: 1 + 3 = 2 squared).

Sources: Lei et al., "Distribution-Free Predictive Inference for Regression", JASA 2018 (split conformal); Dunn,
Wasserman and Ramdas, "Distribution-Free Prediction Sets for Two-Layer Hierarchical Models", JASA 2023 (groups alike).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from pipesim.calibrate import classes
from pipesim.calibrate.intervals import COVERAGE, Residuals
from pipesim.calibrate.rows import Measurement
from pipesim.calibrate.validate import predict_rows
from pipesim.costs import parameters
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point, StackSpec

FEWEST = 20
"""Rows that a quantile needs."""
MOST_PER_SOURCE = 200
"""Rows of each source that are predicted as other stacks, evenly spaced."""

VERSIONS = 0.03
"""How far step times of one configuration lie apart across software versions, as a standard deviation: repeats in the
packaged tables differ by 3 % and more, within a study by 0.5 % at most."""

STATED = ("gradient_bytes", "reduce_bytes", "logits_gathered", "fp8_copies", "synchronous")
"""What a stack is known to do, which no calibration finds."""

_NORMAL_90 = 1.645
"""The 90 % quantile of the absolute value of a standard normal variable."""


class Rest(NamedTuple):
    """log(measured / predicted) of one row."""

    source: str
    log: float


def measured(measurements: Sequence[Measurement], stacks: Mapping[str, StackSpec]) -> Residuals:
    """The terms for step time and memory from rows of the calibration table; ``stacks`` by name."""
    usable = [each for each in measurements if each.point is not None and each.outcome == "ok" and _regular(each)]
    points = [each.point for each in usable if each.point is not None and _plain(each)]
    step_time, step_time_own = _terms([each for each in usable if each.step_time_s is not None], stacks, "step_time_s")
    memory, memory_own = _terms([each for each in usable if each.memory_bytes is not None], stacks, "memory_bytes")
    return Residuals(
        step_time=step_time,
        memory=memory,
        step_time_own=step_time_own,
        memory_own=memory_own,
        stacks=tuple(sorted({point.stack.name for point in points})),
        chips=tuple(sorted({(point.stack.name, point.cluster.chip) for point in points})),
        parameters=float(max(parameters.total_parameters(point.model) for point in points)),
        gpus=max(point.cluster.gpus for point in points),
    )


def _regular(measurement: Measurement) -> bool:
    return classes.kept(measurement) and not classes.is_special(measurement) and measurement.grade[:1] in ("A", "B")


def _plain(measurement: Measurement) -> bool:
    return not classes.is_moe(measurement) and not classes.is_narrow(measurement)


def _terms(
    usable: Sequence[Measurement], stacks: Mapping[str, StackSpec], quantity: str
) -> tuple[dict[str, float], dict[str, float]]:
    """By reason; and the scatter of the stacks whose own is larger."""
    plain = [each for each in usable if _plain(each)]
    left = rests(plain, _points(plain), quantity)
    thin = _thinned(plain)
    names = sorted({point.stack.name for point in _points(thin)})
    others = {name: _as_another(thin, stacks[name], quantity) for name in names}
    scatter = quantile(left)
    study = _NORMAL_90 * math.hypot(_shift(plain, left), VERSIONS if quantity == "step_time_s" else 0.0)
    excess = {
        "stack": quantile([rest for each in others.values() for rest in each]),
        "chip": quantile(_other_chips(thin, quantity)),
        "moe": _few([each for each in usable if classes.is_moe(each)], quantity),
        "fp8": _few([each for each in usable if classes.is_narrow(each) and not classes.is_moe(each)], quantity),
    }
    unknown, known = math.sqrt(3) * scatter, scatter**2 + study**2
    more = {name: unknown if math.isnan(q) else math.sqrt(max(scatter**2, q**2 - known)) for name, q in excess.items()}
    own = {name: quantile(_of_stack(name, plain, left)) for name in names}
    restless = {name: value for name, value in own.items() if value > scatter}
    return {"scatter": scatter, "study": study, **more, "size": unknown}, restless


def _of_stack(name: str, measurements: Sequence[Measurement], rests: Sequence[Rest]) -> list[Rest]:
    return [rest for point, rest in zip(_points(measurements), rests, strict=True) if point.stack.name == name]


def rests(measurements: Sequence[Measurement], points: Sequence[Point], quantity: str) -> list[Rest]:
    """What is left unexplained of each row if it is predicted as the point beside it."""
    predicted: FloatArray = getattr(predict_rows(measurements, points), quantity)
    return [
        Rest(each.source, math.log(getattr(each, quantity) / value))
        for each, value in zip(measurements, predicted, strict=True)
    ]


def quantile(rests: Sequence[Rest], level: float = COVERAGE) -> float:
    """Of absolute values, with every source weighted alike; conformal, so one more row counts as infinite.

    Not a number for fewer rows than ``FEWEST``.
    """
    if len(rests) < FEWEST:
        return math.nan
    counts = Counter(rest.source for rest in rests)
    ordered = sorted((abs(rest.log), 1.0 / counts[rest.source]) for rest in rests)
    reached = np.cumsum([weight for _, weight in ordered])
    wanted = level * (1 + 1 / len(rests)) * reached[-1]
    return ordered[min(int(np.searchsorted(reached, wanted)), len(ordered) - 1)][0]


def _as_another(measurements: Sequence[Measurement], other: StackSpec, quantity: str) -> list[Rest]:
    """The rows of all stacks but ``other``, with its constants; what their recipes state stays."""
    rows = [each for each in measurements if each.point is not None and each.point.stack.name != other.name]
    points = [
        replace(point, stack=replace(other, **{name: getattr(point.stack, name) for name in STATED}))
        for point in _points(rows)
    ]
    return rests(rows, points, quantity) if rows else []


def _shift(measurements: Sequence[Measurement], rests: Sequence[Rest]) -> float:
    """Root mean square, over sources and in each over its models on its chips, of their medians."""
    parts: dict[str, dict[tuple[str, str], list[float]]] = {}
    for each, point, rest in zip(measurements, _points(measurements), rests, strict=True):
        parts.setdefault(each.source, {}).setdefault((each.cells["model"], point.cluster.chip), []).append(rest.log)
    return math.sqrt(fmean(fmean(median(logs) ** 2 for logs in models.values()) for models in parts.values()))


def _other_chips(measurements: Sequence[Measurement], quantity: str) -> list[Rest]:
    """The rows with the matrix efficiency that their stack has on each of its other chips."""
    found = []
    for chip in sorted({chip for point in _points(measurements) for chip in point.stack.gemm_efficiency} - {"default"}):
        asked = [
            (
                each,
                replace(
                    point, stack=replace(point.stack, gemm_efficiency={"default": point.stack.gemm_efficiency[chip]})
                ),
            )
            for each, point in zip(measurements, _points(measurements), strict=True)
            if chip in point.stack.gemm_efficiency and chip != point.cluster.chip
        ]
        found += rests([each for each, _ in asked], [point for _, point in asked], quantity) if asked else []
    return found


def _few(measurements: Sequence[Measurement], quantity: str) -> float:
    return quantile(rests(measurements, _points(measurements), quantity)) if measurements else math.nan


def _points(measurements: Sequence[Measurement]) -> list[Point]:
    return [each.point for each in measurements if each.point is not None]


def _thinned(measurements: Sequence[Measurement]) -> list[Measurement]:
    """At most ``MOST_PER_SOURCE`` rows of each source, evenly spaced."""
    by_source: dict[str, list[Measurement]] = {}
    for each in measurements:
        by_source.setdefault(each.source, []).append(each)
    return [each for rows in by_source.values() for each in rows[:: -(-len(rows) // MOST_PER_SOURCE)]]
