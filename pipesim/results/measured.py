"""What really running points measured: a table beside the computed one, joined to it by ``point_id``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from pipesim.results.folder import StudyFolderError

PARQUET, CSV = "measured.parquet", "measured.csv"

COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "point_id": (pa.string(), "of the row in results.parquet"),
    "measured_makespan_s": (pa.float64(), "of one step, median over the repeats"),
    "measured_makespan_lo_s": (pa.float64(), "the fastest repeat"),
    "measured_makespan_hi_s": (pa.float64(), "the slowest repeat"),
    "measured_bubble_fraction": (pa.float64(), "idle / (p makespan) of the median repeat"),
    "simulated_makespan_s": (pa.float64(), "the same schedule simulated with the measured seconds of its actions"),
    "simulated_bubble_fraction": (pa.float64(), "idle / (p makespan) of that"),
    "core_share": (pa.float64(), "share of its computing for which the worst placed rank had a core"),
    "gradient_error": (pa.float64(), "largest difference from the uncut model's gradients, relative"),
    "agrees": (pa.bool_(), "gradients, weights and loss are the uncut model's within the precision's tolerance"),
}

SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])


def write(rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """Both files, one row for each point that ran, in the order of ``point_id``."""
    table = pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["point_id"])), SCHEMA)
    pq.write_table(table, folder / PARQUET, compression="zstd", store_schema=False)
    pa_csv.write_csv(table, folder / CSV)


def read(folder: Path) -> pa.Table | None:
    """What a study measured, if it did. ``StudyFolderError`` if the file is damaged or holds something else."""
    path = folder / PARQUET
    if not path.exists():
        return None
    try:
        found = pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StudyFolderError(f"{path} cannot be read: {str(error).splitlines()[0][:200].rstrip('.')}.") from None
    if not found.schema.equals(SCHEMA):
        raise StudyFolderError(f"{path} cannot be read: it has other columns than this pipesim measures.")
    return found
