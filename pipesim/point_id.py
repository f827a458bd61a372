"""Who a point is: a hash of everything in its plain config that decides its row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

ASKED = ("model", "cluster", "parallel", "training", "schedule", "stack", "costs")
"""The groups that decide a row; the others say where results go and what is shown."""


def point_id(config: Mapping[str, Any]) -> str:
    """A hash of everything that decides the row, as 16 hexadecimal digits; the same in every process and version."""
    return f"{point_hash(config):016x}"


def point_hash(config: Mapping[str, Any]) -> int:
    """The sum of the hashes of all leaves, so that changing one value changes it by the difference of two hashes."""
    return sum(leaf_hash(key, value) for key, value in leaves({key: config[key] for key in ASKED})) % 2**64


def leaf_hash(key: str, value: Any) -> int:
    return _hash(f"{key}={json.dumps(value, sort_keys=True, ensure_ascii=True)}")


@lru_cache(maxsize=100_000)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
