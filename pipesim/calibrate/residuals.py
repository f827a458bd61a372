"""What validation leaves unexplained, measured on the calibration rows: the terms of ``intervals``.

``scatter``  the 90 % split-conformal quantile of |log(measured / predicted)|, every source weighted alike; where a
             stack's own runs scatter more, theirs
``study``    the shift of a study as a whole. Calibration takes a source's own shift away, so it is measured on what other
             studies change, one model on one chip: 1.645 root mean squares of their medians, sources alike, and for
             step times with ``VERSIONS``, for every source was calibrated in its own versions
``stack``    the same rows predicted as every other stack: the 90 % quantile, in excess of the above
``chip``     the same rows predicted with the matrix efficiency of the stack's other chips: likewise
``moe``, ``fp8``  the quantile of such rows, likewise
``size``, ``sequence``  no rows can tell
``after``    what is left of ``study`` once constants were fitted to 1, 3 or 10 runs of one's own: the shift's own share,
             with as many runs that scatter; and of ``stack`` and ``chip``: the quantile of a source's rows, predicted as
             above, once the median of so many of them, drawn at random, is taken away from the others. A fit of constants
             does a little worse than that with one run and better with ten

A term is at least the scatter again, so that every reason widens; where rows are too few or none it is the scatter
doubled (with the scatter itself: 1 + 3 = 2 squared).

Sources: Lei et al., "Distribution-Free Predictive Inference for Regression", JASA 2018 (split conformal); Dunn,
Wasserman and Ramdas, "Distribution-Free Prediction Sets for Two-Layer Hierarchical Models", JASA 2023 (groups alike).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from pipesim.calibrate import classes
from pipesim.calibrate.intervals import COVERAGE, OWN_RUNS, Residuals
from pipesim.calibrate.rows import Measurement
from pipesim.calibrate.validate import predict_rows
from pipesim.costs import parameters
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point, StackSpec

FEWEST = 20
"""Rows that a quantile needs."""
DRAWS = 5
"""Of runs of one's own, from each source."""
MOST_PER_SOURCE = 200
"""Rows of each source that are predicted as other stacks, evenly spaced."""

VERSIONS = 0.03
"""How far step times of one configuration lie apart across software versions, as a standard deviation: repeats in the
packaged tables differ by 3 % and more, within a study by 0.5 % at most."""

STATED = (
    "gradient_bytes", "accumulation_bytes", "reduce_bytes", "reduces_whole", "logits_gathered", "fp8_copies", "fp8_gathers",
    "fp8_dispatch", "relayed_dispatch", "fsdp", "synchronous",
)  # fmt: skip
"""What a stack is known to do, which no calibration finds."""

_NORMAL_90 = 1.645
"""The 90 % quantile of the absolute value of a standard normal variable."""


class Rest(NamedTuple):
    """log(measured / predicted) of one row."""

    source: str
    log: float


def measured(measurements: Sequence[Measurement], stacks: Mapping[str, StackSpec]) -> Residuals:
    """The terms for step time and memory from rows of the calibration table; ``stacks`` by name."""
    regular = [each for each in measurements if each.point is not None and each.outcome == "ok" and _regular(each)]
    usable = [each for each in regular if classes.kept(each)]
    held = [each for each in regular if each.memory_bytes is not None and not classes.contradicts_itself(each)]
    points = [each.point for each in usable if each.point is not None and _plain(each)]
    timed = [each for each in usable if each.step_time_s is not None]
    plainly_timed = [each for each in timed if _plain(each)]
    step_time, step_time_own = _terms(timed, timed, stacks, "step_time_s")
    memory, memory_own = _terms([each for each in held if classes.kept(each)], held, stacks, "memory_bytes")
    return Residuals(
        step_time=step_time,
        memory=memory,
        after=_after(_thinned(plainly_timed), stacks, step_time),
        step_time_own=step_time_own,
        memory_own=memory_own,
        stacks=tuple(sorted({point.stack.name for point in points})),
        chips=tuple(sorted({(point.stack.name, point.cluster.chip) for point in points})),
        parameters=float(max(parameters.total_parameters(point.model) for point in points)),
        gpus=max(point.cluster.gpus for point in points),
        seq_length=max(point.training.seq_length or point.model.context for point in _points(plainly_timed)),
        c=max(point.layout.c for point in _points(plainly_timed)),
    )


def _regular(measurement: Measurement) -> bool:
    return not classes.is_special(measurement) and measurement.grade[:1] in ("A", "B")


def _plain(measurement: Measurement) -> bool:
    return not classes.is_moe(measurement) and not classes.is_narrow(measurement)


def _terms(
    usable: Sequence[Measurement], whole: Sequence[Measurement], stacks: Mapping[str, StackSpec], quantity: str
) -> tuple[dict[str, float], dict[str, float]]:
    """By reason, of ``usable`` rows; and the scatter of the stacks whose own is larger, of ``whole``: a stack's memory scatters
    in rows with stalls too, but they tell nothing of other stacks.
    """
    plain = [each for each in usable if _plain(each)]
    left = rests(plain, _points(plain), quantity)
    thin = _thinned(plain)
    scatter = quantile(left)
    study = _NORMAL_90 * math.hypot(_shift(plain, left), VERSIONS if quantity == "step_time_s" else 0.0)
    excess = {
        "stack": quantile([rest for each in _as_others(thin, stacks, quantity) for rest in each]),
        "chip": quantile([rest for each in _other_chips(thin, quantity) for rest in each]),
        "moe": _few([each for each in usable if classes.is_moe(each)], quantity),
        "fp8": _few([each for each in usable if classes.is_narrow(each) and not classes.is_moe(each)], quantity),
    }
    unknown, known = math.sqrt(3) * scatter, scatter**2 + study**2
    more = {name: unknown if math.isnan(q) else math.sqrt(max(scatter**2, q**2 - known)) for name, q in excess.items()}
    all_plain = [each for each in whole if _plain(each)]
    all_left = left if whole is usable else rests(all_plain, _points(all_plain), quantity)
    own = {name: quantile(_of_stack(name, all_plain, all_left)) for name in _stacks(plain)}
    restless = {name: value for name, value in own.items() if value > scatter}
    return {"scatter": scatter, "study": study, **more, "size": unknown, "sequence": unknown}, restless


def _after(
    measurements: Sequence[Measurement], stacks: Mapping[str, StackSpec], terms: Mapping[str, float]
) -> dict[str, float]:
    """What 1, 3 or 10 runs of one's own leave beside the scatter, never more than fewer runs do."""
    scatter, study = terms["scatter"], terms["study"]
    found = {f"study_{runs}": study / math.sqrt(1 + runs * (study / scatter) ** 2) for runs in OWN_RUNS}
    outside = {
        "stack": list(_as_others(measurements, stacks, "step_time_s")),
        "chip": list(_other_chips(measurements, "step_time_s")),
    }
    for reason, parts in outside.items():
        most = math.hypot(study, terms[reason])
        for runs in OWN_RUNS:
            width = quantile([rest for each in parts for rest in without_own(each, runs)])
            left = math.sqrt(max(width**2 - scatter**2, 0.0))
            found[f"{reason}_{runs}"] = most = min(most, max(found[f"study_{runs}"], left))
    return found


def without_own(rests: Sequence[Rest], runs: int) -> list[Rest]:
    """What is left of every source's other rows when the median of some of its rows, drawn at random, is taken away;
    ``DRAWS`` times. Nothing of a source without other rows.
    """
    by_source: dict[str, list[float]] = {}
    for rest in rests:
        by_source.setdefault(rest.source, []).append(rest.log)
    chance = np.random.default_rng(0)
    return [
        Rest(source, float(log))
        for source, logs in by_source.items()
        if len(logs) > runs
        for _ in range(DRAWS)
        for drawn in [chance.permutation(logs)]
        for log in drawn[runs:] - np.median(drawn[:runs])
    ]


def _stacks(measurements: Sequence[Measurement]) -> list[str]:
    return sorted({point.stack.name for point in _points(measurements)})


def _as_others(
    measurements: Sequence[Measurement], stacks: Mapping[str, StackSpec], quantity: str
) -> Iterator[list[Rest]]:
    return (
        _as_another(rows, stacks[name], quantity) for name in _stacks(measurements) for rows in _by_chip(measurements)
    )


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


def _other_chips(measurements: Sequence[Measurement], quantity: str) -> Iterator[list[Rest]]:
    """The rows of every chip with the matrix efficiency that their stack has on each of its other chips."""
    known = {chip for point in _points(measurements) for chip in point.stack.gemm_efficiency} - {"default"}
    for rows in _by_chip(measurements):
        for chip in sorted(known - {_points(rows)[0].cluster.chip}):
            some = [each for each in rows if each.point is not None and chip in each.point.stack.gemm_efficiency]
            points = [
                replace(
                    point, stack=replace(point.stack, gemm_efficiency={"default": point.stack.gemm_efficiency[chip]})
                )
                for point in _points(some)
            ]
            yield rests(some, points, quantity) if some else []


def _by_chip(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Sources measured several chips, and one's own runs are of one."""
    found: dict[str, list[Measurement]] = {}
    for each, point in zip(measurements, _points(measurements), strict=True):
        found.setdefault(point.cluster.chip, []).append(each)
    return [found[chip] for chip in sorted(found)]


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
