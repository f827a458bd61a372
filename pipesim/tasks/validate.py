"""Task: predictions for measured runs, the packaged ones or a table of one's own, and how far they are off."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipesim import config as configs
from pipesim.calibrate import peers, predictions, rows, summary
from pipesim.calibrate.rows import Catalog
from pipesim.calibrate.tables import TABLES, catalog, packaged
from pipesim.calibrate.validate import validate as validated
from pipesim.tasks import Done
from pipesim.tasks.validation_page import page

FIGURES = "figures.json"


def validate(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for a table that cannot be read; a row that cannot be predicted says why."""
    known, path = _catalog(config), config["measurements"]
    tables = (
        [(name, packaged(name, known)) for name in TABLES] if path is None else [("own", rows.read(Path(path), known))]
    )
    found = validated(tables)
    peer = peers.llm_analysis(found.measurements, [role != "own" for role in found.roles])
    files: dict[str, str | bytes] = {
        predictions.FILE: predictions.parquet(predictions.rows(found)),
        FIGURES: json.dumps(summary.figures(found), indent=1, sort_keys=True) + "\n",
    }
    return Done(document=page(found, peer, config["task"]["validate"]["worst"]), files=files)


def _catalog(config: Mapping[str, Any]) -> Catalog:
    """The libraries of conf/, with the stack and costs that were asked for in the place of those of their names."""
    known, stack = catalog(), configs.build_stack(config["stack"])
    return dataclasses.replace(
        known, stacks={**known.stacks, stack.name: stack}, costs=configs.build_costs(config["costs"])
    )
