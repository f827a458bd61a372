"""The words that ask for a config: a choice of every group, and each key that is another than its choice's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim import config as configs
from pipesim.compose import typed
from pipesim.point_id import leaves

BY_DEFAULT = {"costs": ["costs=full"]}
"""Words that need not be typed, whatever was read."""


def words(conf: Mapping[str, Any], name: str, written: Sequence[str]) -> list[str]:
    """Of a whole plain config; the groups that were ``written`` are asked by the ``name`` of their file."""
    order = ("model", "parallel", "training", "schedule", "cluster", "stack", "costs")
    found = [[f"{group}={name}"] if group in written else choice(conf, group) for group in order]
    return [word for group, each in zip(order, found, strict=True) if each != BY_DEFAULT.get(group) for word in each]


def choice(conf: Mapping[str, Any], group: str) -> list[str]:
    """The choice of the group's own name, else the one that needs the fewest keys changed; and those keys."""
    there, named = configs.names(group), conf[group].get("name")
    tried = [_changes(conf, group, each) for each in ([named] if named in there else there)]
    return min(tried, key=len)


def _changes(conf: Mapping[str, Any], group: str, name: str) -> list[str]:
    asked = dict(leaves({group: conf[group]}))
    like = dict(leaves({group: configs.changed(conf, {group: name}, "task.read")[group]}))
    changed = [f"{'' if key in like else '++'}{key}={typed(value)}" for key, value in asked.items()
               if key not in like or like[key] != value]  # fmt: skip
    return [f"{group}={name}", *changed, *(f"~{key}" for key in like if key not in asked)]
