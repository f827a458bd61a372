"""Small jobs for the tests of the executor: a tiny GPT with as many blocks as the schedule's stages need."""

from __future__ import annotations

from typing import Any

from pipesim.execute.job import Job
from pipesim.schedules import make_schedule
from pipesim.schedules.action import Schedule
from pipesim.toy.gpt import GptSpec


def job_of(schedule: Schedule, *, tied: bool = False, **choices: Any) -> Job:
    """Micro-batches of two sequences, the last of one; float64 and three steps unless the choices say otherwise."""
    model = GptSpec(vocab=11, context=8, width=8, blocks=max(2, schedule.stages - 2), heads=2, tied=tied)
    count = schedule.m // schedule.segments
    given = {"micro_batches": (2,) * (count - 1) + (1,), "length": 8, "dtype": "float64", "steps": 3}
    return Job(schedule=schedule, model=model, **(given | choices))


def job(name: str, p: int, m: int, v: int | None = None, **choices: Any) -> Job:
    """The job of a schedule by its name."""
    return job_of(make_schedule(name, p=p, m=m, v=v), **choices)
