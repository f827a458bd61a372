"""The table of a validation's goals, and its tables of what own runs, releases and inferred fields make of errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipesim.calibrate import after_runs, bands, goals, intervals, summary
from pipesim.calibrate.after_runs import Release
from pipesim.calibrate.bands import Band
from pipesim.calibrate.summary import Subset
from pipesim.calibrate.validate import Validation
from pipesim.report.document import Block, Cell, Column, Observations, Table


def goals_of(validation: Validation, figures: Mapping[str, Mapping[str, float]]) -> Iterator[Block]:
    """Nothing for tables that no goal is about."""
    found = goals.reached(validation, figures) if "dev" in validation.roles else []
    if not found:
        return
    missed = [(goal, value) for goal, value in found if value > goal.most]
    yield Observations(
        title=f"{len(found) - len(missed)} of {len(found)} goals are reached" + (". Missed are" if missed else ""),
        claims=tuple(
            f"{goal.of}: {goals.WORDS[goal.what]}, {_percent(value):g} %; at most {_percent(goal.most):g} % is aimed at"
            for goal, value in missed
        ),
    )
    yield Table(
        title="What is aimed at and what is reached",
        columns=(
            Column(title="figure"), Column(title="source"), Column(title="at most (%)", kind="number"),
            Column(title="reached (%)", kind="number"), Column(title="holds", kind="flag"),
        ),
        rows=tuple(
            (goals.WORDS[goal.what], goal.of, _percent(goal.most), _percent(value), value <= goal.most) for goal, value in found
        ),
        note="Of errors the means of absolute values. Judged wrongly: 1 less the balanced accuracy; the failures of "
        "nanotron-playbook are not all of memory, and of bigscience-A100 only six runs were out of it. Tests hold the figures of "
        "every source near what they are, reached or not.",
    )  # fmt: skip


def _percent(share: float) -> float:
    return round(100 * share, 2)


def after_own_runs(validation: Validation, subsets: Sequence[Subset]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for each in subsets:
        found = after_runs.after(validation, each.rows)
        plain = summary.score(validation, each.rows, validation.predicted.step_time_s).plain
        means, medians = zip(*[(plain.mean, plain.median), *found.weighed.values()], strict=True)
        rows.append((each.name, each.role, plain.rows, *means, *medians, found.at_its_word))
    counts = [f"{runs} run{'s' * (runs > 1)}" for runs in intervals.OWN_RUNS]
    titles = [f"{what}, {count}" for what in ("mean", "median") for count in ("no run", *counts)]
    return Table(
        title="Error of the step time once some rows are taken for a user's own runs",
        columns=(
            Column(title="source"), Column(title="table"), Column(title="rows", kind="count"),
            *(Column(title=title, kind="percent") for title in [*titles, "mean, 1 run at its word"]),
        ),
        rows=tuple(rows),
        note="One run: each row of the source in turn, the error of its other rows. Three and ten: drawn by chance, again and "
        "again. Runs move predictions by one factor, as far as their number and the usual scatter deserve, which is what "
        "experiment=calibrate makes of one or two runs; of more it fits further constants. At its word: by the whole factor "
        "of a single run, whose own chance then lies on all others. A dash: too few rows.",
    )  # fmt: skip


def by_release(found: Sequence[Release]) -> Table | None:
    if not found:
        return None
    titles = ("mean", "median", "bias", "mean after one factor", "mean after one own run")
    return Table(
        title="Error of the step time, by release of the software",
        columns=(
            Column(title="source"), Column(title="table"), Column(title="release"), Column(title="rows", kind="count"),
            *(Column(title=title, kind="percent") for title in titles),
        ),
        rows=tuple(
            (each.source, each.role, each.release, each.plain.rows, each.plain.mean, each.plain.median, each.plain.bias,
             each.scaled.mean, each.one_run)
            for each in found
        ),
        note="Sources that state two or more releases, rows with inferred fields among them. One layout can differ by a fifth "
        "from one release to the next, which no formula knows. A user's runs are of the user's own release: in the last row "
        "of a source the factor, or the one run, is of each row's own release. So many factors flatter more than one does.",
    )  # fmt: skip


def inferred(validation: Validation, found: Sequence[Band]) -> Table | None:
    """By source and scanned fields."""
    if not found:
        return None
    alike: dict[tuple[str, str, str], list[Band]] = {}
    for each in found:
        source, role = validation.measurements[each.row].source, validation.roles[each.row]
        alike.setdefault((source, role, ", ".join(each.fields)), []).append(each)
    percents = (
        "fastest over inferred", "slowest over inferred", "measured inside", "inside with intervals", "mean error as inferred",
        "mean error of the nearest",
    )  # fmt: skip
    return Table(
        title="Rows with inferred fields: the band over the fields' legal values",
        columns=(
            Column(title="source"), Column(title="table"), Column(title="scanned"), Column(title="rows", kind="count"),
            Column(title="layouts (median)", kind="number"), *(Column(title=title, kind="percent") for title in percents),
        ),
        rows=tuple((*names, len(some), *_figures(validation, some)) for names, some in alike.items()),
        note="Each inferred field is given its other legal values, one field at a time, the others as inferred; layouts that are "
        "predicted not to fit are left out. Fastest and slowest are medians of the band's ends over the prediction as "
        "inferred, less one. Inside with intervals: with the 90 % intervals of the ends. The nearest is chosen by what was "
        f"measured, so that its error flatters. Scanned: {', '.join(bands.SCANNED)}; inferred shapes, lengths, batches and "
        "precisions are not.",
    )  # fmt: skip


def _figures(validation: Validation, some: Sequence[Band]) -> tuple[float, ...]:
    rows = [each.row for each in some]
    predicted, measured = validation.predicted.step_time_s[rows], validation.measured_s[rows]
    low, high, nearest = (np.array([getattr(each, name) for each in some]) for name in ("low_s", "high_s", "nearest_s"))
    return (
        float(np.median([each.layouts for each in some])),
        float(np.median(low / predicted) - 1),
        float(np.median(high / predicted) - 1),
        float(np.mean([each.inside for each in some])),
        float(np.mean([each.inside_intervals for each in some])),
        float(np.abs(predicted / measured - 1).mean()),
        float(np.abs(nearest / measured - 1).mean()),
    )
