"""What was written for the stages of a layout gives way where a change makes another number of them."""

from __future__ import annotations

from typing import Any

from pipesim import schedules
from pipesim.plan.asked.space import Config

PARTITION, AGAIN = "parallel.partition", "training.recompute_layers"

NOTE = (
    "The asked parallel.partition is written for its own number of stages: what has another number takes "
    "parallel.partition=balanced."
)


def freed(config: Config, changed: Config) -> dict[str, Any]:
    """Config keys to set in ``changed``: balanced for a partition, null for layers to run again, each of so many stages."""
    if _stages(config) == _stages(changed):
        return {}
    found: dict[str, Any] = {}
    if is_written(changed):
        found[PARTITION] = "balanced"
    if isinstance(changed["training"]["recompute_layers"], list):
        found[AGAIN] = None
    return found


def is_written(config: Config) -> bool:
    """Whether the partition says what each stage holds: a list, or a layout of Megatron-LM's."""
    return config["parallel"]["partition"] not in ("balanced", "even")


def _stages(config: Config) -> int:
    p, v = (config["parallel"][key] for key in "pv")
    return int(p * (v or schedules.stages_per_rank(config["schedule"]["name"])))
