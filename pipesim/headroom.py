"""Head-room: the share of a GPU's memory that a recommended layout leaves free, one key and one question for all tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid

USUAL = 0.1
"""Published runs differ by about as much from what is counted, mostly less; of studies written before the key, too."""


def of(config: Mapping[str, Any]) -> float:
    """The config's ``headroom``. Raises ``Invalid`` for what is no share."""
    if found := problems(config):
        raise Invalid(found)
    return float(config.get("headroom", USUAL))


def problems(config: Mapping[str, Any]) -> list[str]:
    share = config.get("headroom", USUAL)
    if 0 <= share < 1:
        return []
    nearest = 0 if share < 0 else USUAL
    return [f"headroom={share} must be a share of memory from 0 to below 1. Nearest: {nearest}."]


def left(row: Mapping[str, Any], share: float) -> bool:
    """Whether a row fits and its heaviest rank leaves the share free."""
    most = (1 - share) * (row["memory_limit_bytes"] or math.nan)
    return bool(row["fits"]) and row["memory_bytes"] <= most
