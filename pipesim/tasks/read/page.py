"""The report of arguments that were read: the answer, how to go on, and every setting that was not taken."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipesim import headroom
from pipesim.costs.parameters import total_parameters
from pipesim.launch.rows import Read
from pipesim.launch.values import values_of
from pipesim.plan import grid
from pipesim.plan.explain import fit
from pipesim.report import fit_tables
from pipesim.report.document import Block, Column, Document, Listing, Observations, Section, Table
from pipesim.report.formats import show, with_runs
from pipesim.report.layout import tables as layout_tables
from pipesim.report.layout.page import answer
from pipesim.report.say import speaker
from pipesim.report.words import layout_name
from pipesim.specs import ParallelLayout, Point, Training
from pipesim.tasks.read.words import choice

USUAL = {
    f"{group}.{field.name}": field.default for group, kind in (("parallel", ParallelLayout), ("training", Training))
    for field in dataclasses.fields(kind)
}  # fmt: skip
"""Values that are not told of."""


def page(
    file: str,
    point: Point,
    conf: Mapping[str, Any],
    found: Read,
    told: Sequence[str],
    again: Sequence[str],
    length: str,
) -> Document:
    """``told`` are the groups of configs that the file speaks of, ``again`` the words that ask for ``conf``."""
    size = show(total_parameters(point.model), "parameters")
    use = f"python experiments/run.py --config-dir STUDY/conf {shlex.join(again)}"
    taken: tuple[Block, ...] = (
        "What was read lies in conf/ of this study. The command below asks for it again, STUDY being this folder; what the "
        "file does not say can be changed behind it.",
        Listing(title="The same again", text=use),
        _taken(point, told),
    )
    aside = Section(
        title="What was not taken from the file",
        blocks=tuple(_claims(found, point, conf, told)) or ("Everything was.",),
    )
    answered = tuple(_answer(conf, found, length))
    return Document(
        title=f"{file}: {size} parameters",
        sections=(
            Section(title="Answer", blocks=answered), Section(title="What was read", blocks=taken), aside,
        ),
    )  # fmt: skip


def _answer(conf: Mapping[str, Any], found: Read, length: str) -> Iterator[Block]:
    """The estimate of what was read with the ways out where it does not fit, or why there is none."""
    (row,) = grid.rows([conf])
    where = f"On {conf['cluster']['name']} with the constants of stack={conf['stack']['name']}"
    if row["status"] not in ("ok", "infeasible"):
        yield f"{where} it cannot be priced: {row['reason']}"
        return
    say = speaker("en")
    yield f"{where}: {answer(row, say, headroom.of(conf))}"
    yield from [length] * bool(length)
    yield from _without_dropout(conf, found) if row["status"] == "infeasible" else ()
    yield layout_tables.held(row, say)
    yield layout_tables.seconds(row, say)
    if (out := fit.fit(conf)) is not None:
        yield fit_tables.way_out(asdict(out), say)
        yield fit_tables.ways_out([asdict(out)], layout_name, say)


def _without_dropout(conf: Mapping[str, Any], found: Read) -> Iterator[str]:
    """What the masks weigh, of dropout that the file does not ask for."""
    if any(claim.startswith("training.dropout=true") for claim in found.assumed):
        (row,) = fit.evaluated(conf, [{"training.dropout": False}])
        held, fits = show(row["memory_bytes"], "bytes"), "fits" if row["status"] == "ok" else "does not fit either"
        yield (
            "Dropout's masks are part of it, for its framework drops out unless told not to: with training.dropout=false rank "
            f"{row['heaviest_rank']} needs {held}, which {fits}."
        )


def _taken(point: Point, told: Sequence[str]) -> Table:
    rows = tuple(
        (key, _shown(value)) for key, value in values_of(point).items()
        if key.split(".")[0] in told and value is not None and value != USUAL.get(key)
    )  # fmt: skip
    return Table(title="Settings", columns=(Column(title="key"), Column(title="value")), rows=rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = with_runs(str(list(value)) if isinstance(value, tuple) else str(value))
    return text if len(text) <= 100 else text[:99] + "…"


def _claims(found: Read, point: Point, conf: Mapping[str, Any], told: Sequence[str]) -> Iterator[Observations]:
    values = values_of(point)
    groups = [group for group in ("parallel", "training", "schedule", "cluster", "stack")
              if group not in told and not (group == "schedule" and "parallel" in told)
              and not (group == "stack" and found.framework)]  # fmt: skip
    beside = ", ".join(shlex.join(choice(conf, group)) for group in groups)
    untold = [f"{key}={_shown(values[key])} is as the config has it." for key in found.untold if key in values]
    for title, claims in (
        ("Not understood", found.unknown),
        (
            "Assumed",
            [
                *found.assumed,
                *untold,
                f"{beside}: the file says nothing of these, so as the command or experiment=read has them.",
            ],
        ),
        ("What the stack's constants stand for", [", ".join(found.by_stack)] if found.by_stack else []),
        ("Ignored on purpose: no matter of the layout", [", ".join(found.ignored)] if found.ignored else []),
    ):
        if claims:
            yield Observations(title=title, claims=tuple(claims))
