"""The plain config behind a row of a study: from the row's columns and the first point's config, proved by the row's id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from pipesim import config as configs
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Config, with_values
from pipesim.point_id import ASKED, leaves, point_id
from pipesim.schedules import canonical_name

COLUMNS = {
    **{name: f"parallel.{name}" for name in ("t", "p", "c", "e", "zero", "sequence_parallel")},
    **{name: f"training.{name}" for name in ("recompute", "precision", "attention", "micro_batch", "global_batch")},
}
DERIVED = {"d": "parallel.d", "v": "parallel.v", "seq_length": "training.seq_length"}
"""Columns that say what null stood for."""


def config_behind(row: Mapping[str, Any], first: Config) -> Config | None:
    """The config with which the row was asked; None where the table does not tell (another model's file, another version)."""
    if not set(ASKED) <= first.keys():
        return None
    changes = {key: row[name] for name, key in COLUMNS.items()}
    known = dict(leaves({key: first[key] for key in ASKED}))
    told = {key: value for key, value in _told(row["settings"]) if key in known}
    if canonical_name(first["schedule"]["name"]) != row["schedule"]:
        changes["schedule.name"] = row["schedule"]
    for derived in product(*((None, row[column]) for column in DERIVED)):
        config = with_values(first, {**changes, **dict(zip(DERIVED.values(), derived, strict=True)), **told})
        if point_id(config) == row["point_id"]:
            return config if _is_of_this_version(config) else None
    return None


def _is_of_this_version(config: Config) -> bool:
    """Studies of older versions lack keys."""
    try:
        configs.build(config)
    except (Invalid, LookupError, TypeError, AttributeError):
        return False
    return True


def _told(settings: str | None) -> Iterator[tuple[str, Any]]:
    """Keys and values of a row's settings, read as they are spelt."""
    for word in (settings or "").split(" "):
        key, _, text = word.partition("=")
        yield key, _read(text)


def _read(text: str) -> Any:
    words = {"None": None, "True": True, "False": False}
    try:
        return words[text] if text in words else json.loads(text)
    except ValueError:
        return text
