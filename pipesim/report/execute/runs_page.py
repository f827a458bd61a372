"""The report of schedules that really ran, one after another: what each took, beside its simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim.report.document import Column, Document, Section, Table
from pipesim.report.provenance import provenance

Row = Mapping[str, Any]

_ASKED = ("schedule", "t", "p", "d", "micro_batch", "num_microbatches")


def runs_page(rows: Sequence[Row], measured: Mapping[str, Row], counts: Mapping[str, int], about: Row) -> Document:
    """``measured`` are the measured columns by ``point_id``."""
    ran = sorted(
        (row for row in rows if row["point_id"] in measured),
        key=lambda row: float(measured[row["point_id"]]["measured_makespan_s"]),
    )
    refused = [row for row in rows if row["point_id"] not in measured]
    points = sum(counts.values())
    outcome = ", ".join(f"{counts[status]:,} {status}" for status in sorted(counts))
    sections = [Section(title="Answer", blocks=(f"{points:,} points were asked to run: {outcome}.",))]
    if ran:
        sections.append(Section(title="Measured", blocks=(_table(ran, measured),)))
    if refused:
        reasons = tuple((_named(row), row["reason"]) for row in refused)
        columns = (Column(title="point"), Column(title="reason"))
        sections.append(
            Section(title="What did not run", blocks=(Table(title="Reasons", columns=columns, rows=reasons),))
        )
    sections.append(Section(title="How to read this", blocks=(provenance(about),)))
    return Document(title=f"{points:,} schedules that really ran", sections=tuple(sections))


def _table(ran: Sequence[Row], measured: Mapping[str, Row]) -> Table:
    figures = (
        ("step", "measured_makespan_s", "seconds"), ("fastest", "measured_makespan_lo_s", "seconds"),
        ("slowest", "measured_makespan_hi_s", "seconds"), ("bubble (idle/total)", "measured_bubble_fraction", "percent"),
        ("simulated", "simulated_makespan_s", "seconds"), ("its bubble", "simulated_bubble_fraction", "percent"),
        ("had a core", "core_share", "percent"), ("agrees", "agrees", "flag"),
    )  # fmt: skip
    titles = [Column(title=name.replace("_", "-"), kind="text" if name == "schedule" else "count") for name in _ASKED]
    return Table(
        title="Fastest first, by the median step",
        columns=(*titles, *(Column(title=title, kind=kind) for title, _, kind in figures)),  # type: ignore[arg-type]
        rows=tuple(
            (*(row[name] for name in _ASKED), *(measured[row["point_id"]][name] for _, name, _ in figures))
            for row in ran
        ),
        note=(
            "Simulated: with the measured seconds of its own actions. Agrees: gradients, weights and loss are those of the "
            "uncut model. Steps of points that ran at the same time on the same cores say little."
        ),
    )


def _named(row: Row) -> str:
    return f"{row['schedule']} t{row['t']} p{row['p']} d{row['d']} b{row['micro_batch']}"
