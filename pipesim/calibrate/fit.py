"""A robust fit of few constants to measured step times, with priors and bounds.

Residuals are log(predicted / measured) over ``NOISE``; beyond one they count linearly (Huber), so that outliers hardly
pull, unless there are fewer than ``FEW`` runs, of which none can be told to be one. Constants move in spreads of their
prior, a normal one around the value before (``constants.Constant``); the sources' weights are equal, whatever their
numbers of rows. Gauss-Newton: slopes by finite differences, then scipy's bounded least squares on the straightened
problem, and again from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from pipesim.calibrate.constants import FEW, Constant, value, with_values
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

TOP_ROWS = 30
"""More rows of one source are no more evidence: they share what the model leaves out."""

STEP = 0.05
"""Of finite differences, in spreads."""

ROUNDS, SETTLED = 8, 0.02
"""The fit ends after so many rounds, or once a constant moves less than this, in spreads."""

SHARES = (1.0, 0.5, 0.25, 0.125)
"""Of a round's way, tried in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """``before`` and ``after`` are the first point's, in SI units; ``low`` to ``high`` are two standard deviations."""

    name: str
    unit: str
    before: float
    after: float
    low: float
    high: float
    spread: float
    """Of its prior, a factor or a difference."""
    steps: float
    """Spreads that it moved."""
    is_known: bool
    """Whether the data say anything about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the data say. Errors are log(predicted / measured), one entry a run."""

    constants: tuple[FittedConstant, ...]
    correlation: FloatArray
    """Of the constants after the fit, shape (constants, constants)."""
    error_before: FloatArray
    error_after: FloatArray

    @property
    def values(self) -> dict[str, float]:
        return {constant.name: constant.after for constant in self.constants}

    @property
    def silent(self) -> tuple[str, ...]:
        """Constants about which the data say nothing: they are as before, or follow the others'."""
        return tuple(constant.name for constant in self.constants if not constant.is_known)

    @property
    def alike(self) -> tuple[tuple[str, str, float], ...]:
        """Pairs that the data cannot tell apart, with their correlation."""
        names = [constant.name for constant in self.constants]
        return tuple(
            (names[k], names[i], float(self.correlation[i, k]))
            for i in range(len(names))
            for k in range(i)
            if abs(self.correlation[i, k]) >= SAME
        )


def fit(
    points: Sequence[Point],
    step_time_s: ArrayLike,
    constants: Sequence[Constant],
    sources: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
) -> Fit:
    """Fits ``constants`` to the measured seconds of resolved points. One run is enough: priors hold the rest.

    A constant moves by one factor (a share by one difference) on all points, whose own values may differ. ``weights``
    multiply what a row counts. Raises ``ValueError`` if there is no run, or a time that is no positive number.
    """
    measured = np.log(_checked(step_time_s, len(points)))
    roots = np.sqrt(source_weights(sources or [""] * len(points)) * (1.0 if weights is None else np.asarray(weights)))

    def errors(steps: FloatArray) -> FloatArray:
        return np.log(predict(moved(points, constants, steps)).step_time_s) - measured

    before = errors(np.zeros(len(constants)))
    if not constants:
        return Fit(constants=(), correlation=np.zeros((0, 0)), error_before=before, error_after=before)
    loss = _huber if len(points) >= FEW else _square
    steps, after, slopes = _found(errors, before, roots, _bounds(points, constants), loss)
    covariance, deviation = _spread(slopes, after, roots, loss)
    wide = deviation * max(1.0, 1.4826 * float(np.median(np.abs(after))) / NOISE)  # of a normal distribution: its MAD
    return Fit(
        constants=tuple(
            _told(constant, value(_first(points, constant), constant.name), float(moves), min(float(each), 1.0))
            for constant, moves, each in zip(constants, steps, wide, strict=True)
        ),
        correlation=covariance / np.outer(deviation, deviation),
        error_before=before,
        error_after=after,
    )


Bounds = tuple[FloatArray, FloatArray]
Errors = Callable[[FloatArray], FloatArray]
Loss = Callable[[FloatArray], FloatArray]


def _found(
    errors: Errors, before: FloatArray, roots: FloatArray, bounds: Bounds, loss: Loss
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The best steps, the errors there and their slopes, shape (runs, constants).

    Errors bend little, so each round solves the problem with straight ones and predicts anew where that ends; a round
    that does not help goes half as far.
    """
    from scipy.optimize import least_squares

    def residuals(error: FloatArray, steps: FloatArray) -> FloatArray:
        return np.concatenate([roots * loss(error / NOISE), steps])

    here, error = np.zeros(len(bounds[0])), before
    for _ in range(ROUNDS):
        slopes = _slopes(errors, here, error, bounds)
        straight = partial(_straight, residuals, here, error, slopes)
        ahead = least_squares(straight, here, bounds=bounds).x - here
        cost = float(np.sum(residuals(error, here) ** 2))
        for share in SHARES:
            there = here + share * ahead
            found = errors(there)
            if float(np.sum(residuals(found, there) ** 2)) <= cost:
                break
        else:
            break
        here, error = there, found
        if np.max(np.abs(ahead)) < SETTLED:
            break
    return here, error, slopes


def _straight(
    residuals: Callable[[FloatArray, FloatArray], FloatArray],
    here: FloatArray,
    error: FloatArray,
    slopes: FloatArray,
    steps: FloatArray,
) -> FloatArray:
    """Residuals as if errors were straight lines."""
    return residuals(error + slopes @ (steps - here), steps)


def _slopes(errors: Errors, here: FloatArray, error: FloatArray, bounds: Bounds) -> FloatArray:
    """Finite differences, away from a bound."""
    signs = np.where(here + STEP <= bounds[1], STEP, -STEP)
    there = (errors(here + sign * one) for sign, one in zip(signs, np.eye(len(here)), strict=True))
    return np.stack([(each - error) / sign for each, sign in zip(there, signs, strict=True)], axis=1)


def _spread(slopes: FloatArray, after: FloatArray, roots: FloatArray, loss: Loss) -> tuple[FloatArray, FloatArray]:
    """Covariance and standard deviations after the fit, in prior spreads. Outliers count as the loss lets them."""
    scaled = np.abs(after / NOISE)
    pull = np.where(loss(scaled) < scaled, 1 / np.maximum(loss(scaled), 1.0), 1.0)
    jacobian = np.concatenate([(roots * pull / NOISE)[:, None] * slopes, np.eye(slopes.shape[1])])
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    return covariance, np.sqrt(np.diag(covariance))


def _told(constant: Constant, before: float, steps: float, deviation: float) -> FittedConstant:
    return FittedConstant(
        name=constant.name,
        unit=constant.unit,
        before=before,
        after=constant.moved(before, steps),
        low=constant.moved(before, steps - 2 * deviation),
        high=constant.moved(before, steps + 2 * deviation),
        spread=constant.spread,
        steps=steps,
        is_known=deviation < SILENT,
    )


def moved(points: Sequence[Point], constants: Sequence[Constant], steps: ArrayLike) -> list[Point]:
    """The points with every constant some prior spreads further; equal machines stay equal."""
    by_constant = dict(zip(constants, np.asarray(steps, np.float64).tolist(), strict=True))
    machines: dict[tuple[int, int], Point] = {}
    result = []
    for point in points:
        key = id(point.stack), id(point.cluster)
        if key not in machines:
            machines[key] = with_values(point, _values(point, by_constant))
        machine = machines[key]
        result.append(dataclasses.replace(point, stack=machine.stack, cluster=machine.cluster))
    return result


def _values(point: Point, by_constant: Mapping[Constant, float]) -> dict[str, float]:
    return {each.name: each.moved(value(point, each.name), steps) for each, steps in by_constant.items()}


def source_weights(sources: Sequence[str]) -> FloatArray:
    """What each row counts: all sources the same, together as much as their rows, ``TOP_ROWS`` at most of each."""
    counts = {source: sources.count(source) for source in dict.fromkeys(sources)}
    total = sum(min(count, TOP_ROWS) for count in counts.values())
    return np.array([total / (len(counts) * counts[source]) for source in sources])


def _first(points: Sequence[Point], constant: Constant) -> Point:
    """The point that stands for all: the first where the constant is not 0."""
    return next((point for point in points if value(point, constant.name) > 0), points[0])


def _bounds(points: Sequence[Point], constants: Sequence[Constant]) -> tuple[FloatArray, FloatArray]:
    """In spreads from the value before, which lies inside them."""
    low, high = [], []
    for constant in constants:
        before = value(_first(points, constant), constant.name)
        low.append(min(constant.steps(before, constant.low), -STEP))
        high.append(max(constant.steps(before, constant.high), STEP))
    return np.array(low), np.array(high)


def _checked(step_time_s: ArrayLike, runs: int) -> FloatArray:
    seconds = np.asarray(step_time_s, np.float64)
    if not runs or seconds.shape != (runs,):
        raise ValueError(f"{seconds.size} step times for {runs} runs: give one for each of at least one run.")
    if not np.all(np.isfinite(seconds) & (seconds > 0)):
        raise ValueError("step times must be finite and above 0.")
    return seconds


def _square(scaled: FloatArray) -> FloatArray:
    """What squares to the square of the residual."""
    return scaled


def _huber(scaled: FloatArray) -> FloatArray:
    """What squares to Huber's loss: the residual itself up to 1, the root of twice itself less one beyond."""
    size = np.abs(scaled)
    return np.sign(scaled) * np.where(size <= 1, size, np.sqrt(np.maximum(2 * size - 1, 0.0)))
