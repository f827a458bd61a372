"""Every schedule at equal sizes and equal work, simulated: what ``schedule_zoo`` shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.checks import Invalid
from pipesim.results.schema import Row
from pipesim.schedules import canonical_name, make_schedule, problems, schedule_names, warnings
from pipesim.schedules.action import Schedule
from pipesim.simulate import lower_bounds, simulate, steady_period_s
from pipesim.simulate.timeline import Timeline

TIMES = ("forward", "input_grad", "weight_grad")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One schedule that ran; times are whole units."""

    name: str
    timeline: Timeline
    period: float
    lower_bound: float
    warnings: tuple[str, ...]

    @property
    def v(self) -> int:
        """Stages per rank that a micro-batch passes."""
        return self.timeline.schedule.stages // self.timeline.schedule.p

    @property
    def makespan(self) -> float:
        return self.timeline.makespan_s

    @property
    def steady_bubble(self) -> float:
        """Idle / (p x period) when iterations follow one another without a barrier."""
        return float(1 - self.timeline.busy_s.sum() / (self.timeline.schedule.p * self.period))

    @property
    def held(self) -> float:
        """Peak activations of the heaviest rank; 1 is a whole micro-batch on all stages of one rank."""
        return max(self.timeline.peak_inflight) / _parts(self.timeline.schedule)

    @property
    def copies(self) -> float:
        """How often every parameter is held: the ranks on which a stage lies."""
        schedule = self.timeline.schedule
        places = np.unique(schedule.rank_of() * schedule.stages + schedule.stage)
        return len(places) / schedule.stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoo:
    """What ran, and what refused these sizes: name and reason. ``units`` are a rank's for F, I and W of a micro-batch."""

    p: int
    m: int
    units: tuple[int, int, int]
    ran: tuple[Specimen, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        return [specimen.name for specimen in self.ran]


def gather(conf: Mapping[str, Any]) -> Zoo:
    """Units are scaled up by the least factor for which every stage's are whole. Raises ``Invalid`` for bad settings."""
    times = [conf[key] for key in TIMES]
    wrong = [f"demo.schedule_zoo.{key}={conf[key]} must be at least 1. Nearest: 1." for key in TIMES if conf[key] < 1]
    asked = schedule_names() if conf["schedules"] is None else conf["schedules"]
    for name in asked:
        if canonical_name(name) is None:
            wrong += [f"demo.schedule_zoo.schedules: {line}" for line in problems(name, 1, 1)]
    if wrong:
        raise Invalid(wrong)
    p, m = conf["p"], conf["m"]
    names = list(dict.fromkeys(str(canonical_name(name)) for name in asked))
    refused = {name: found for name in names if (found := problems(name, p, m))}
    made = {name: _make(name, p, m, times) for name in names if name not in refused}
    parts = {name: _parts(schedule) for name, schedule in made.items()}
    scale = math.lcm(*(part // math.gcd(part, *times) for part in parts.values()))
    return Zoo(
        p=p,
        m=m,
        units=(times[0] * scale, times[1] * scale, times[2] * scale),
        ran=tuple(
            _run(name, schedule, [time * scale // parts[name] for time in times]) for name, schedule in made.items()
        ),
        refused=tuple((name, " ".join(found)) for name, found in refused.items()),
    )


def rows(zoo: Zoo) -> list[Row]:
    known = {"case": "schedule_zoo", "p": zoo.p, "num_microbatches": zoo.m}
    ran = [
        {
            **known,
            "status": "ok",
            "schedule": specimen.name,
            "v": specimen.v,
            "makespan_s": specimen.makespan,
            "bubble_fraction": specimen.timeline.bubble_fraction,
            "bubble_overhead": specimen.timeline.bubble_overhead,
            "peak_inflight": list(specimen.timeline.peak_inflight),
        }
        for specimen in zoo.ran
    ]
    return ran + [{**known, "status": "invalid", "schedule": name, "reason": reason} for name, reason in zoo.refused]


def _make(name: str, p: int, m: int, times: Sequence[int]) -> Schedule:
    """``auto`` makes its order for the times at hand."""
    options: dict[str, Any] = {f"{key}_s": units for key, units in zip(TIMES, times, strict=True)}
    return make_schedule(name, p=p, m=m, **(options if name == "auto" else {}))


def _parts(schedule: Schedule) -> int:
    """Into how many a rank's share of a micro-batch is cut: stages, or segments of its sequence."""
    return schedule.stages // schedule.p * schedule.segments


def _run(name: str, schedule: Schedule, units: Sequence[int]) -> Specimen:
    segments, m = schedule.segments, schedule.m
    return Specimen(
        name=name,
        timeline=simulate(schedule, *units),
        period=steady_period_s(schedule, *units),
        lower_bound=lower_bounds(schedule, *units).makespan_s,
        warnings=tuple(warnings(name, schedule.p, m // segments)),
    )
