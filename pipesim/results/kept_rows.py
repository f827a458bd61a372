"""The rows of a table that a report shows: of a small one all, of a large one the best and some of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipesim.results.folder import StudyFolderError
from pipesim.results.schema import SCHEMA, Row

MOST = 10_000
"""Rows that a report is made from."""
AT_ONCE = 131_072
"""Rows that are read together."""
MOST_REFUSED = 100
"""Of them, of a larger table, those that break rules or failed."""


class Kept:
    """Takes tables one by one, in bounded memory. ``counts`` are of all rows by status."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._first: list[pa.Table] = []
        self._best: pa.Table | None = None
        self._refused: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if sum(self.counts.values()) < MOST + 1:
            self._first.append(table.slice(0, MOST + 1))
        self.counts.update({str(each["values"]): each["counts"] for each in table["status"].value_counts().to_pylist()})
        priced = pc.is_in(table["status"], pa.array(["ok", "infeasible"]))
        self._best = _fastest([*([] if self._best is None else [self._best]), table.filter(priced)])
        room = MOST_REFUSED - sum(each.num_rows for each in self._refused)
        self._refused.append(table.filter(pc.invert(priced)).slice(0, max(0, room)))

    def rows(self) -> list[Row]:
        if sum(self.counts.values()) <= MOST:
            tables = self._first
        else:
            tables = [*([] if self._best is None else [self._best.slice(0, MOST - MOST_REFUSED)]), *self._refused]
        found: list[Row] = pa.concat_tables(tables).to_pylist() if tables else []
        return found


def of_table(path: Path) -> Kept:
    """What a study's table keeps, read in bounded memory. ``StudyFolderError`` if it is damaged or has other columns."""
    kept = Kept()
    try:
        with pq.ParquetFile(path) as table:
            if table.schema_arrow.names != SCHEMA.names:
                raise StudyFolderError(f"{path} has other columns than this version writes.")
            for batch in table.iter_batches(AT_ONCE):
                kept.add(pa.Table.from_batches([batch]).cast(SCHEMA))
    except (pa.ArrowException, OSError) as error:
        raise StudyFolderError(f"{path} cannot be read: {error}") from None
    return kept


def _fastest(tables: list[pa.Table]) -> pa.Table:
    """What fits by tokens/s, then the rest by memory; ties stay in the table's order."""
    table: Any = pa.concat_tables(tables)
    keys = pa.table(
        {
            "fits": table["fits"],
            "slowness": pc.if_else(table["fits"], pc.negate(table["tokens_per_s"]), table["memory_bytes"]),
            "at": pa.array(range(table.num_rows)),
        }
    )
    order = pc.sort_indices(keys, [("fits", "descending"), ("slowness", "ascending"), ("at", "ascending")])
    return table.take(order.slice(0, MOST))
