"""Measured rows beside what is predicted of them, whatever they hold: a row that cannot be predicted says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import classes, intervals
from pipesim.calibrate.intervals import Residuals
from pipesim.calibrate.predict import Predicted, groups, predict
from pipesim.calibrate.rows import Measurement
from pipesim.calibrate.scores import Mask
from pipesim.costs.columns import FloatArray
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Rows with their predictions. Arrays have one entry a row, not a number where nothing is known."""

    measurements: tuple[Measurement, ...]
    roles: tuple[str, ...]
    """Which table a row came from: calibration, dev or own."""
    problems: tuple[str, ...]
    """Why a row has no prediction; empty where it has one."""
    notes: tuple[str, ...]
    """Where a prediction extrapolates."""
    predicted: Predicted
    measured_s: FloatArray
    measured_bytes: FloatArray
    capacity_bytes: FloatArray
    step_time_lo_s: FloatArray
    step_time_hi_s: FloatArray
    memory_lo_bytes: FloatArray
    memory_hi_bytes: FloatArray

    def which(self, holds: Callable[[Measurement], bool]) -> Mask:
        """Rows of which this holds."""
        return np.array([holds(each) for each in self.measurements], np.bool_)

    def of_role(self, role: str) -> Mask:
        return np.array([each == role for each in self.roles], np.bool_)

    def of_source(self, source: str, role: str) -> Mask:
        return self.of_role(role) & self.which(lambda each: each.source == source)

    @property
    def known(self) -> Mask:
        """Rows with a prediction."""
        return np.array([not problem for problem in self.problems], np.bool_)

    @property
    def timed(self) -> Mask:
        """Rows whose step time is scored: complete, dense, 16 bits, nothing special."""
        return self.known & self.which(lambda each: each.is_timed)

    def sources(self) -> list[tuple[str, str]]:
        """(source, role) in order of appearance."""
        return list(
            dict.fromkeys((each.source, role) for each, role in zip(self.measurements, self.roles, strict=True))
        )


def validate(tables: Sequence[tuple[str, Sequence[Measurement]]], residuals: Residuals | None = None) -> Validation:
    """Predicts every row of (role, rows) that can be predicted."""
    measurements = [each for _, rows in tables for each in rows]
    problems = [each.problem for each in measurements]
    predicted = _predicted(measurements, problems)
    ends, notes = _intervals(measurements, problems, predicted, residuals)
    return Validation(
        measurements=tuple(measurements),
        roles=tuple(role for role, rows in tables for _ in rows),
        problems=tuple(problems),
        notes=tuple(notes),
        predicted=predicted,
        measured_s=_reals(each.step_time_s for each in measurements),
        measured_bytes=_reals(each.memory_bytes for each in measurements),
        capacity_bytes=_reals(None if each.point is None else each.point.cluster.memory_bytes for each in measurements),
        **ends,
    )


def _predicted(measurements: Sequence[Measurement], problems: list[str]) -> Predicted:
    """Batches of rows that are priced together; one that fails is tried row by row, so that a bad row costs itself."""
    points = {index: each.point for index, each in enumerate(measurements) if each.point is not None}
    totals = ("step_time_s", "memory_bytes", "most_bytes", "mean_flops_s")
    nothing = {name: np.full(len(measurements), np.nan) for name in totals}
    whole = Predicted(
        **nothing,
        seconds={item: np.full(len(measurements), np.nan) for item in TIME_ITEMS},
        bytes={item: np.full(len(measurements), np.nan) for item in MEMORY_ITEMS},
    )
    where = list(points)
    for members in groups(list(points.values())):
        for some, part in _parts([where[i] for i in members], measurements, problems):
            for target, source in zip(_arrays(whole), _arrays(part), strict=True):
                target[some] = source
    return whole


def _parts(
    rows: list[int], measurements: Sequence[Measurement], problems: list[str]
) -> Iterator[tuple[list[int], Predicted]]:
    try:
        part = predict_rows([measurements[i] for i in rows])
        _refuse_nonsense(part)
        yield rows, part
    except Exception as error:
        if len(rows) > 1:
            for i in rows:
                yield from _parts([i], measurements, problems)
        else:
            problems[rows[0]] = " ".join(f"{type(error).__name__}: {error}".split())


def predict_rows(measurements: Sequence[Measurement], points: Sequence[Point] | None = None) -> Predicted:
    """Rows predicted as ``points``, their own if there are none, on the rank whose memory their source prints."""
    own = [each.point for each in measurements if each.point is not None]
    return predict(points or own, [classes.prints_first_rank(each) for each in measurements])


def _refuse_nonsense(part: Predicted) -> None:
    if not all(np.isfinite(values).all() for values in _arrays(part)):
        raise ValueError("its estimate is not a number")


def _arrays(predicted: Predicted) -> list[FloatArray]:
    whole = [predicted.step_time_s, predicted.memory_bytes, predicted.most_bytes, predicted.mean_flops_s]
    return [*whole, *predicted.seconds.values(), *predicted.bytes.values()]


def _intervals(
    measurements: Sequence[Measurement], problems: Sequence[str], predicted: Predicted, residuals: Residuals | None
) -> tuple[dict[str, FloatArray], list[str]]:
    ends = {name: np.full(len(measurements), np.nan) for name in ENDS}
    notes = [""] * len(measurements)
    for i, each in enumerate(measurements):
        if each.point is None or problems[i]:
            continue
        found = intervals.interval(each.point, predicted.step_time_s[i], predicted.memory_bytes[i], residuals)
        if found is not None:
            notes[i] = found.note
            for name in ENDS:
                ends[name][i] = getattr(found, name)
    return ends, notes


ENDS = ("step_time_lo_s", "step_time_hi_s", "memory_lo_bytes", "memory_hi_bytes")


def _reals(values: Iterable[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
