"""The report of arguments that were read: the answer, how to go on, and every setting that was not taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.costs.parameters import total_parameters
from pipesim.launch.rows import Read
from pipesim.launch.values import values_of
from pipesim.plan import grid
from pipesim.report import layout_tables
from pipesim.report.document import Block, Column, Document, Observations, Section, Table
from pipesim.report.formats import show
from pipesim.report.layout_page import answer
from pipesim.report.say import speaker
from pipesim.specs import ParallelLayout, Point, Training

USUAL = {
    f"{group}.{field.name}": field.default for group, kind in (("parallel", ParallelLayout), ("training", Training))
    for field in dataclasses.fields(kind)
}  # fmt: skip
"""Values that are not told of."""


def page(
    name: str, file: str, form: str, point: Point, conf: Mapping[str, Any], found: Read, told: Sequence[str]
) -> Document:
    """``told`` are the groups of configs that the file speaks of."""
    size = show(total_parameters(point.model), "parameters")
    use = (
        f"What was read lies in conf/ of this study. Use it with --config-dir STUDY/conf {_words(name, conf, told)} behind "
        "experiments/run.py, STUDY being this folder."
    )
    taken = Section(title="What was read", blocks=(use, _taken(point, told)))
    aside = Section(
        title="What was not taken from the file", blocks=tuple(_claims(found, point)) or ("Everything was.",)
    )
    return Document(
        title=f"{file} ({form}): {size} parameters",
        sections=(Section(title="Answer", blocks=_answer(conf)), taken, aside),
    )


def _answer(conf: Mapping[str, Any]) -> tuple[Block, ...]:
    """The estimate of what was read, or why there is none."""
    (row,) = grid.rows([conf])
    where = f"On {conf['cluster']['name']} with the constants of stack={conf['stack']['name']}"
    if row["status"] not in ("ok", "infeasible"):
        return (f"{where} it cannot be priced: {row['reason']}",)
    say = speaker("en")
    return (f"{where}: {answer(row, say)}", layout_tables.held(row, say), layout_tables.seconds(row, say))


def _words(name: str, conf: Mapping[str, Any], told: Sequence[str]) -> str:
    """The command line that asks for the same."""
    words = [f"{group}={name}" for group in told]
    if "parallel" in told:
        schedule = {key: value for key, value in conf["schedule"].items() if value is not None}
        words += [f"schedule={schedule.pop('name')}", *(f"schedule.{key}={value}" for key, value in schedule.items())]
    words += [
        f"cluster={conf['cluster']['name']}",
        f"cluster.gpus={conf['cluster']['gpus']}",
        f"stack={conf['stack']['name']}",
    ]
    return " ".join(words)


def _taken(point: Point, told: Sequence[str]) -> Table:
    rows = tuple(
        (key, _shown(value)) for key, value in values_of(point).items()
        if key.split(".")[0] in told and value is not None and value != USUAL.get(key)
    )  # fmt: skip
    return Table(title="Settings", columns=(Column(title="key"), Column(title="value")), rows=rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 100 else text[:99] + "…"


def _claims(found: Read, point: Point) -> Iterator[Observations]:
    values = values_of(point)
    untold = [f"{key}={_shown(values[key])} is as the config has it." for key in found.untold if key in values]
    for title, claims in (
        ("Not understood", found.unknown),
        ("Assumed", [*found.assumed, *untold]),
        ("What the stack's constants stand for", [", ".join(found.by_stack)] if found.by_stack else []),
        ("Ignored on purpose: no matter of the layout", [", ".join(found.ignored)] if found.ignored else []),
    ):
        if claims:
            yield Observations(title=title, claims=tuple(claims))
