"""The tables of a validation report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from pipesim.calibrate import classes, intervals, summary
from pipesim.calibrate.scores import Errors, Mask
from pipesim.calibrate.summary import NEAR, ONE_MFU, OURS, OWN_MFU, PEER, Score, Subset
from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray
from pipesim.report.document import Cell, Column, Table

Scores = Mapping[str, Mapping[str, Score]]
"""Of a subset, by its name, and a way to predict."""

_ERRORS = ("mean", "median", "bias", "90th percentile")


def by_source(subsets: Sequence[Subset], scored: Scores) -> Table:
    rows = []
    for each in subsets:
        ours = scored[each.name][OURS]
        rows.append((each.name, each.role, *_errors(ours.plain), ours.scaled.mean))
    return Table(
        title="Error of the step time, by source",
        columns=(
            *_texts("source", "table"), _count("rows"), *_percents(*_ERRORS, "mean, scaled"),
        ),
        rows=tuple(rows),
        note="Predicted over measured, less one; mean, median and percentile of its size, bias with its sign. Scaled: after "
        "one factor for the source, the median of all its rows.",
    )  # fmt: skip


def beside_others(subsets: Sequence[Subset], scored: Scores) -> Table:
    """Mean errors of every way to predict the same rows, as they come and after one factor for the source."""
    ways = (OURS, OWN_MFU, ONE_MFU, PEER)
    rows: list[tuple[Cell, ...]] = []
    for each in subsets:
        mine = scored[each.name]
        means = (mine[way].plain.mean for way in ways)
        scaled = (mine[OURS].scaled.mean, mine[PEER].scaled.mean)
        rows.append((each.name, each.role, mine[OURS].plain.rows, *means, *scaled, mine[PEER].plain.rows))
    return Table(
        title="Mean error beside simpler ways to predict",
        columns=(
            *_texts("source", "table"), _count("rows"), *_percents(*ways), *_percents(f"{OURS}, scaled", f"{PEER}, scaled"),
            _count("its rows"),
        ),
        rows=tuple(rows),
        note="One factor for the source leaves nothing of a constant MFU but its blindness: scaled or not it is the same. "
        f"Its rows: those that {PEER} can do.",
    )  # fmt: skip


def layout_choice(subsets: Sequence[Subset], scored: Scores) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    for each in subsets:
        mine = scored[each.name]
        if mine[OURS].regret.groups:
            for way, name in ((OURS, OURS), (OWN_MFU, "constant MFU"), (PEER, PEER)):
                r = mine[way].regret
                rows.append(
                    (each.name, each.role, name, r.groups, r.rows, r.mean, r.median, r.largest, r.rank_correlation)
                )
    if not rows:
        return None
    return Table(
        title="What choosing the predicted best layout costs",
        columns=(
            *_texts("source", "table", "by"), _count("groups"), _count("runs"),
            *_percents("mean regret", "median regret", "largest"), Column(title="rank correlation", kind="number"),
        ),
        rows=tuple(rows),
        note="A group is the runs of one model, GPUs, global batch, sequence length, precision, kernel and software version. "
        "Regret: how much slower than the measured best the run is, as measured, that is predicted to be the best; the mean "
        "over layouts that are predicted alike. Rank correlation is Spearman's, the mean over groups; a dash where a way "
        "to predict tells no layouts apart.",
    )  # fmt: skip


def by_class(validation: Validation, role: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in classes.CLASSES:
        for each in summary.by_class(validation, name, role):
            score = summary.score(validation, each.rows, validation.predicted.step_time_s)
            rows.append((name.replace("_", " "), each.name, *_errors(score.plain)))
    return Table(
        title=f"Error of the step time, by class of run: {role}",
        columns=(*_texts("class", "value"), _count("rows"), *_percents(*_ERRORS)),
        rows=tuple(rows),
        note="Every row counts alike here, so large sources weigh most. With both: tensor and pipeline.",
    )


def special(validation: Validation) -> Table | None:
    """Rows of kinds that the main tables leave out."""
    rows: list[tuple[Cell, ...]] = []
    for kind, mask in summary.kinds(validation).items():
        for subset in summary.subsets(validation, mask):
            ours = summary.score(validation, subset.rows, validation.predicted.step_time_s)
            rows.append((kind, subset.name, subset.role, *_errors(ours.plain), ours.scaled.mean))
    if not rows:
        return None
    return Table(
        title="Rows that the other tables leave out",
        columns=(*_texts("kind", "source", "table"), _count("rows"), *_percents(*_ERRORS, "mean, scaled")),
        rows=tuple(rows),
        note="Errors of the step time.",
    )


def memory(
    validation: Validation, scored: Mask, title: str = "Error of the memory of the heaviest rank"
) -> Table | None:
    kinds = np.array([classes.memory_kind(each) for each in validation.measurements])
    rows: list[tuple[Cell, ...]] = []
    for subset in summary.subsets(validation, scored):
        for kind in dict.fromkeys(kinds[subset.rows].tolist()):
            mine = subset.rows & (kinds == kind)
            rows.append((subset.name, subset.role, kind, *_errors(summary.memory_errors(validation, mine))))
    if not rows:
        return None
    return Table(
        title=title,
        columns=(*_texts("source", "table", "what was measured"), _count("rows"), *_percents(*_ERRORS)),
        rows=tuple(rows),
        note="Sources measure torch's tensors (allocated), its cache (reserved) or all that the driver sees, and many do not "
        "say which; GB is 1e9 bytes, GiB 2**30. A prediction counts what its stack holds. Rows whose stages contradict the "
        "recomputation that they state are set apart.",
    )


def out_of_memory(validation: Validation) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    for subset in summary.outcomes(validation):
        for name, margin in (("all", 0.0), (f"outside {100 * NEAR:g} % of the capacity", NEAR)):
            found = summary.out_of_memory(validation, subset, margin)
            counts = (found.fits_as_predicted, found.fits_despite, found.out_as_predicted, found.out_despite)
            rows.append((subset.name, subset.role, name, *counts, found.balanced_accuracy))
    if not rows:
        return None
    return Table(
        title="Fit or out of memory",
        columns=(
            *_texts("source", "table", "rows"), _count("ran, as predicted"), _count("ran, predicted not to fit"),
            _count("out of memory, as predicted"), _count("out of memory, predicted to fit"), _percent("balanced accuracy"),
        ),
        rows=tuple(rows),
        note=f"Balanced accuracy is the mean of the two shares that were predicted. {classes.STALLING}'s failures are not told "
        "apart: time-outs and crashes are among those that were predicted to fit.",
    )  # fmt: skip


def coverage(validation: Validation) -> Table:
    """The share of measurements inside their intervals, where nothing extrapolates and where something does."""
    outside = np.array([bool(note) for note in validation.notes], np.bool_)
    everything = np.ones(len(outside), np.bool_)
    kept = validation.which(classes.kept)
    kinds = {"all": everything, "like measured ones": ~outside, "extrapolating": outside}
    rows: list[tuple[Cell, ...]] = []
    for quantity, mask in (("step time", validation.timed & kept), ("memory", summary.scored_memory(validation))):
        for role in dict.fromkeys(validation.roles):
            for name, kind in kinds.items():
                some = mask & kind & validation.of_role(role)
                figures = (_covered(validation, some, quantity), _width(validation, some, quantity))
                rows.append((quantity, role, name, int(some.sum()), *figures))
    return Table(
        title="How often the measurement lies in its interval",
        columns=(
            *_texts("quantity", "table", "rows that are"),
            _count("rows"),
            *_percents("covered", "median half-width"),
        ),
        rows=tuple(rows),
        note=f"The intervals are meant to hold {100 * intervals.COVERAGE:g} %. Their widths come from the calibration table; "
        "the dev table had no part in them. Step times are of rows that the rule against stalls keeps, memory of all.",
    )


def terms(known: intervals.Residuals) -> Table:
    said = _ALWAYS | {name: re.sub(r"\{(\w+)\}", r"the \1", why) for name, why in intervals.REASONS.items()}
    rows = tuple((name, known.step_time[name], known.memory[name], said[name]) for name in known.step_time)
    return Table(
        title="What makes an interval wide",
        columns=(*_texts("term"), _percent("step time"), _percent("memory"), *_texts("counts where")),
        rows=rows,
        note="The interval is point x exp(-w) to point x exp(w), w the root of the sum of the squares of the terms that count. "
        + " ".join(
            _own(what, own) for what, own in (("Step time", known.step_time_own), ("Memory", known.memory_own)) if own
        ),
    )


def _own(what: str, scatters: Mapping[str, float]) -> str:
    each = ", ".join(f"{name} {100 * value:.1f} %" for name, value in scatters.items())
    return f"{what} scatters more with some stacks, which then counts: {each}."


_ALWAYS = {"scatter": "always: rows of one source scatter", "study": "always: a study shifts as a whole"}


def not_predicted(validation: Validation) -> Table | None:
    """Counts of reasons, their numbers taken out."""
    found = Counter(
        (each.source, role, re.sub(r"\d+", "#", problem))
        for each, role, problem in zip(validation.measurements, validation.roles, validation.problems, strict=True)
        if problem
    )
    if not found:
        return None
    return Table(
        title="Rows without a prediction",
        columns=(*_texts("source", "table"), _count("rows"), *_texts("why (numbers as #)")),
        rows=tuple((source, role, count, why) for (source, role, why), count in found.most_common()),
    )


def _covered(validation: Validation, rows: Mask, quantity: str) -> float:
    return summary.covered(validation, rows, quantity.replace(" ", "_"))


def _width(validation: Validation, rows: Mask, quantity: str) -> float | None:
    low, high = (
        (validation.step_time_lo_s, validation.step_time_hi_s)
        if quantity == "step time"
        else (validation.memory_lo_bytes, validation.memory_hi_bytes)
    )
    widths: FloatArray = np.sqrt(high[rows] / low[rows]) - 1
    return float(np.median(widths)) if len(widths) else None


def _errors(errors: Errors) -> tuple[Cell, ...]:
    return errors.rows, errors.mean, errors.median, errors.bias, errors.p90


def _texts(*titles: str) -> list[Column]:
    return [Column(title=title) for title in titles]


def _count(title: str) -> Column:
    return Column(title=title, kind="count")


def _percent(title: str) -> Column:
    return Column(title=title, kind="percent")


def _percents(*titles: str) -> list[Column]:
    return [_percent(title) for title in titles]
