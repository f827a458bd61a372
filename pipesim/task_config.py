"""The schemas of ``conf/task/``: what each task asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from pipesim.plan_config import (
    ExplainConf,
    GoodputConf,
    JitterConf,
    LaunchConf,
    PartitionConf,
    PlanConf,
    ReadConf,
)


@dataclass
class ExecuteConf:
    """``m`` micro-batches of ``micro_batch`` sequences of ``length`` tokens, on t x p x d processes.

    ``options`` are the schedule's own. ``repeats`` steps are measured after ``warm_up`` others.
    """

    schedule: str = MISSING
    p: int = MISSING
    v: int | None = None
    m: int = MISSING
    options: dict[str, Any] = field(default_factory=dict)
    micro_batch: int = MISSING
    length: int = MISSING
    blocks: int = MISSING
    width: int = MISSING
    heads: int = MISSING
    vocab: int = MISSING
    tied: bool = False
    t: int = 1
    d: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0
    repeats: int = MISSING
    warm_up: int = MISSING
    mode: str = "processes"
    torch_peer: bool = False
    timeout_s: float = MISSING


@dataclass
class ValidateConf:
    """``measurements`` is the table; left null, the packaged ones are predicted."""

    worst: int = 10


@dataclass
class CalibrateConf:
    """``name`` is the fitted stack's; ``constants`` null are all that the runs can be fitted by; ``date`` as the file's."""

    name: str = MISSING
    constants: list[str] | None = None
    date: str | None = None


@dataclass
class ProfileSizesConf:
    """``products`` are [M, N, K]; ``lengths`` are tokens of one sequence with ``heads`` heads; bytes are those of one buffer."""

    products: list[list[int]] = MISSING
    lengths: list[int] = MISSING
    heads: int = MISSING
    head_dim: int = MISSING
    copied_bytes: list[int] = MISSING
    message_bytes: list[int] = MISSING


@dataclass
class ProfileConf:
    """``name`` is that of the cluster and stack that are written; ``cpu`` and ``cuda`` are the sizes on each ``device``."""

    name: str = MISSING
    device: str = MISSING
    threads: int = MISSING
    repeats: int = MISSING
    date: str | None = None
    timeout_s: float = MISSING
    cpu: ProfileSizesConf = field(default_factory=ProfileSizesConf)
    cuda: ProfileSizesConf = field(default_factory=ProfileSizesConf)


@dataclass
class TaskConf:
    """The task that was chosen: the one that is not null."""

    execute: ExecuteConf | None = None
    calibrate: CalibrateConf | None = None
    validate: ValidateConf | None = None
    profile: ProfileConf | None = None
    plan: PlanConf | None = None
    explain: ExplainConf | None = None
    partition: PartitionConf | None = None
    jitter: JitterConf | None = None
    goodput: GoodputConf | None = None
    launch: LaunchConf | None = None
    read: ReadConf | None = None
