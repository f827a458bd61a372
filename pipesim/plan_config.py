"""The schemas of the tasks that plan: search, explain, partition, jitter, goodput, and frameworks' arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class PlanConf:
    """What is searched: every legal value of what is left null. ``best`` layouts are told.

    ``gpus`` are numbers of GPUs to try (null: the cluster's). ``deadline_days`` goes with ``tokens``, and with the objective
    ``gpus``. ``prune`` leaves out what bounds show to be slower than the best, which changes none of them.
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
    rank_orders: bool = True
    t_within_node: bool = True
    framework_rules: bool = True
    tokens: float | None = None
    deadline_days: float | None = None
    prune: bool = True


@dataclass
class ExplainConf:
    """``against``: keys and values of another layout; ``bubble``: the share that micro-batches are counted for."""

    against: Any = None
    bubble: float = 0.05


@dataclass
class PartitionConf:
    """Units into stages, by the simulated step under memory; ``recompute`` lets each stage choose how much runs again."""

    recompute: bool = False


@dataclass
class JitterConf:
    """Seconds of single actions and messages vary; ``samples`` steps are drawn from ``seed``.

    ``spread`` is the standard deviation over the mean of a rank's work on one micro-batch in one direction, ``hop_spread``
    of a message. With ``stall_probability`` such work takes ``stall_s`` longer. ``slow_rank`` (of one pipeline) or every
    rank of ``slow_node`` computes ``slow_factor`` times as long, step after step. ``schedules`` are compared with the asked.
    """

    samples: int = MISSING
    seed: int = MISSING
    spread: float = MISSING
    hop_spread: float = MISSING
    stall_probability: float = MISSING
    stall_s: float = MISSING
    slow_rank: int | None = None
    slow_node: int | None = None
    slow_factor: float = MISSING
    schedules: list[str] = field(default_factory=list)


@dataclass
class GoodputConf:
    """A whole training of ``tokens``, with one failure of one GPU every ``gpu_mtbf_hours``.

    ``checkpoint_gb_per_s`` is the storage's, null 0.122 for each GPU. ``restart_s`` are from a failure until training goes on
    behind its last checkpoint; ``interval_s`` null is the best one. ``ramp`` are phases [until this token, batch] before
    ``training.global_batch``, ``rampup_batch_size`` is the same as Megatron-LM says it: [first batch, increment, samples].
    """

    tokens: float = MISSING
    gpu_mtbf_hours: float = MISSING
    checkpoint_gb_per_s: float | None = None
    restart_s: float = MISSING
    interval_s: float | None = None
    ramp: list[Any] = field(default_factory=list)
    rampup_batch_size: list[int] = field(default_factory=list)


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
