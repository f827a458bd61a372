"""Whether measured runs agree with each other and with physics: what a row cannot show by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pipesim.calibrate.predict import Predicted
from pipesim.calibrate.runs import Run
from pipesim.checks import Invalid
from pipesim.costs.columns import FloatArray

CONSTANCY = 0.05
"""Printed TFLOP/s, seconds and GPUs of one model and batch agree to this, or a cell is wrong."""

FAR = 3.5
"""Robust standard scores beyond this are outliers. Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993."""

LEAST_SPREAD = 0.02
"""Of log errors: runs that agree better than this are no yardstick for the others."""

MOST = 10
"""Warnings of one kind that are told one by one."""

SLOW = 0.01
"""A share of the peak that no useful run stays under."""


def refuse_impossible(runs: Sequence[Run], predicted: Predicted) -> None:
    """Raises ``Invalid`` for runs faster than their GPUs at peak."""
    problems = [
        f"measurements: {run.name}: step_time_s={run.step_time_s:g} is less than the {least_s:.4g} s that the FLOPs take on "
        f"{run.gpus} GPUs at peak: a time, a unit, a batch or a number of GPUs is wrong. Nearest: step_time_s={least_s:.4g}."
        for run, least_s in zip(runs, predicted.mean_flops_s.tolist(), strict=True)
        if run.step_time_s < least_s
    ]
    if problems:
        raise Invalid(problems)


def warnings(runs: Sequence[Run], predicted: Predicted) -> list[str]:
    """Everything to look at again before the fit is believed, a sentence each."""
    flops = _printed_flops(runs, predicted)
    kinds = (
        _idle(runs, predicted),
        _inconstant(runs, flops),
        _unit(runs, flops),
        _repeated(runs),
        _spanning(runs),
    )
    return [warning for kind in kinds for warning in _first(list(kind))]


def _first(found: list[str]) -> list[str]:
    """Of one kind no more than a reader reads."""
    left = len(found) - MOST
    return found if left <= 0 else [*found[:MOST], f"… and {left} more of this kind."]


def outliers(runs: Sequence[Run], error: FloatArray) -> list[str]:
    """Rows whose log(predicted / measured) is far from the others', the farthest first."""
    off = error - np.median(error)
    scale = max(1.4826 * float(np.median(np.abs(off))), LEAST_SPREAD)  # of a normal distribution: its MAD
    score = np.abs(off) / scale
    far = [i for i in np.argsort(-score, kind="stable").tolist() if score[i] > FAR]
    found = (
        f"{runs[i].name} is predicted {100 * math.expm1(error[i]):+.0f} % off, out of line with the others: look at it again."
        for i in far
    )
    return _first(list(found))


def convention(runs: Sequence[Run], predicted: Predicted) -> str | None:
    """How the printed TFLOP/s count, if any are printed: their FLOPs over the model's."""
    found = sorted(share for share in _printed_flops(runs, predicted) if share is not None)
    if not found:
        return None
    span = f"{found[0]:.2f}" if found[-1] - found[0] < 0.005 else f"{found[0]:.2f} to {found[-1]:.2f}"
    return (
        f"The printed TFLOP/s count {span} of the model's FLOPs: about 1 are model FLOPs, about 4/3 count a full "
        "recomputation too. The fit reads the seconds alone."
    )


def _printed_flops(runs: Sequence[Run], predicted: Predicted) -> list[float | None]:
    """Seconds x TFLOP/s x GPUs over the model's FLOPs: 1 if it counts as we do; the same for all runs that count alike."""
    found: list[float | None] = []
    for run, at_peak_s in zip(runs, predicted.mean_flops_s.tolist(), strict=True):
        peaks = run.point.cluster.peak_flops_per_s
        peak = peaks.get(run.point.training.precision) or max(peaks.values())
        printed = run.tflops_per_gpu
        found.append(None if printed is None else run.step_time_s * printed * 1e12 / (at_peak_s * peak))
    return found


def _inconstant(runs: Sequence[Run], flops: Sequence[float | None]) -> Iterator[str]:
    """Seconds x TFLOP/s x GPUs / tokens is FLOPs a token: one number for a model, whatever the convention."""
    alike: dict[tuple[object, ...], list[tuple[Run, float]]] = {}
    for run, share in zip(runs, flops, strict=True):
        if share is not None:
            key = run.point.model, run.seq_length, run.point.training.recompute, run.source
            alike.setdefault(key, []).append((run, share))
    for members in alike.values():
        usual = float(np.median([share for _, share in members]))
        for run, share in members:
            if abs(share / usual - 1) > CONSTANCY:
                yield (
                    f"{run.name}: step_time_s x tflops_per_gpu x GPUs / tokens is {share / usual:.2f} of the other rows' of "
                    f"this model{_factor(run, share / usual)}: a time, a number of GPUs or a batch is wrong, or its "
                    "FLOPs are counted otherwise."
                )


def _factor(run: Run, ratio: float) -> str:
    """Whether a ratio is one of the row's own numbers."""
    layout = run.point.layout
    m = run.point.training.global_batch // (run.point.training.micro_batch * (layout.d or 1))
    for name, size in {"d": layout.d or 1, "t": layout.t, "p": layout.p, "m": m}.items():
        for sign, factor in (("", size), ("1/", 1 / size)):
            if size > 1 and abs(ratio / factor - 1) < CONSTANCY:
                return f", which is {sign}{name}"
    return ""


def _unit(runs: Sequence[Run], flops: Sequence[float | None]) -> Iterator[str]:
    for run, share in zip(runs, flops, strict=True):
        if share is not None and not 0.5 < share < 2.5:
            yield (
                f"{run.name}: its printed TFLOP/s count {share:.3g} of the model's FLOPs: another unit, another model, or not "
                "per GPU."
            )


def _idle(runs: Sequence[Run], predicted: Predicted) -> Iterator[str]:
    for run, at_peak_s in zip(runs, predicted.mean_flops_s.tolist(), strict=True):
        if at_peak_s < SLOW * run.step_time_s:
            yield (
                f"{run.name}: step_time_s={run.step_time_s:g} leaves the GPUs at {100 * at_peak_s / run.step_time_s:.2g} % "
                f"of their peak: is it in milliseconds? Nearest: step_time_s={run.step_time_s / 1e3:g}."
            )


def _repeated(runs: Sequence[Run]) -> Iterator[str]:
    first: dict[tuple[object, ...], Run] = {}
    for run in runs:
        same = first.setdefault((run.point, run.source), run)
        if same is not run and abs(math.log(run.step_time_s / same.step_time_s)) > CONSTANCY:
            yield (
                f"{same.name} and {run.name} are one configuration, but take {same.step_time_s:g} and "
                f"{run.step_time_s:g} s: something differs that no column names."
            )


def _spanning(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        layout, per_node = run.point.layout, run.point.cluster.gpus_per_node
        if layout.t > per_node >= layout.p and layout.t != layout.p:
            yield f"{run.name}: t={layout.t} leaves its node of {per_node} GPUs, p={layout.p} would not: are they swapped?"
