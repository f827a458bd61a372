"""The finished parts of a study that is being made: a parquet file each, beside it what it is and the hash of its bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipesim.results.folder import durable


class Made(NamedTuple):
    """A part that is safe on the disk. ``code`` is the version of what made it, ``counts`` are of its rows by status, or of
    what became of its points.
    """

    number: int
    asked: str
    code: str
    counts: Mapping[str, int]
    measured: Mapping[str, Any]


def keep(
    folder: Path,
    number: int,
    asked: str,
    code: str,
    table: pa.Table,
    log: str,
    measured: Mapping[str, Any],
    counts: Mapping[str, int] | None = None,
) -> Made:
    """Writes a part so that it is there whole or not at all. ``asked`` is a hash of what its rows answer; ``counts`` are
    given where the table keeps only some of what was counted.
    """
    files = _files(folder, number)
    if counts is None:
        counts = {each["values"]: each["counts"] for each in table["status"].value_counts().to_pylist()}
    counts = dict(sorted(counts.items()))
    repeated = [field.name for field in table.schema if field.type == pa.string() and field.name != "point_id"]
    durable(
        files.table,
        lambda fresh: pq.write_table(
            table, fresh, compression="lz4", use_dictionary=repeated, write_statistics=False, store_schema=False
        ),
    )
    if log:
        durable(files.log, lambda fresh: fresh.write_text(log, encoding="utf-8"))
    else:
        files.log.unlink(missing_ok=True)
    about = {
        "number": number, "asked": asked, "code": code, "counts": counts, "measured": dict(measured),
        "sha256": _hash(files.table),
    }  # fmt: skip
    durable(files.about, lambda fresh: fresh.write_text(json.dumps(about), encoding="utf-8"))
    return Made(number, asked, code, counts, measured)


def kept(folder: Path, number: int, asked: str) -> Made | None:
    """The part if it is there, answers ``asked`` and is undamaged."""
    files = _files(folder, number)
    try:
        about = json.loads(files.about.read_text(encoding="utf-8"))
        if (about["number"], about["asked"], about["sha256"]) != (number, asked, _hash(files.table)):
            return None
        return Made(number, asked, about["code"], about["counts"], about["measured"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read(folder: Path, number: int) -> tuple[pa.Table, str]:
    """The rows of a part that is kept, and what was logged while it was made."""
    files = _files(folder, number)
    log = files.log.read_text(encoding="utf-8") if files.log.exists() else ""
    return pq.read_table(files.table), log


def drop(folder: Path, number: int) -> None:
    """Makes it a part that is still to be made."""
    _files(folder, number).about.unlink()


class _Files(NamedTuple):
    table: Path
    log: Path
    about: Path


def _files(folder: Path, number: int) -> _Files:
    return _Files(*(folder / f"{number:09d}.{ending}" for ending in ("parquet", "log", "json")))


def _hash(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
