"""A validation in figures: every source and class, beside simpler ways to predict the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import baselines, classes, regret, scores
from pipesim.calibrate.regret import Regret
from pipesim.calibrate.scores import Confusion, Errors, Mask
from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray

OURS, OWN_MFU, ONE_MFU, PEER = (
    "pipesim",
    "constant MFU, fitted to this source",
    "constant MFU, one for all",
    "llm-analysis",
)
NEAR = 0.1
"""Predictions within this fraction of the capacity are left out of the second confusion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """Rows that are scored together."""

    name: str
    role: str
    rows: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one way to predict does on a subset."""

    plain: Errors
    scaled: Errors
    """After one factor for all rows."""
    one_run: float
    """Mean error after one measured run, averaged over which run that is."""
    regret: Regret


def subsets(validation: Validation, rows: Mask) -> list[Subset]:
    """One for each source that has some of the rows; one with stalls a second time, with those that the rule keeps."""
    kept = np.array([classes.kept(each) for each in validation.measurements], bool)
    found = []
    for source, role in validation.sources():
        mine = rows & validation.of_source(source, role)
        found.append(Subset(name=source, role=role, rows=mine))
        if (mine & ~kept).any():
            found.append(Subset(name=f"{source}, kept", role=role, rows=mine & kept))
    return [each for each in found if each.rows.any()]


def by_class(validation: Validation, name: str, role: str) -> list[Subset]:
    """Scored and kept rows of one table, by the values of a class."""
    values = np.array([classes.classes(each).get(name, "") for each in validation.measurements])
    mine = validation.timed & np.array([each == role for each in validation.roles], bool)
    mine &= np.array([classes.kept(each) for each in validation.measurements], bool)
    order = classes.CLASSES[name] or tuple(dict.fromkeys(values[mine].tolist()))
    found = [Subset(name=value, role=role, rows=mine & (values == value)) for value in order]
    return [each for each in found if each.rows.any()]


def rivals(validation: Validation, peer_s: FloatArray) -> dict[str, FloatArray]:
    """Step times of every row by name of the way to predict them; not a number where it has none."""
    timed, peak_s = validation.timed, validation.predicted.mean_flops_s
    own = np.full(len(timed), np.nan)
    for source, role in validation.sources():
        mine = timed & validation.of_source(source, role)
        own[mine] = peak_s[mine] / baselines.constant_mfu(peak_s[mine], validation.measured_s[mine])
    fitted = timed & np.array([role != "dev" for role in validation.roles], bool)
    names = [each.source for each, mine in zip(validation.measurements, fitted, strict=True) if mine]
    pooled = baselines.pooled_mfu(peak_s[fitted], validation.measured_s[fitted], names)
    return {OURS: validation.predicted.step_time_s, OWN_MFU: own, ONE_MFU: peak_s / pooled, PEER: peer_s}


def score(validation: Validation, rows: Mask, predicted_s: FloatArray) -> Score:
    """Of the rows that this way can predict."""
    index = np.flatnonzero(rows & np.isfinite(predicted_s))
    predicted, measured = predicted_s[index], validation.measured_s[index]
    groups = regret.comparable([validation.measurements[i] for i in index])
    return Score(
        plain=scores.errors(predicted, measured),
        scaled=scores.errors(scores.scaled(predicted, measured), measured),
        one_run=scores.after_one_run(predicted, measured),
        regret=regret.regret(groups, predicted, measured),
    )


def has_memory(validation: Validation) -> Mask:
    """Rows that ran and say what they held."""
    ran = np.array([each.outcome == "ok" for each in validation.measurements], bool)
    return np.asarray(validation.known & ran & np.isfinite(validation.measured_bytes))


def memory_errors(validation: Validation, rows: Mask) -> Errors:
    return scores.errors(validation.predicted.memory_bytes[rows], validation.measured_bytes[rows])


def outcomes(validation: Validation) -> list[Subset]:
    """Sources in which some runs are said to have ended for lack of memory, or failed for reasons not told apart."""
    ended = np.array([_ended(each.outcome) for each in validation.measurements], bool)
    told = validation.known & (ended | np.array([each.outcome == "ok" for each in validation.measurements], bool))
    found = [
        Subset(name=source, role=role, rows=told & validation.of_source(source, role))
        for source, role in validation.sources()
    ]
    return [each for each in found if (each.rows & ended).any()]


def out_of_memory(validation: Validation, subset: Subset, margin: float = 0.0) -> Confusion:
    rows = subset.rows
    ended = np.array([_ended(each.outcome) for each in validation.measurements], bool)
    return scores.confusion(
        validation.predicted.memory_bytes[rows], validation.capacity_bytes[rows], ended[rows], margin
    )


def _ended(outcome: str) -> bool:
    return "OOM" in outcome


def covered(validation: Validation, rows: Mask, quantity: str) -> float:
    """The share of rows whose measurement lies in its interval; ``quantity`` is step_time or memory."""
    if quantity == "step_time":
        value, low, high = validation.measured_s, validation.step_time_lo_s, validation.step_time_hi_s
    else:
        value, low, high = validation.measured_bytes, validation.memory_lo_bytes, validation.memory_hi_bytes
    return float(((low <= value) & (value <= high))[rows].mean()) if rows.any() else float("nan")


def figures(validation: Validation) -> dict[str, dict[str, float]]:
    """What may not get worse, by source: fractions, smaller is better; ``oom`` is 1 less the balanced accuracy."""
    found: dict[str, dict[str, float]] = {}
    for name, values in _figures(validation):
        found.setdefault(name, {}).update(values)
    return found


def _figures(validation: Validation) -> Iterator[tuple[str, Mapping[str, float]]]:
    for subset in subsets(validation, validation.timed):
        mine = score(validation, subset.rows, validation.predicted.step_time_s)
        yield subset.name, {"step_time": mine.plain.mean, "step_time_scaled": mine.scaled.mean}
        if mine.regret.groups:
            yield subset.name, {"regret": mine.regret.mean}
    for subset in subsets(validation, has_memory(validation)):
        yield subset.name, {"memory": memory_errors(validation, subset.rows).mean}
    for subset in outcomes(validation):
        yield (
            subset.name,
            {
                "oom": 1 - out_of_memory(validation, subset).balanced_accuracy,
                "oom_far": 1 - out_of_memory(validation, subset, NEAR).balanced_accuracy,
            },
        )
