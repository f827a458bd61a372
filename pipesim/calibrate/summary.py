"""A validation in figures: every source and class, beside simpler ways to predict the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import baselines, classes, regret, scores
from pipesim.calibrate.regret import Regret
from pipesim.calibrate.rows import Measurement
from pipesim.calibrate.scores import Confusion, Errors, Mask
from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray

OURS, PEER = "pipesim", "llm-analysis"
OWN_MFU, ONE_MFU = "one MFU, fitted here", "one MFU for all"
INFERRED = "a key field is inferred (grade C) or missing"
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
    regret: Regret


def subsets(validation: Validation, rows: Mask) -> list[Subset]:
    """One for each source that has some of the rows; one with stalls a second time, with those that the rule keeps."""
    kept = validation.which(classes.kept)
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
    mine = validation.timed & validation.of_role(role) & validation.which(classes.kept)
    order = classes.CLASSES[name] or tuple(dict.fromkeys(values[mine].tolist()))
    found = [Subset(name=value, role=role, rows=mine & (values == value)) for value in order]
    return [each for each in found if each.rows.any()]


def rivals(validation: Validation, peer_s: FloatArray) -> dict[str, FloatArray]:
    """Step times of every row by name of the way to predict them; not a number where it has none."""
    peak_s = validation.predicted.mean_flops_s
    fitted = validation.timed & ~validation.of_role("dev")
    names = [each.source for each, mine in zip(validation.measurements, fitted, strict=True) if mine]
    pooled = baselines.pooled_mfu(peak_s[fitted], validation.measured_s[fitted], names)
    return {OURS: validation.predicted.step_time_s, ONE_MFU: peak_s / pooled, PEER: peer_s}


def compared(validation: Validation, rows: Mask, ways: Mapping[str, FloatArray]) -> dict[str, Score]:
    """The score of every way to predict these rows, a constant MFU that is fitted to them included."""
    peak_s = validation.predicted.mean_flops_s
    own = peak_s / baselines.constant_mfu(peak_s[rows], validation.measured_s[rows])
    return {way: score(validation, rows, values) for way, values in {**ways, OWN_MFU: own}.items()}


def score(validation: Validation, rows: Mask, predicted_s: FloatArray) -> Score:
    """Of the rows that this way can predict."""
    index = np.flatnonzero(rows & np.isfinite(predicted_s))
    predicted, measured = predicted_s[index], validation.measured_s[index]
    groups = regret.comparable([validation.measurements[i] for i in index])
    return Score(
        plain=scores.errors(predicted, measured),
        scaled=scores.errors(scores.scaled(predicted, measured), measured),
        regret=regret.regret(groups, predicted, measured),
    )


def kinds(validation: Validation) -> dict[str, Mask]:
    """Rows with a measured time that are not ``timed``, by what sets them apart."""
    ran = validation.which(lambda each: each.outcome == "ok")
    usable = validation.known & np.isfinite(validation.measured_s) & ran
    moe, narrow, odd = map(validation.which, (classes.is_moe, classes.is_narrow, classes.is_special))
    incomplete = validation.which(lambda each: each.grade[:1] not in ("A", "B"))
    return {
        "mixture of experts": usable & moe & ~narrow & ~odd & ~incomplete,
        "fp8": usable & narrow & ~moe & ~odd & ~incomplete,
        "mixture of experts, fp8": usable & moe & narrow & ~odd & ~incomplete,
        INFERRED: usable & incomplete & ~odd & ~moe & ~narrow,
        "the same, fp8 or mixture of experts": usable & incomplete & ~odd & (moe | narrow),
        "offloading or LoRA, which is not modelled": usable & odd,
    }


def has_memory(validation: Validation) -> Mask:
    """Rows that ran and say what they held."""
    ran = validation.which(lambda each: each.outcome == "ok")
    return validation.known & ran & np.isfinite(validation.measured_bytes)


def scored_memory(validation: Validation) -> Mask:
    """Of those the ones that state everything needed, dense, 16 bits, nothing special, and do not contradict themselves."""
    return has_memory(validation) & validation.which(_is_plain) & ~validation.which(classes.contradicts_itself)


def _is_plain(measurement: Measurement) -> bool:
    odd = classes.is_moe(measurement) or classes.is_narrow(measurement) or classes.is_special(measurement)
    return measurement.grade[:1] in ("A", "B") and not odd


def memory_errors(validation: Validation, rows: Mask) -> Errors:
    return scores.errors(validation.predicted.memory_bytes[rows], validation.measured_bytes[rows])


def outcomes(validation: Validation) -> list[Subset]:
    """Sources in which some runs are said to have ended for lack of memory, or failed for reasons not told apart."""
    ended = validation.which(_ended)
    told = validation.known & (ended | validation.which(lambda each: each.outcome == "ok"))
    found = [
        Subset(name=source, role=role, rows=told & validation.of_source(source, role))
        for source, role in validation.sources()
    ]
    return [each for each in found if (each.rows & ended).any()]


def out_of_memory(validation: Validation, subset: Subset, margin: float = 0.0) -> Confusion:
    rows, ended = subset.rows, validation.which(_ended)
    return scores.confusion(validation.predicted.most_bytes[rows], validation.capacity_bytes[rows], ended[rows], margin)


def _ended(measurement: Measurement) -> bool:
    return "OOM" in measurement.outcome


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
    for subset in subsets(validation, scored_memory(validation)):
        yield subset.name, {"memory": memory_errors(validation, subset.rows).mean}
    for subset in outcomes(validation):
        yield (
            subset.name,
            {
                "oom": 1 - out_of_memory(validation, subset).balanced_accuracy,
                "oom_far": 1 - out_of_memory(validation, subset, NEAR).balanced_accuracy,
            },
        )
