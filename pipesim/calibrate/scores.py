"""How good predictions are: relative errors, ranks, and yes or no. Arrays in, plain figures out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.columns import FloatArray

Mask = np.typing.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of predicted / measured - 1, as fractions. Without rows everything but ``rows`` is not a number."""

    rows: int
    mean: float
    """Of absolute values."""
    median: float
    """Of absolute values."""
    bias: float
    """Mean with sign: below 0 the predictions are too small."""
    p90: float
    """Nine of ten absolute values are below."""


def errors(predicted: FloatArray, measured: FloatArray) -> Errors:
    """Of predictions against what was measured, in the same unit, both above 0."""
    if not len(measured):
        return Errors(rows=0, mean=np.nan, median=np.nan, bias=np.nan, p90=np.nan)
    relative = predicted / measured - 1
    size = np.abs(relative)
    return Errors(
        rows=len(size),
        mean=float(size.mean()),
        median=float(np.median(size)),
        bias=float(relative.mean()),
        p90=float(np.quantile(size, 0.9)),
    )


def scaled(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """Predictions times one factor for all: the median of measured / predicted."""
    return predicted * np.median(measured / predicted) if len(measured) else predicted


DRAWS = 200
"""Of several runs at once."""


def after_runs(predicted: FloatArray, measured: FloatArray, runs: int, prior_runs: float = 0.0) -> FloatArray:
    """Absolute errors of the other rows once so many rows have moved all by one factor: each row in turn for one run, else
    ``DRAWS`` draws. The estimate itself counts as ``prior_runs``; 0 takes the runs at their word. Empty without other rows.
    """
    logs, rows, chance = np.log(predicted / measured), len(measured), np.random.default_rng(0)
    if rows <= runs:
        return np.zeros(0)
    orders = [np.roll(np.arange(rows), -k) for k in range(rows)] if runs == 1 else []
    orders = orders or [chance.permutation(rows) for _ in range(DRAWS)]
    share = runs / (runs + prior_runs)
    left = [logs[order[runs:]] - share * np.median(logs[order[:runs]]) for order in orders]
    return np.asarray(np.abs(np.expm1(np.concatenate(left))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Runs that fitted or ran out of memory, by what was predicted of them."""

    fits_as_predicted: int
    fits_despite: int
    """Predicted not to fit, but ran."""
    out_as_predicted: int
    out_despite: int
    """Predicted to fit, but ran out of memory."""

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the share of fits and the share of failures that were predicted; not a number without both."""
        fits, out = self.fits_as_predicted + self.fits_despite, self.out_as_predicted + self.out_despite
        if not fits or not out:
            return float("nan")
        return (self.fits_as_predicted / fits + self.out_as_predicted / out) / 2


def confusion(memory_bytes: FloatArray, capacity_bytes: FloatArray, ran_out: Mask, margin: float = 0.0) -> Confusion:
    """``margin`` leaves out rows predicted within that fraction of the capacity, where a yes or no is luck."""
    far = np.abs(memory_bytes / capacity_bytes - 1) >= margin
    fits = memory_bytes <= capacity_bytes
    count = {(a, b): int((far & (fits == a) & (ran_out == b)).sum()) for a in (True, False) for b in (True, False)}
    return Confusion(
        fits_as_predicted=count[True, False],
        fits_despite=count[False, False],
        out_as_predicted=count[False, True],
        out_despite=count[True, True],
    )


def ranks(values: FloatArray) -> FloatArray:
    """1 for the smallest; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 1.0])).tolist()
    [3.0, 1.5, 1.5]
    """
    _, where, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[where], np.float64)


def rank_correlation(predicted: FloatArray, measured: FloatArray) -> float:
    """Spearman's: 1 if both order the rows alike; not a number where one of them knows no order."""
    a, b = ranks(predicted), ranks(measured)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
