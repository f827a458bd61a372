"""The report of ``explain``: the verdict and what shows it, what could be gained, what if, micro-batches, and against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pipesim.plan.explain import Difference, Explained
from pipesim.plan.explain.micro_batches import Enough
from pipesim.report.document import Document, Section
from pipesim.report.formats import show
from pipesim.report.words import layout_name
from pipesim.results.schema import Row
from pipesim.tasks.explain import tables, words


class Other(NamedTuple):
    """A layout that the explained one is held against."""

    row: Row
    difference: Difference
    notes: tuple[str, ...]
    """What is set beside what was asked."""


def page(found: Explained, fewest: Mapping[str, Enough], share: float, other: Other | None) -> Document:
    row = found.row
    sections = [
        Section(title="Answer", blocks=(*words.verdict(found), tables.costs(found), tables.limits(found))),
        Section(
            title="What if",
            blocks=(*words.advice(found), tables.runs(found), *tables.bars(found), *tables.refused(found)),
        ),
        Section(title="Micro-batches", blocks=(*words.enough(row, fewest, share), tables.fewest(row, fewest, share))),
    ]
    if len(found.sizes) > 1:
        blocks = (words.best_size(found.sizes, found.room), tables.sizes(row, found.sizes), tables.curves(found.sizes))
        sections.append(Section(title="Size of a micro-batch", blocks=blocks))
    if other is not None:
        sections.insert(1, _against(row, other))
    gpus = f"{row['gpus']} GPU{'s' * (row['gpus'] > 1)} of {row['cluster']}"
    return Document(
        title=f"Why {layout_name(row)} takes {show(row['step_time_s'], 'seconds')} a step: {row['model']} on {gpus}",
        sections=tuple(sections),
    )


def _against(row: Row, other: Other) -> Section:
    difference, names = other.difference, (layout_name(row), layout_name(other.row))
    return Section(
        title=f"Against {names[1]}",
        blocks=(
            words.against(row, other.row, difference),
            *other.notes,
            tables.compared(row, other.row),
            tables.apart("seconds", difference, names),
            tables.apart("bytes", difference, names),
        ),
    )
