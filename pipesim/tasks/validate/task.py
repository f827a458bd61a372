"""Task: predictions for measured runs, the packaged ones or a table of one's own, and how far they are off."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim import config as configs
from pipesim.calibrate import bands, peers, predictions, rows, summary
from pipesim.calibrate.rows import Catalog, Measurement
from pipesim.calibrate.tables import TABLES, catalog, packaged
from pipesim.calibrate.validate import Validation
from pipesim.calibrate.validate import validate as validated
from pipesim.checks import Invalid
from pipesim.tasks import Done
from pipesim.tasks.validate.page import page

FIGURES = "figures.json"
MOST_REASONS, MOST_NAMED = 10, 5
"""How many reasons a refused table is told, and how many rows of each by name."""


def validate(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for a table that cannot be read or has no usable row; else each row that is not predicted says why."""
    known, path = _catalog(config), config["measurements"]
    tables = (
        [(name, packaged(name, known)) for name in TABLES] if path is None else [("own", rows.read(Path(path), known))]
    )
    found = validated(tables)
    if path is not None:
        _refuse_useless(Path(path), found)
    peer = peers.llm_analysis(found.measurements, [role != "own" for role in found.roles])
    figures, scanned = summary.figures(found), bands.bands(found, known)
    files: dict[str, str | bytes] = {
        predictions.FILE: predictions.parquet(predictions.rows(found, scanned)),
        FIGURES: json.dumps(figures, indent=1, sort_keys=True) + "\n",
    }
    return Done(document=page(found, peer, scanned, figures, config["task"]["validate"]["worst"]), files=files)


def _refuse_useless(path: Path, validation: Validation) -> None:
    """Raises ``Invalid`` if no row can be predicted and says what its run measured, with every reason, counted."""
    rows: dict[str, list[str]] = {}
    for each, problem in zip(validation.measurements, validation.problems, strict=True):
        reason = problem or _nothing_measured(each)
        if not reason:
            return
        rows.setdefault(reason, []).append(each.id or "without id")
    ordered = sorted(rows.items(), key=lambda item: -len(item[1]))
    reasons = [f"{len(ids)} x {reason}: {_some(ids)}" for reason, ids in ordered[:MOST_REASONS]]
    more = sum(len(ids) for _, ids in ordered[MOST_REASONS:])
    others = [f"{more} rows for {len(ordered) - MOST_REASONS} other reasons"] if more else []
    raise Invalid([f"measurements={path}: none of {_rows(validation)} can be used.", *reasons, *others])


def _nothing_measured(measurement: Measurement) -> str:
    """Why a row that can be predicted has nothing to be compared with; empty where it has."""
    told = measurement.step_time_s is not None or measurement.memory_bytes is not None or "OOM" in measurement.outcome
    return "" if told else "neither measured_step_time_s nor derived_step_time_s nor mem_gb_per_gpu is a number above 0"


def _rows(validation: Validation) -> str:
    count = len(validation.measurements)
    return "the table's one row" if count == 1 else f"{count} rows"


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:MOST_NAMED])
    return shown if len(ids) <= MOST_NAMED else f"{shown}, …"


def _catalog(config: Mapping[str, Any]) -> Catalog:
    """The libraries of conf/, with the stack and costs that were asked for in the place of those of their names."""
    known, stack = catalog(), configs.build_stack(config["stack"])
    return dataclasses.replace(
        known, stacks={**known.stacks, stack.name: stack}, costs=configs.build_costs(config["costs"])
    )
