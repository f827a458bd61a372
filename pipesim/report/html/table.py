"""A table inside a page: the rows that stand in it as text, and all of them as columns of raw values for its script."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pipesim.report.document import Cell, Column, Kind, Table
from pipesim.report.formats import clean, human_scale

WHOLE_ROWS = 300
"""Tables of up to so many rows stand in the page as a whole."""
PAGE_ROWS = 100
"""Rows of a larger one that are shown at once."""

_SI_UNITS: dict[Kind, str] = {
    "bytes": "bytes", "seconds": "s", "percent": "fraction", "tflops": "FLOP/s", "parameters": "parameters",
}  # fmt: skip

_encode = json.JSONEncoder(separators=(",", ":")).encode


def rows_at_once(table: Table) -> int:
    return len(table.rows) if len(table.rows) <= WHOLE_ROWS else PAGE_ROWS


def file_name(table: Table) -> str:
    words = re.sub(r"[^\w.-]+", "-", clean(table.slug or table.title)).strip("-.")
    return f"{words[:60] or 'table'}.csv"


def columns_json(table: Table) -> str:
    """``{heads, columns, emphasis, file}``: raw values in SI units, missing and not a number as null, infinite as 1e999.

    A head has the unit of the raw values, whether all of them are whole numbers, and the unit in which a filter without
    one is meant: that of the largest value as a person reads it.
    """
    values = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    heads = [_head(column, cells) for column, cells in zip(table.columns, values, strict=True)]
    about = json.dumps({"heads": heads, "emphasis": sorted(table.emphasis), "file": file_name(table)})
    columns = ",".join(f"[{','.join(map(_json, cells))}]" for cells in values)
    return f'{about[:-1]}, "columns": [{columns}]}}'


def _head(column: Column, cells: tuple[Cell, ...]) -> dict[str, Any]:
    numbers = [each for each in cells if isinstance(each, int | float) and not isinstance(each, bool)]
    size, sign = human_scale(column.kind, max((abs(each) for each in numbers if math.isfinite(each)), default=0.0))
    return {
        "title": clean(column.title),
        "kind": column.kind,
        "unit": _SI_UNITS.get(column.kind, ""),
        "whole": all(isinstance(each, int) for each in numbers),
        "size": size,
        "sign": sign,
    }


def _json(value: Cell) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "null" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    if isinstance(value, float):
        return repr(value)
    return _encode(clean(value) if isinstance(value, str) else value)
