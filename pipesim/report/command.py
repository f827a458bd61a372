"""The words that ask for one layout alone, as they are typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PARALLEL = ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")
TRAINING = ("recompute", "micro_batch")

_DROPPED = ("experiment=", "task.", "study.", "resume", "engine", "fail_fast", "lang=")


def changes(row: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """What of a plain config a row's layout changes, as overrides."""
    return [f"{key}={_typed(value)}" for key, value in _changed(row, config)]


def words(row: Mapping[str, Any], config: Mapping[str, Any], asked: Sequence[str]) -> list[str]:
    """The words of a whole command: those of a study of many layouts (``asked``) that still hold, and the changes."""
    changed = {key for key, _ in _changed(row, config)}
    kept = [word for word in asked if not word.startswith(_DROPPED) and word.partition("=")[0] not in changed]
    return [*kept, *changes(row, config)]


def _changed(row: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    name = config["schedule"]["name"]
    if row["schedule"] != name and (row["p"] > 1 or name not in ("1f1b", row["schedule"])):
        yield "schedule", row["schedule"]
    parallel = config["parallel"]
    derived = row["t"] * row["p"] * row["c"] * row["d"] == config["cluster"]["gpus"]
    meant = {**parallel, "d": row["d"] if parallel["d"] is None and derived else parallel["d"]}
    if parallel["v"] is None and row["v"] == 1:
        meant["v"] = 1
    for key in PARALLEL:
        if row[key] != meant[key]:
            yield f"parallel.{key}", row[key]
    for key in TRAINING:
        if row[key] != config["training"][key]:
            yield f"training.{key}", row[key]
    for setting in (row["settings"] or "").split():
        name, _, value = setting.partition("=")
        yield name, value


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
