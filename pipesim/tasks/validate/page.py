"""The report of a validation: how far predictions are off, for whom, and whether one can choose by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipesim.calibrate import after_runs, classes, intervals, summary
from pipesim.calibrate.bands import Band
from pipesim.calibrate.peers import Peer
from pipesim.calibrate.scores import Mask
from pipesim.calibrate.summary import OURS, Subset
from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray
from pipesim.report.document import Axis, Block, Chart, Document, Mark, Observations, Section
from pipesim.report.formats import show
from pipesim.report.words import definitions
from pipesim.tasks.validate import goal_tables, tables
from pipesim.tasks.validate.worst import worst

MARKS = 100
"""Of each source in a chart, evenly spaced in the order of its table."""

CONVENTIONS = (
    "Sources count FLOPs in different ways: with those of full recomputation (Megatron 2020-21, BigScience), model FLOPs "
    "with full s x s attention (NeMo, DGX Cloud, llm-foundry), 6 N with the input embedding and 12 L h s (torchtitan, Aleph "
    "Alpha, nanotron). Step times are compared here, never printed MFU.",
)


def page(
    validation: Validation,
    peer: Peer,
    bands: Sequence[Band],
    figures: Mapping[str, Mapping[str, float]],
    worst_rows: int,
) -> Document:
    """Everything that the tables can tell; the same rows give the same document. ``figures`` are ``summary.figures``."""
    rivals = summary.rivals(validation, peer.step_time_s)
    subsets = summary.subsets(validation, validation.timed)
    scored = {each.name: summary.compared(validation, each.rows, rivals) for each in subsets}
    roles, scored_memory = dict.fromkeys(validation.roles), summary.scored_memory(validation)
    sections = [
        Section(title="What was compared", blocks=tuple(_introduction(validation, subsets, scored))),
        _section("Goals", *goal_tables.goals_of(validation, figures)),
        Section(
            title="Step time",
            blocks=(
                tables.by_source(subsets, scored),
                *_chart(validation, subsets),
                peer.note,
                tables.beside_others(subsets, scored),
            ),
        ),
        _section("With runs of one's own", *_own_runs(validation, subsets)),
        _section("Choosing a layout", tables.layout_choice(subsets, scored)),
        _section("For whom", *(tables.by_class(validation, role) for role in roles)),
        _section("The worst", *(worst(validation, role, worst_rows) for role in roles)),
        _section(
            "Memory",
            tables.memory(validation, scored_memory),
            *_memory_chart(validation),
            tables.out_of_memory(validation),
        ),
        _section(
            "Set apart",
            tables.special(validation),
            goal_tables.inferred(validation, bands),
            tables.memory(validation, summary.has_memory(validation) & ~scored_memory, "Their memory"),
            tables.not_predicted(validation),
        ),
        _section("Intervals", tables.coverage(validation), tables.terms(intervals.packaged())),
        Section(title="Definitions", blocks=(*definitions(), *CONVENTIONS)),
    ]
    title = f"Validation against {len(validation.measurements):,} measured runs"
    return Document(title=title, sections=tuple(each for each in sections if each.blocks))


def _section(title: str, *blocks: Block | None) -> Section:
    return Section(title=title, blocks=tuple(block for block in blocks if block is not None))


def _own_runs(validation: Validation, subsets: list[Subset]) -> Iterator[Block | None]:
    if subsets:
        yield goal_tables.after_own_runs(validation, subsets)
    yield goal_tables.by_release(after_runs.releases(validation))


def _introduction(validation: Validation, subsets: list[Subset], scored: tables.Scores) -> Iterator[Block]:
    known, timed = int(validation.known.sum()), int(validation.timed.sum())
    yield (
        f"{len(validation.measurements):,} rows, {known:,} of them predicted. The step times of {timed:,} are scored: those that "
        "state everything needed or leave precision and recomputation alone to be inferred, dense, 16 bits, without "
        "offloading. The others are predicted too and set apart."
    )
    if "dev" in validation.roles:
        yield (
            "Constants are fitted to the calibration table alone. The dev table was looked at while formulas were corrected, so "
            "its figures are a little flattered."
        )
    if any(each.name.endswith(", kept") for each in subsets):
        yield classes.STALL_RULE
    claims = [f"{each.name} ({each.role}): {_claim(scored[each.name][OURS])}" for each in subsets]
    if claims:
        yield Observations(title="In one line each", claims=tuple(claims))


def _claim(score: summary.Score) -> str:
    plain, scaled = (show(each.mean, "percent") for each in (score.plain, score.scaled))
    text = f"step times are off by {plain} on average, {scaled} after one factor"
    if score.regret.groups:
        text += f"; the layout chosen by prediction is {show(score.regret.mean, 'percent')} slower than the best"
    return f"{text} ({score.plain.rows:,} row{'s' * (score.plain.rows > 1)})."


def _chart(validation: Validation, subsets: list[Subset]) -> list[Chart]:
    measured, predicted = validation.measured_s, validation.predicted.step_time_s
    ratio = predicted / measured - 1
    kept = [each for each in subsets if not each.name.endswith(", kept")]
    caption = f"At most {MARKS} rows of each source, evenly spaced."
    return _charts(
        Chart(
            slug="step_time", title="Step time: predicted against measured", caption=f"{caption} On the diagonal both agree.",
            x=Axis(title="measured", kind="seconds", log=True), y=Axis(title="predicted", kind="seconds", log=True),
            marks=_marks(validation, kept, measured, predicted),
        ),
        Chart(
            slug="step_time_error", title="Step time: error against measured", caption=caption,
            x=Axis(title="measured", kind="seconds", log=True), y=Axis(title="predicted / measured - 1", kind="percent"),
            marks=_marks(validation, kept, measured, ratio),
        ),
    )  # fmt: skip


def _memory_chart(validation: Validation) -> list[Chart]:
    subsets = [
        each
        for each in summary.subsets(validation, summary.scored_memory(validation))
        if not each.name.endswith(", kept")
    ]
    return _charts(
        Chart(
            slug="memory", title="Memory of the heaviest rank: predicted against measured",
            caption=f"At most {MARKS} rows of each source, evenly spaced.",
            x=Axis(title="measured", kind="bytes"), y=Axis(title="predicted", kind="bytes"),
            marks=_marks(validation, subsets, validation.measured_bytes, validation.predicted.memory_bytes),
        )
    )  # fmt: skip


def _charts(*charts: Chart) -> list[Chart]:
    return [chart for chart in charts if chart.marks]


def _marks(validation: Validation, subsets: list[Subset], x: FloatArray, y: FloatArray) -> tuple[Mark, ...]:
    return tuple(
        Mark(x=float(x[i]), y=float(y[i]), label=validation.measurements[i].id, group=each.name)
        for each in subsets
        for i in _spaced(each.rows)
    )


def _spaced(rows: Mask) -> list[int]:
    index = np.flatnonzero(rows).tolist()
    return index[:: max(1, -(-len(index) // MARKS))]
