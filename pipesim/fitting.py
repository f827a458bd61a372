"""What the pages of layouts and sweeps say of fitting and of certainty, as plain data that follows from a study's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipesim import config as configs
from pipesim import legality
from pipesim.estimate.by_rank import held_by_rank
from pipesim.plan.asked.behind import config_behind
from pipesim.plan.explain.fit import fit
from pipesim.plan.search import stability

NEAREST = 3
"""Layouts of a sweep for which a way out is looked for."""

Row = Mapping[str, Any]
Plain = dict[str, Any]


def of_layout(row: Row, config: Mapping[str, Any]) -> tuple[Plain | None, list[dict[str, float]]]:
    """What would make it fit, None where it does; and the bytes of every rank by item, none where the config is not known."""
    config = config_behind(row, config) or {}
    if not config:
        return None, []
    return _way_out(config), held_by_rank(legality.resolve(configs.build(config)))


def of_sweep(order: Sequence[Row], first: Mapping[str, Any]) -> tuple[Plain | None, list[Plain]]:
    """How sure the order of the layouts that fit is, if there are some; else what would make the nearest fit."""
    fits = [row for row in order if row["fits"]]
    if fits:
        sure = stability.of(fits)
        return (None if sure is None else {**asdict(sure), "alike": sure.alike}), []
    nearest = sorted(order, key=lambda row: row["memory_bytes"] - row["memory_limit_bytes"])[:NEAREST]
    asked = [config for row in nearest if (config := config_behind(row, first)) is not None]
    return None, [found for config in asked if (found := _way_out(config)) is not None]


def _way_out(config: Mapping[str, Any]) -> Plain | None:
    found = fit(config)
    return None if found is None else asdict(found)
