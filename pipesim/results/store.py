"""Reads and writes the table of a study: parquet for programs, CSV with the same content for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pipesim.results import schema
from pipesim.results.folder import StudyFolderError, sync
from pipesim.results.schema import SCHEMA, Row

PARQUET, CSV = "results.parquet", "results.csv"

ROW_GROUP = 131_072
MOST_CELLS = 2 * 10**9
"""A table with more, or of more uncompressed bytes than that many floats, is not read as a whole: ask for fewer columns."""

LONGEST_LINE = 2**24
"""Bytes of a row of the CSV."""

_CODED = [field.name for field in SCHEMA if field.type in (pa.string(), pa.int64()) and field.name != "point_id"]
_ENCODING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": _CODED,
    "write_statistics": False,
    "write_page_checksum": True,
    "store_schema": False,
}
"""Measured on rows of a grid, CPU µs and bytes a row: so 2.1 and 40; floats with dictionaries too 3.8 and 47; with
byte_stream_split 2.1 and 58; lz4 2.3 and 66; snappy 1.8 and 113; statistics would add 0.9 µs, checksums cost nothing."""

_CSV_SCHEMA = pa.schema(
    [pa.field(field.name, pa.string() if pa.types.is_list(field.type) else field.type) for field in SCHEMA]
)


class Writer:
    """Appends tables of ``results.schema`` to the files of a study, as a context manager; holds one table at a time.

    ``folder`` exists and has none of the files yet. Both are on the disk when the block ends, and neither is left if it
    raises. The same tables in the same order make the same bytes.
    """

    def __init__(self, folder: Path, csv: bool) -> None:
        self._folder = folder
        self._names = (PARQUET, CSV) if csv else (PARQUET,)
        self._open = ExitStack()

    def __enter__(self) -> Writer:
        with ExitStack() as opening:
            self._parquet = opening.enter_context(pq.ParquetWriter(self._folder / PARQUET, SCHEMA, **_ENCODING))
            self._parquet.add_key_value_metadata(SCHEMA.metadata)
            self._csv = None
            if CSV in self._names:
                options = pa.csv.WriteOptions(quoting_style="needed", quoting_header="none")
                self._csv = opening.enter_context(
                    pa.csv.CSVWriter(self._folder / CSV, _CSV_SCHEMA, write_options=options)
                )
            self._open = opening.pop_all()
        return self

    def add(self, table: pa.Table) -> None:
        assert table.schema.equals(SCHEMA), "a table of another schema"
        self._parquet.write_table(table, row_group_size=ROW_GROUP)
        if self._csv is not None:
            self._csv.write_table(_with_lists_as_text(table))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._open.close()
            if error is None:
                for path in (*(self._folder / name for name in self._names), self._folder):
                    sync(path)
        except BaseException as failed:
            error = failed
            raise
        finally:
            if error is not None:
                for name in self._names:
                    (self._folder / name).unlink(missing_ok=True)


def write(table: pa.Table, folder: Path) -> None:
    """Both files, from one table. Lists stand in the CSV as JSON, missing values as nothing, texts in quotes."""
    with Writer(folder, csv=True) as writer:
        writer.add(table)


def read(folder: Path) -> list[Row]:
    """The rows of a study. ``StudyFolderError`` as of ``read_table``."""
    rows: list[Row] = read_table(folder / PARQUET).to_pylist()
    return rows


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a parquet file in ``SCHEMA``, or some of its columns; those of older versions are upgraded.

    Raises ``StudyFolderError`` if the file is damaged, cut short, too large, no parquet, or of another schema.
    """
    with _explained(path):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            stored = file.schema_arrow
            known = [name for name in stored.names if columns is None or name in columns]
            _refuse_huge(file.metadata, len(known))
            found = file.read(columns=known)
        found.validate(full=True)
        ordered = known if columns is None else [name for name in columns if name in known]
        return schema.upgraded(found.select(ordered), columns)


def read_csv(folder: Path) -> pa.Table:
    """The table of a study from its CSV, equal to the one in its parquet file. ``StudyFolderError`` as of ``read_table``."""
    path = folder / CSV
    with _explained(path):
        text = pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(block_size=LONGEST_LINE),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=_CSV_SCHEMA, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
        columns = [
            _from_text(text[name], SCHEMA.field(name).type) for name in text.column_names if name in SCHEMA.names
        ]
        known = pa.table(columns, [name for name in text.column_names if name in SCHEMA.names])
        return schema.upgraded(known.replace_schema_metadata(SCHEMA.metadata))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever pyarrow says of a file that it cannot read, in a sentence with the file's name."""
    try:
        if path.exists() and not path.is_file():
            raise StudyFolderError(f"{path} cannot be read: it is no file.")
        yield
    except schema.WrongTable as error:
        raise StudyFolderError(f"{path} cannot be read: {error}") from None
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, RecursionError) as error:
        if isinstance(error, StudyFolderError):
            raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise StudyFolderError(f"{path} cannot be read: {reason[0][:200].rstrip('.')}.") from None


def _refuse_huge(about: pq.FileMetaData, columns: int) -> None:
    """What the file says of its size, before any of it is made room for."""
    cells = about.num_rows * columns
    # a chunk's own size is not asked for: where its kind is damaged, pyarrow ends the process instead of raising
    size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if cells > MOST_CELLS or size > 8 * MOST_CELLS:
        raise schema.WrongTable(
            f"{about.num_rows:,} rows of {columns} columns are {cells:,} cells and {size:,} bytes; "
            f"at most {MOST_CELLS:,} and {8 * MOST_CELLS:,} are read at once."
        )


def _with_lists_as_text(table: pa.Table) -> pa.Table:
    columns = [_to_text(column) if pa.types.is_list(column.type) else column for column in table.columns]
    return pa.table(columns, schema=_CSV_SCHEMA)


def _to_text(column: pa.ChunkedArray) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    return pa.array([None if each is None else json.dumps(each) for each in column.to_pylist()], pa.string())


def _from_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if not pa.types.is_list(kind):
        return column
    return pa.array([None if each is None else json.loads(each) for each in column.to_pylist()], kind)
