"""The schemas of the tasks that plan: search, explain, partition, jitter, goodput, and frameworks' arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class PlanConf:
    """What is searched: every legal value of what is left null. ``best`` layouts are told.

    ``gpus`` are numbers of GPUs to try (null: the cluster's). ``headroom`` is the share of memory that stays free,
    ``deadline_days`` goes with ``tokens``, and with the objective ``gpus``.
    """

    objective: str = "step_time"
    best: int = 10
    gpus: list[int] | None = None
    t: list[int] | None = None
    p: list[int] | None = None
    d: list[int] | None = None
    c: list[int] | None = None
    e: list[int] | None = None
    v: list[int] | None = None
    micro_batch: list[int] | None = None
    schedule: list[str] | None = None
    recompute: list[str] | None = None
    zero: list[int] | None = None
    sequence_parallel: list[bool] | None = None
    partitions: bool = True
    headroom: float = 0.1
    t_within_node: bool = True
    framework_rules: bool = True
    tokens: float | None = None
    deadline_days: float | None = None


@dataclass
class ExplainConf:
    """``against`` are keys and values of another layout; ``bubble`` is the share that micro-batches are counted for."""

    against: dict[str, Any] | None = None
    bubble: float = 0.05


@dataclass
class PartitionConf:
    """Units into stages, by the simulated step under memory; ``recompute`` lets each stage choose how much runs again."""

    recompute: bool = False


@dataclass
class JitterConf:
    """Seconds of single actions vary; ``samples`` steps are drawn from ``seed``."""

    samples: int = MISSING
    seed: int = MISSING
    spread: float = MISSING
    slow_rank: int | None = None
    slow_factor: float = 1.0


@dataclass
class GoodputConf:
    """A whole training: ``tokens`` in all, failures of one GPU every ``gpu_mtbf_hours``, checkpoints, a batch ramp."""

    tokens: float = MISSING
    gpu_mtbf_hours: float = MISSING
    checkpoint_gb_per_s: float = MISSING
    restart_s: float = MISSING
    interval_s: float | None = None
    ramp: list[list[float]] = field(default_factory=list)


@dataclass
class LaunchConf:
    """``to`` is the framework whose arguments are written, null the stack's own."""

    to: str | None = None


@dataclass
class ReadConf:
    """``path`` is a file of arguments in one of the known ``format``s; null tells by its content. ``name`` is that of the
    configs that are written; null takes the file's.
    """

    path: str | None = None
    format: str | None = None
    name: str | None = None
