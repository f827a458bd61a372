"""A point as flat values under its config keys, and back: what the tables of flags are about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipesim.specs import Mla, ModelSpec, Moe, ParallelLayout, Point, Training

Values = dict[str, Any]
"""``model.layers``, ``model.moe.experts``, ``parallel.t``, ``training.micro_batch``, ``schedule.name`` and so on -> value."""

UNASKED = ("model.name", "model.source")
GROUPS: dict[str, tuple[str, type[Any]]] = {
    "model": ("model", ModelSpec), "parallel": ("layout", ParallelLayout), "training": ("training", Training),
}  # fmt: skip


def values_of(point: Point) -> Values:
    """Everything that frameworks have flags for. Of a model without experts or latents their keys are missing."""
    found: Values = {}
    for group, (part, _) in GROUPS.items():
        for key, value in dataclasses.asdict(getattr(point, part)).items():
            if isinstance(value, dict):
                found |= {f"{group}.{key}.{name}": each for name, each in value.items()}
            elif key not in ("mla", "moe") and f"{group}.{key}" not in UNASKED:
                found[f"{group}.{key}"] = value
    found["training.seq_length"] = point.training.seq_length or point.model.context
    found["schedule.name"] = point.schedule if point.layout.p > 1 else "1f1b"
    return found | {f"schedule.{key}": value for key, value in point.options}


def point_of(values: Mapping[str, Any], like: Point) -> Point:
    """``like`` with the values in place of its own: a whole model where one is told. Raises ``Invalid`` by config key."""
    parts: dict[str, Any] = {}
    for group, (part, kind) in GROUPS.items():
        told = {key.removeprefix(f"{group}."): value for key, value in values.items() if key.startswith(f"{group}.")}
        flat = {key: value for key, value in told.items() if "." not in key}
        if group == "model" and flat:
            flat |= {"mla": _nested(told, "mla", Mla), "moe": _nested(told, "moe", Moe)}
            flat = {"name": like.model.name, "source": ""} | flat
            parts[part] = kind(**flat)
        else:
            parts[part] = dataclasses.replace(getattr(like, part), **flat)
    context = parts["model"].context
    if parts["training"].seq_length == context:
        parts["training"] = dataclasses.replace(parts["training"], seq_length=None)
    if "schedule.name" in values:
        options = {key.removeprefix("schedule."): value for key, value in values.items() if key.startswith("schedule.")}
        parts["schedule"] = options.pop("name")
        parts["options"] = tuple((key, value) for key, value in options.items() if value is not None)
    return dataclasses.replace(like, **parts)


def _nested(told: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    own = {key.removeprefix(f"{name}."): value for key, value in told.items() if key.startswith(f"{name}.")}
    return kind(**own) if own else None
