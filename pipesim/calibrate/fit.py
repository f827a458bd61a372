"""A robust fit of few constants to measured step times, with priors and bounds.

Residuals are log(predicted / measured) over ``NOISE``; beyond one they count linearly (Huber), so that outliers hardly
pull. Each constant's logarithm has a normal prior around its value before. Every source weighs the same, whatever its
number of rows. The optimiser is scipy's trust-region reflective least squares, its Jacobian by finite differences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipesim.calibrate.constants import Constant, value, with_values
from pipesim.calibrate.predict import predict
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point

NOISE = 0.05
"""One standard deviation of log(predicted / measured) for a model that is right: runs of one layout differ by up to 3 %
between software versions, and the model leaves things out."""

SAME = 0.9
"""Constants whose correlation reaches this cannot be told apart."""

SILENT = 0.8
"""Data that leave this share of a constant's prior spread say nothing about it."""

TOP_ROWS = 30.0
"""A source of more rows weighs as much as this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """``before`` and ``after`` in SI units; ``spread`` is the factor of one standard deviation after the fit."""

    name: str
    before: float
    after: float
    spread: float
    is_known: bool
    """Whether the data say anything about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the data say. Errors are log(predicted / measured), one entry a run."""

    constants: tuple[FittedConstant, ...]
    alike: tuple[tuple[str, str, float], ...]
    """Pairs that the data cannot tell apart, with their correlation."""
    error_before: FloatArray
    error_after: FloatArray

    @property
    def values(self) -> dict[str, float]:
        return {constant.name: constant.after for constant in self.constants}


def fit(
    points: Sequence[Point], step_time_s: ArrayLike, constants: Sequence[Constant], sources: Sequence[str] | None = None
) -> Fit:
    """Fits ``constants`` to the measured seconds of resolved points. One run is enough: priors hold the rest.

    Raises ``ValueError`` if there is no run, or a time that is no positive number.
    """
    from scipy.optimize import least_squares

    measured = np.log(_checked(step_time_s, len(points)))
    weights = _weights(sources or [""] * len(points))
    before = np.log([value(points[0], constant.name) for constant in constants])
    spread = np.log([constant.spread for constant in constants])
    low, high = (np.log([getattr(constant, side) for constant in constants]) for side in ("low", "high"))

    def errors(logs: FloatArray) -> FloatArray:
        values = dict(zip((constant.name for constant in constants), np.exp(logs).tolist(), strict=True))
        return np.log(predict(changed(points, values)).step_time_s) - measured

    def residuals(logs: FloatArray) -> FloatArray:
        return np.concatenate([weights * _huber(errors(logs) / NOISE), (logs - before) / spread])

    start = np.clip(before, low + 1e-9, high - 1e-9)
    found = least_squares(residuals, start, bounds=(low, high), diff_step=0.01, max_nfev=30)
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    deviation = np.sqrt(np.diag(covariance))
    return Fit(
        constants=tuple(
            FittedConstant(
                name=constant.name,
                before=float(np.exp(before[i])),
                after=float(np.exp(found.x[i])),
                spread=float(np.exp(deviation[i])),
                is_known=bool(deviation[i] < SILENT * spread[i]),
            )
            for i, constant in enumerate(constants)
        ),
        alike=tuple(_alike(constants, covariance, deviation)),
        error_before=errors(start),
        error_after=errors(found.x),
    )


def changed(points: Sequence[Point], values: Mapping[str, float]) -> list[Point]:
    """The points with other constants; points that shared a stack and a cluster still do."""
    made: dict[tuple[int, int], Point] = {}
    result = []
    for point in points:
        key = id(point.stack), id(point.cluster)
        if key not in made:
            made[key] = with_values(point, values)
        result.append(_with_machine(point, made[key]))
    return result


def _with_machine(point: Point, machine: Point) -> Point:
    return dataclasses.replace(point, stack=machine.stack, cluster=machine.cluster)


def _checked(step_time_s: ArrayLike, runs: int) -> FloatArray:
    seconds = np.asarray(step_time_s, np.float64)
    if not runs or seconds.shape != (runs,):
        raise ValueError(f"{seconds.size} step times for {runs} runs: give one for each of at least one run.")
    if not np.all(np.isfinite(seconds) & (seconds > 0)):
        raise ValueError("step times must be finite and above 0.")
    return seconds


def _weights(sources: Sequence[str]) -> FloatArray:
    counts = {source: sources.count(source) for source in set(sources)}
    return np.array([min(1.0, TOP_ROWS / counts[source]) ** 0.5 for source in sources])


def _huber(scaled: FloatArray) -> FloatArray:
    """What squares to Huber's loss: the residual itself up to 1, the root of twice itself less one beyond."""
    size = np.abs(scaled)
    return np.sign(scaled) * np.where(size <= 1, size, np.sqrt(np.maximum(2 * size - 1, 0.0)))


def _alike(
    constants: Sequence[Constant], covariance: FloatArray, deviation: FloatArray
) -> list[tuple[str, str, float]]:
    found = []
    for i in range(len(constants)):
        for k in range(i):
            correlation = float(covariance[i, k] / max(deviation[i] * deviation[k], 1e-300))
            if abs(correlation) >= SAME:
                found.append((constants[k].name, constants[i].name, correlation))
    return found
