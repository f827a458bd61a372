"""Several runs of one executed study: the median of each point over the runs, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pipesim.report.compare.joined import Study, records
from pipesim.report.document import Cell, Column, Section, Table
from pipesim.report.words import layout_name


def runs_section(studies: Sequence[Study]) -> tuple[Section, ...]:
    """Of points that at least two studies measured; nothing where there are none."""
    measured = [each for each in studies if "measured_makespan_s" in each.rows]
    if len(measured) < 2:
        return ()
    rows = pd.concat([each.rows.assign(study=each.name) for each in measured], ignore_index=True)
    rows = rows[rows["measured_makespan_s"].notna() & rows["point_id"].notna()]
    rows = rows[rows.groupby("point_id")["study"].transform("nunique") > 1]
    if not len(rows):
        return ()
    return (Section(title="Runs of the same", blocks=(_table(rows, [each.name for each in measured]),)),)


def _table(rows: pd.DataFrame, names: Sequence[str]) -> Table:
    told: list[tuple[Cell, ...]] = []
    for _, points in rows.groupby("point_id", sort=False):
        seconds = points["measured_makespan_s"].astype(float)
        median = float(seconds.median())
        by_study = {row["study"]: row["measured_makespan_s"] for row in records(points)}
        told.append(
            (
                f"{layout_name(records(points.head(1))[0])} m{records(points.head(1))[0]['num_microbatches']}", len(points),
                median, float(seconds.min()), float(seconds.max()), float(seconds.max() - seconds.min()) / median,
                *(by_study.get(name) for name in names),
            )
        )  # fmt: skip
    return Table(
        title="Measured steps, over the studies that ran them",
        columns=(
            Column(title="layout"), Column(title="runs", kind="count"), Column(title="median", kind="seconds"),
            Column(title="fastest", kind="seconds"), Column(title="slowest", kind="seconds"),
            Column(title="spread", kind="percent"),
            *(Column(title=name, kind="seconds") for name in names),
        ),
        rows=tuple(told),
        note="Each run counts with the median of its repeats. Spread: slowest less fastest, over the median.",
    )  # fmt: skip
