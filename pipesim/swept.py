"""What tells the configs of a sweep apart where no column of a row does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.config import ASKED

_IN_COLUMNS = {
    *(f"parallel.{key}" for key in ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")),
    *(
        f"training.{key}"
        for key in ("recompute", "precision", "attention", "micro_batch", "global_batch", "seq_length")
    ),
}
_NAMES = ("model.name", "cluster.name", "costs.kind", "schedule.name")


def settings(configs: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """For each config what tells it from others of the same names, where no column of a row does: ``key=value …``."""
    flat = [dict(_leaves({key: each[key] for key in ASKED})) for each in configs]
    values: dict[tuple[Any, ...], dict[str, set[str]]] = {}
    for leaves in flat:
        seen = values.setdefault(tuple(leaves[name] for name in _NAMES), {})
        for key, value in leaves.items():
            seen.setdefault(key, set()).add(repr(value))
    told = []
    for leaves in flat:
        seen = values[tuple(leaves[name] for name in _NAMES)]
        own = [f"{key}={value}" for key, value in leaves.items() if len(seen[key]) > 1 and key not in _IN_COLUMNS]
        told.append(" ".join(own) or None)
    return told


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
