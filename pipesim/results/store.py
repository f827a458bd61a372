"""Reads and writes the table of a study: parquet for programs, CSV with the same content for people."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipesim.results.folder import StudyFolderError
from pipesim.results.schema import COLUMNS, SCHEMA, Row

PARQUET, CSV = "results.parquet", "results.csv"


def write(table: pa.Table, folder: Path) -> None:
    """Both files, from one table. Lists stand in the CSV as JSON, missing values as nothing."""
    pq.write_table(table, folder / PARQUET, compression="zstd", store_schema=False)
    (folder / CSV).write_text(to_csv(table), encoding="utf-8", newline="")


def read(folder: Path) -> list[Row]:
    """The rows of a study. ``StudyFolderError`` if the parquet file is damaged or has another schema."""
    try:
        table = pq.read_table(folder / PARQUET)
    except (pa.ArrowException, OSError) as error:
        raise StudyFolderError(f"{folder / PARQUET} cannot be read: {error}") from None
    if table.schema.names != SCHEMA.names:
        odd = sorted(set(table.schema.names) ^ set(SCHEMA.names))
        raise StudyFolderError(
            f"{folder / PARQUET} has other columns than this version writes: {', '.join(odd) or 'their order'}."
        )
    rows: list[Row] = table.cast(SCHEMA).to_pylist()
    return rows


def to_csv(table: pa.Table) -> str:
    rows = table.to_pylist()
    return _line(COLUMNS) + "".join(_line(_cell(value) for value in row.values()) for row in rows)


def _line(cells: Iterable[Any]) -> str:
    """Written with CR LF, so that a cell with either is quoted, and ended with LF alone."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    """Floats in their shortest exact form, so that reading them back gives the same bits."""
    if isinstance(value, list):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else value
