"""What a user's own measured runs leave of the error: each source's rows in turn stand for a user's runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import classes, intervals, scores, summary
from pipesim.calibrate.intervals import OWN_RUNS
from pipesim.calibrate.scores import Errors, Mask
from pipesim.calibrate.summary import Subset
from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Mean and median error of a source's other rows; not a number where too few are left."""

    at_its_word: float
    """Mean after one run that moves all predictions as far as itself."""
    weighed: dict[int, tuple[float, float]]
    """Mean and median by number of runs, which move predictions as far as they and their scatter deserve."""


def after(validation: Validation, rows: Mask) -> After:
    predicted, measured = validation.predicted.step_time_s[rows], validation.measured_s[rows]
    prior = prior_runs(validation, rows)
    weighed = {runs: scores.after_runs(predicted, measured, runs, prior) for runs in OWN_RUNS}
    return After(
        at_its_word=_middle(scores.after_runs(predicted, measured, 1))[0],
        weighed={runs: _middle(errors) for runs, errors in weighed.items()},
    )


def prior_runs(validation: Validation, rows: Mask) -> float:
    """How many runs of one's own an estimate weighs as much as: the squared scatter of runs over the squared shift of a
    study, which is larger where the stack or the chip was not measured. The middle one of these rows.
    """
    known, found = intervals.packaged(), []
    for i in np.flatnonzero(rows):
        point = validation.measurements[i].point
        assert point is not None
        outside = {"stack", "chip"} & set(intervals.reasons(point, known))
        shift = math.hypot(known.step_time["study"], *(known.step_time[name] for name in sorted(outside)))
        scatter = max(known.step_time["scatter"], known.step_time_own.get(point.stack.name, 0.0))
        found.append((scatter / shift) ** 2)
    return float(np.median(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Some rows of one source: those of a release, or all of them."""

    source: str
    role: str
    release: str
    plain: Errors
    scaled: Errors
    """After one factor, the median of these rows; of ``EACH_ITS_OWN``, of the row's release."""
    one_run: float
    """Mean after one run of these rows, weighed; of ``EACH_ITS_OWN``, of the row's release."""


TOGETHER, EACH_ITS_OWN = "all, one factor", "all, a factor for each release"


def releases(validation: Validation) -> list[Release]:
    """Of every source that states two or more releases: each, then all together, then all after each one's own factor."""
    named = np.array([classes.release(each) for each in validation.measurements])
    mask = (validation.timed | summary.kinds(validation)[summary.INFERRED]) & (named != "")
    found: list[Release] = []
    for subset in summary.subsets(validation, mask):
        names = sorted(set(named[subset.rows].tolist()))
        if len(names) > 1:
            parts = [subset.rows & (named == name) for name in names]
            found += [_release(validation, subset, name, [part]) for name, part in zip(names, parts, strict=True)]
            found.append(_release(validation, subset, TOGETHER, [subset.rows]))
            found.append(_release(validation, subset, EACH_ITS_OWN, parts))
    return found


def _release(validation: Validation, subset: Subset, name: str, parts: list[Mask]) -> Release:
    pairs = [(validation.predicted.step_time_s[part], validation.measured_s[part]) for part in parts]
    prior = prior_runs(validation, subset.rows)
    predicted, measured = (np.concatenate(each) for each in zip(*pairs, strict=True))
    one_run = np.concatenate([scores.after_runs(*pair, 1, prior) for pair in pairs])
    return Release(
        source=subset.name,
        role=subset.role,
        release=name,
        plain=scores.errors(predicted, measured),
        scaled=scores.errors(np.concatenate([scores.scaled(*pair) for pair in pairs]), measured),
        one_run=_middle(one_run)[0],
    )


def _middle(errors: FloatArray) -> tuple[float, float]:
    return (float(errors.mean()), float(np.median(errors))) if len(errors) else (math.nan, math.nan)
