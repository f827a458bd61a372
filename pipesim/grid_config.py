"""Typed schemas of ``conf/grid/``: axes, conditions, and what is kept of a grid too large to keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class KeepConf:
    """The ``top`` rows that fit of each group of equal ``per``, smallest ``by`` first (``-mfu``: largest first), and the
    Pareto front of step time, memory and GPUs. By default the fastest, as reports rank them.
    """

    top: int = 100
    by: str = "-tokens_per_s"
    per: list[str] = field(default_factory=lambda: ["model", "cluster"])
    pareto: bool = True


@dataclass
class GridConf:
    """Config keys or groups with the values to combine, e.g. ``parallel.t: [1, 2, 4]`` or ``schedule: [gpipe, 1f1b]``; see
    ``conf/README.md``. ``where`` is a condition or a list of them, ``keep`` null keeps every row.
    """

    name: str = MISSING
    axes: dict[str, Any] = MISSING
    where: Any = field(default_factory=list)
    keep: KeepConf | None = None
