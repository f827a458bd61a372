"""The report of a plan: which layout to run, the best of them, where the config's own stands, and what was searched."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipesim.plan.asked.behind import config_behind
from pipesim.plan.explain.fit import fit
from pipesim.plan.search import question, stability
from pipesim.plan.search.best import COUNTED, own_row
from pipesim.report import command, fit_tables, provenance
from pipesim.report.document import Document, Listing, Section
from pipesim.report.ranking import Row, pace
from pipesim.report.say import english
from pipesim.report.sweep import tables as sweep_tables
from pipesim.report.sweep.charts import trade_offs
from pipesim.report.words import definitions
from pipesim.tasks.plan.answer import answer, named, nearest_of, own_layout
from pipesim.tasks.plan.tables import counted, ranking, values_tried


def page(rows: Sequence[Row], manifest: Mapping[str, Any]) -> Document:
    """``rows`` are those that the search kept."""
    config, counts = manifest["config"], manifest["searched"]
    same = question.apart(question.ranked(config, rows))[: question.MOST_TOLD]
    ranked = [each[0] for each in same]
    best = ranked[: config["task"]["plan"]["best"]]
    sure = stability.of(ranked, pace=lambda row: 1 / row["tokens_per_s_per_gpu"]) if ranked else None
    own = own_row(config)
    sections = [
        Section(title="Answer", blocks=(*answer(config, ranked, rows, sure), *own_layout(config, best, own, counts)))
    ]
    if (way_out := None if best else _way_out(config, rows)) is not None:
        blocks = (fit_tables.way_out(way_out, english), fit_tables.ways_out([way_out], named, english))
        sections.append(Section(title="What would make the nearest fit", blocks=blocks))
    if best:
        sections += [
            Section(
                title="The best that fit", blocks=(ranking(config, same[: len(best)], sure), _commands(manifest, best))
            ),
            Section(
                title="Where the step's seconds go", blocks=(sweep_tables.shares(best, named, english),), aside=True
            ),
            Section(
                title="Against each other",
                blocks=tuple(trade_offs([*ranked], pace(ranked, english), named, english, "")),
                aside=True,
            ),
        ]
    sections += [
        Section(title="What was searched", blocks=(counted(config, counts), values_tried(config, manifest))),
        *provenance.behind(manifest, rows, english),
        Section(
            title="How to read this",
            blocks=(
                *definitions(sorted({row["flop_convention"] for row in best} or {"palm"})),
                provenance.provenance(manifest),
            ),
            aside=True,
        ),
        provenance.details(manifest, english),
    ]
    points = sum(n for name, n in counts.items() if name != COUNTED.FASTER)
    name, cluster = config["model"]["name"], config["cluster"]["name"]
    gpus = " or ".join(f"{count:,}" for count in question.gpu_counts(config))
    return Document(
        title=f"A plan for {name} on {gpus} GPUs of {cluster}: {points:,} layouts", sections=tuple(sections)
    )


def _way_out(config: Mapping[str, Any], rows: Sequence[Row]) -> Mapping[str, Any] | None:
    """What would make the nearest layout fit, all of its memory used; None where it does."""
    nearest = nearest_of(rows)
    asked = None if nearest is None else config_behind(nearest, config)
    found = None if asked is None else fit(asked)
    return None if found is None else asdict(found)


def _commands(manifest: Mapping[str, Any], best: Sequence[Row]) -> Listing:
    """What to type for each of them."""
    asked = [command.words(row, manifest["config"], manifest["overrides"]) for row in best]
    own = manifest.get("own_configs", [])
    lines = [shlex.join(["python", "experiments/run.py", *own, *words]) for words in asked]
    return Listing(
        title="To run one of them", text="".join(f"# {place}\n{line}\n" for place, line in enumerate(lines, 1))
    )
