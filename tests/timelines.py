"""Timelines that the tests of their pictures share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipesim.report.timeline.trace import chrome_trace
from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import Timeline, simulate

TWO_STAGES_EACH = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0"
PAIR = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0I1,0W1,0B2\n1F0,1B0,1F1,1I1,1W1,1F2,1B2"


def unit_timeline(name: str, p: int, m: int) -> Timeline:
    return simulate(make_schedule(name, p=p, m=m))


def every_timeline(p: int = 4, m: int = 8) -> list[Timeline]:
    return [unit_timeline(name, p, m) for name in schedule_names()]


def by_name(timelines: list[Timeline]) -> list[Any]:
    return [pytest.param(timeline, id=timeline.schedule.name) for timeline in timelines]


def events(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(chrome_trace(timeline))["traceEvents"] if event["ph"] == phase]
