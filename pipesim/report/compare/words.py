"""Words and numbers that the parts of a comparison share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipesim.report.document import Table

HOW_TO_READ = (
    "Layouts are joined on everything by which a study tells its layouts apart: the degrees, micro-batch, schedule, recipe and "
    "so on. What has one value in each study and another in the other is the difference that is looked at, and not joined on.",
    "Speed-up: tokens/s after over before; above 1 is faster. From and to are the least and the most that the two 90 % "
    "intervals allow, and where they overlap the two are not distinguishable. That is careful: what the model gets wrong in the "
    "same way for both cancels in their quotient. Of runs, the ends are the fastest and the slowest repeat.",
    "Moved most: the item of the step's seconds, or of the heaviest rank's bytes, that changed most in the direction of the whole.",
)


def speed_up_words(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """How much faster ``other`` is than ``one``, and the least and the most that their intervals allow."""
    if not one["step_s"] or not other["step_s"]:
        return None, None, None
    tokens = one["tokens_per_s"], other["tokens_per_s"]
    speed_up = tokens[1] / tokens[0] if all(tokens) else one["step_s"] / other["step_s"]
    if None in (one["lo_s"], one["hi_s"], other["lo_s"], other["hi_s"]):
        return speed_up, None, None
    low = speed_up * one["lo_s"] / one["step_s"] * other["step_s"] / other["hi_s"]
    high = speed_up * one["hi_s"] / one["step_s"] * other["step_s"] / other["lo_s"]
    return speed_up, low, high


def number(value: float | None) -> float:
    """NaN for what is missing."""
    return math.nan if value is None else value


def counted(count: int, one: str, many: str | None = None) -> str:
    """``1 layout``, ``2 layouts``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def used(table: Table) -> Table:
    """Without the columns that say nothing in any row."""
    keep = [k for k in range(len(table.columns)) if any(row[k] not in (None, "") for row in table.rows)]
    rows = tuple(tuple(row[k] for k in keep) for row in table.rows)
    return replace(table, columns=tuple(table.columns[k] for k in keep), rows=rows)
