"""Typed schemas of ``conf/demo/``: the cases and sizes of each demo."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class TimelineCaseConf:
    schedule: str = MISSING
    p: int = MISSING
    m: int = MISSING
    forward: int = MISSING
    backward: int = MISSING


@dataclass
class TimelinesConf:
    cases: list[TimelineCaseConf] = MISSING


@dataclass
class BubbleConf:
    """``look_at`` is the p for which the text asks which m bring the bubble fraction under ``target``."""

    schedules: list[str] = MISSING
    p: list[int] = MISSING
    m: list[int] = MISSING
    forward: int = MISSING
    backward: int = MISSING
    look_at: int = MISSING
    target: float = MISSING


@dataclass
class ActivationMemoryConf:
    schedules: list[str] = MISSING
    p: int = MISSING
    m: int = MISSING
    forward: int = MISSING
    backward: int = MISSING


@dataclass
class RealPipelineConf:
    """The base model in p stages; ``micro_batch`` sequences of ``length`` tokens. ``mode`` is threads or processes."""

    schedule: str = MISSING
    p: int = MISSING
    micro_batches: int = MISSING
    micro_batch: int = MISSING
    length: int = MISSING
    seed: int = 0
    mode: str = "threads"


@dataclass
class LayoutConf:
    t: int = MISSING
    p: int = MISSING
    d: int = MISSING


@dataclass
class Bloom3dConf:
    """Every t x p is asked; the named layouts are those the text looks at."""

    t: list[int] = MISSING
    p: list[int] = MISSING
    used: LayoutConf = field(default_factory=LayoutConf)
    too_small: LayoutConf = field(default_factory=LayoutConf)
    longer: LayoutConf = field(default_factory=LayoutConf)
    wider: LayoutConf = field(default_factory=LayoutConf)


@dataclass
class ScheduleZooConf:
    """``schedules`` left null are all; a rank's share of one micro-batch takes the units, whatever the schedule."""

    schedules: list[str] | None = None
    p: int = MISSING
    m: int = MISSING
    forward: int = MISSING
    input_grad: int = MISSING
    weight_grad: int = MISSING
    wide: bool = False


@dataclass
class DemoConf:
    """The demos that were chosen: those that are not null, in this order."""

    timelines: TimelinesConf | None = None
    bubble: BubbleConf | None = None
    activation_memory: ActivationMemoryConf | None = None
    real_pipeline: RealPipelineConf | None = None
    bloom_3d: Bloom3dConf | None = None
    schedule_zoo: ScheduleZooConf | None = None
