"""What looks wrong in measured runs that break no rule: reasons to look at them again before a fit is believed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.calibrate.own_runs import Run, ranks
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point

CONSTANCY = 0.05
"""Printed TFLOP/s, seconds and GPUs of one model and batch agree to this, or a cell is wrong."""

FAR = 3.5
"""Robust standard scores beyond this are outliers. Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993."""

USUAL = 0.02
"""Scatter of log(predicted / measured) that is never called wide: software versions differ by more."""


def before_fit(runs: Sequence[Run]) -> list[str]:
    return [*_inconstant(runs), *_repeated(runs)]


def after_fit(runs: Sequence[Run], error: FloatArray) -> list[str]:
    """``error`` is log(predicted / measured) of each run."""
    off = error - np.median(error)
    scale = max(float(np.median(np.abs(off))) / 0.6745, USUAL)
    return [
        f"run {run.id} is {100 * np.expm1(each):+.0f} % off after the fit, out of line with the others: look at it again."
        for run, each, far in zip(runs, error, np.abs(off) / scale > FAR, strict=True)
        if far
    ]


def _inconstant(runs: Sequence[Run]) -> list[str]:
    """Seconds x TFLOP/s x GPUs / tokens is FLOPs a token: the same for every run of one model, whatever the convention."""
    found = []
    by_model: dict[tuple[object, ...], list[tuple[Run, float]]] = {}
    for run in runs:
        if run.tflops_per_gpu is not None:
            training = run.point.training
            length = training.seq_length or run.point.model.context
            flops = run.step_time_s * run.tflops_per_gpu * 1e12 * ranks(run.point)
            key = run.point.model, length, training.recompute
            by_model.setdefault(key, []).append((run, flops / (training.global_batch * length)))
    for members in by_model.values():
        usual = float(np.median([each for _, each in members]))
        found += [
            f"run {run.id}: step_time_s x tflops_per_gpu x GPUs / tokens is {each / usual:.2f} of the other runs'; "
            "a time, a number of GPUs or a batch is wrong, or its FLOPs are counted otherwise."
            for run, each in members
            if abs(each / usual - 1) > CONSTANCY
        ]
    return found


def _repeated(runs: Sequence[Run]) -> list[str]:
    found = []
    first: dict[Point, Run] = {}
    for run in runs:
        same = first.setdefault(run.point, run)
        if same is not run and abs(np.log(run.step_time_s / same.step_time_s)) > CONSTANCY:
            found.append(
                f"runs {same.id} and {run.id} are one configuration, but take {same.step_time_s:g} and "
                f"{run.step_time_s:g} s: something differs that no column names."
            )
    return found
