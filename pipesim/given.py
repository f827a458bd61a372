"""Groups given in Python as mappings: a known choice with other values, or a whole shape of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from pipesim import config
from pipesim.checks import Invalid, alike, suggest
from pipesim.cluster_parts import OF_EQUAL_NODES
from pipesim.schedules import canonical_name

NAMES = {"model": "name", "cluster": "name", "schedule": "name", "stack": "name", "costs": "kind"}
"""The groups whose choices are known by a key of their own, and the key. Other groups' values change what is chosen."""

GIVEN = "_given_"
"""The choice that stands for a mapping while it is composed."""


def file_of(group: str, values: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """What would stand in a file of the group. ``known`` are its choices: a mapping that names one starts from it.

    Raises ``Invalid`` for keys there are none of, and where no choice is named and the shape is not whole.
    """
    fields = dataclasses.fields(config.SCHEMAS[group])
    names = [field.name for field in fields]
    if unknown := [key for key in values if key not in names]:
        raise Invalid(
            [
                f"{group}.{key} is no key of the config; there are: {', '.join(names)}.{suggest(str(key), names)}"
                for key in unknown
            ]
        )
    name = values.get(NAMES[group])
    if isinstance(name, list):
        raise Invalid([f"{group}.{NAMES[group]}={name} must be one word. Nearest: {group}={name}."])
    choice = (canonical_name(str(name)) or name) if group == "schedule" else name
    if choice in known:
        return {"defaults": [choice, "_self_"]} | {key: each for key, each in values.items() if key != NAMES[group]}
    needed = [field.name for field in fields if field.default is MISSING]
    if group == "cluster" and not values.get("parts"):
        needed += OF_EQUAL_NODES
    if lacking := [key for key in needed if values.get(key) is None]:
        said = f"{group} has no {NAMES[group]}" if name is None else f"{group}.{NAMES[group]}={name} is no choice"
        near = alike(str(name), known) if name is not None else ()
        starts = f"Nearest: {' or '.join(near)}" if near else f"Choices are: {', '.join(sorted(known))}"
        raise Invalid(
            [f"{said} to start from, so the mapping must be whole, and it lacks {', '.join(lacking)}. {starts}."]
        )
    return dict(values)


@contextmanager
def stored(files: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """The files are the choice ``GIVEN`` of their groups for as long as it lasts."""
    store = ConfigStore.instance()
    for group, values in files.items():
        store.store(group=group, name=GIVEN, node=dict(values))
    try:
        yield
    finally:
        for group in files:
            del store.repo[group][f"{GIVEN}.yaml"]
