"""Counts what a sweep asks, before it is made: how many points, how many of them break which rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipesim.checks import Invalid
from pipesim.plan.asked.space import PART, Slice, Space, cut, total
from pipesim.report.document import Column, Document, Section, Table

PARTS = 8
"""Parts beyond which a sample answers for all."""

PIECE = 1_024
"""Combinations in a row of a sample; the pieces lie all over the spaces, the same each time."""

_OUTCOMES = {"ok": "fit", "infeasible": "do not fit", "invalid": "break rules", "failed": "failed"}

_GROUPS = "model|cluster|parallel|training|schedule|stack|costs"


@dataclass(slots=True, kw_only=True)
class Counts:
    """Of ``looked_at`` combinations out of ``combinations``: how many have which status, and break which rule.

    A point may break several rules.
    """

    combinations: int
    looked_at: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)


def count(spaces: Sequence[Space], evaluate: Callable[[list[Slice]], pa.Table]) -> Counts:
    """``evaluate`` gives the rows of slices, as the sweep itself would have them.

    Raises ``Invalid`` for demos and tasks, which have no points but a plan's.
    """
    for space in spaces[:1]:
        searched = (space.base["task"] or {}).get("plan") is not None
        if given := [key for key in ("demo", "task") if space.base[key] is not None and not searched]:
            raise Invalid([f"study.dry_run=true counts points, and a {given[0]} has none. Leave it out."])
    found = Counts(combinations=total(spaces))
    for part in _looked_at(spaces, found.combinations):
        rows = evaluate(part)
        found.looked_at += sum(each.stop - each.start for each in part)
        found.statuses.update(rows["status"].to_pylist())
        for each in pc.value_counts(rows.filter(pc.equal(rows["status"], "invalid"))["reason"]).to_pylist():
            for rule in rules(each["values"]):
                found.rules[rule] += each["counts"]
    return found


def rules(reason: str) -> list[str]:
    """The rules that a row's reason says are broken, without the values that break them.

    >>> rules("parallel.t=5 does not divide model.heads=112. Nearest: parallel.t=4 or 7.")
    ['parallel.t does not divide model.heads']
    """
    sentences = re.split(rf"(?<=\.) (?=(?:(?:{_GROUPS})\.\w+|num_microbatches)=)", reason)
    found = []
    for sentence in sentences:
        rule = re.split(r"[.:]? Nearest:", sentence)[0].removesuffix(".")
        rule = re.sub(r" num_microbatches is training\.global_batch.*", "", rule)
        rule = re.sub(r"=(?:\[[^\]]*\]|'[^']*'|[^\s,;:]+)", "", rule)
        rule = re.sub(r" = \d+", "", rule)
        found.append(re.sub(r"(?<![\w.])\d[\d,.e+]*(?![\w.])", "…", rule))
    return list(dict.fromkeys(found))


def document(counts: Counts) -> Document:
    asked = counts.statuses.total()
    whole = counts.looked_at == counts.combinations
    words = f"{counts.combinations:,} combinations" + (
        "" if whole else f"; a sample of {counts.looked_at:,} was looked at"
    )
    if left_out := counts.looked_at - asked:
        words += f"; conditions leave out {left_out:,} of " + ("them" if whole else "the sample")
    statuses = [(_OUTCOMES[status], counts.statuses[status]) for status in _OUTCOMES if counts.statuses[status]]
    blocks: list[str | Table] = [
        f"{words}. Nothing was written.",
        _table("Points" if whole else "Points of the sample", "outcome", [*statuses, ("all", asked)], asked),
    ]
    if counts.rules:
        ranked = sorted(counts.rules.items(), key=lambda item: (-item[1], item[0]))
        blocks.append(_table("What breaks rules; a point may break several", "rule", ranked, asked))
    return Document(
        title=f"Dry run: {asked if whole else counts.combinations:,} {'points' if whole else 'combinations'}",
        sections=(Section(title="What is asked", blocks=tuple(blocks)),),
    )


def _table(title: str, kind: str, rows: Sequence[tuple[str, int]], asked: int) -> Table:
    columns = (Column(title=kind), Column(title="points", kind="count"), Column(title="share", kind="percent"))
    return Table(title=title, columns=columns, rows=tuple((*row, row[1] / asked if asked else 0.0) for row in rows))


def _looked_at(spaces: Sequence[Space], combinations: int) -> Iterator[list[Slice]]:
    if combinations <= PARTS * PART:
        for start in range(0, combinations, PART):
            yield [*cut(spaces, start, start + PART)]
        return
    pieces = np.random.default_rng(0).choice(combinations // PIECE, PARTS * PART // PIECE, replace=False)
    for some in np.split(np.sort(pieces), PARTS):
        yield [each for piece in some.tolist() for each in cut(spaces, piece * PIECE, (piece + 1) * PIECE)]
