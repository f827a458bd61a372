"""One simulated case of a demo, whose times are units rather than seconds, and its row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.checks import Invalid
from pipesim.demos.claims import Say
from pipesim.results.schema import Row
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A micro-batch takes ``forward`` and ``backward`` units on every stage."""

    schedule: str
    p: int
    m: int
    forward: int
    backward: int
    timeline: Timeline

    @property
    def total(self) -> float:
        """Units from the first start to the last end."""
        return self.timeline.makespan_s

    @property
    def waits(self) -> FloatArray:
        """Idle units of each rank, shape (p,)."""
        return self.timeline.makespan_s - self.timeline.busy_s


def run_case(demo: str, schedule: str, *, p: int, m: int, forward: int, backward: int) -> Run:
    """Raises ``Invalid``, with the demo's config key, for sizes that no schedule or simulation takes."""
    times = {"forward": forward, "backward": backward}
    if wrong := [f"demo.{demo}: {key}={units} must be at least 1." for key, units in times.items() if units < 1]:
        raise Invalid(wrong)
    try:
        made = make_schedule(schedule, p=p, m=m)
    except ValueError as error:
        raise Invalid([f"demo.{demo}: {line}" for line in str(error).splitlines()]) from None
    timeline = simulate(made, forward, backward / 2, backward / 2)
    return Run(schedule=schedule, p=p, m=m, forward=forward, backward=backward, timeline=timeline)


def row(demo: str, run: Run) -> Row:
    timeline = run.timeline
    return {
        "status": "ok",
        "case": demo,
        "schedule": run.schedule,
        "p": run.p,
        "v": 1,
        "num_microbatches": run.m,
        "makespan_s": timeline.makespan_s,
        "bubble_fraction": timeline.bubble_fraction,
        "bubble_overhead": timeline.bubble_overhead,
        "peak_inflight": list(timeline.peak_inflight),
    }


def label(schedule: str, say: Say) -> str:
    """The schedule as papers write it."""
    return {"naive": say("Naive", "朴素"), "gpipe": "GPipe", "1f1b": "1F1B"}.get(schedule, schedule)


def same_work(one: Run, other: Run) -> bool:
    """Equally many stages, each with equally much to do."""
    return one.p == other.p and np.array_equal(one.timeline.busy_s, other.timeline.busy_s)
