"""The schemas of ``conf/task/``: what each task asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


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
class TaskConf:
    """The task that was chosen: the one that is not null."""

    execute: ExecuteConf | None = None
    calibrate: CalibrateConf | None = None
    validate: ValidateConf | None = None
