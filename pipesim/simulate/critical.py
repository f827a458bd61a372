"""The critical path: the chain of actions and messages that makes the timeline as long as it is."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from pipesim.schedules.action import Action
from pipesim.schedules.rules import dependencies
from pipesim.simulate.timeline import Timeline


class Through(StrEnum):
    """What a step waited for last."""

    START = "start"  # nothing: it opens the path
    RANK = "rank"  # the slot before it on its rank
    MESSAGE = "message"  # a result from another rank


class Step(NamedTuple):
    """One action of the path. Between the end of the step before and ``start_s`` lies communication, if anything."""

    rank: int
    action: Action
    start_s: float
    end_s: float
    through: Through


def critical_path(timeline: Timeline) -> list[Step]:
    """From a first start to the last end without a gap but communication; of two reasons the rank's own counts."""
    schedule, rank_of = timeline.schedule, timeline.schedule.rank_of()
    arrival_s = np.nan_to_num(timeline.messages().arrival_s, nan=-np.inf)
    remote = dependencies(schedule).remote
    steps: list[Step] = []
    at = int(timeline.end_s.argmax())
    while True:
        first = at - 1 if at > schedule.rank_start[rank_of[at]] and schedule.joined[at - 1] else at
        slot = (first, first + 1) if schedule.joined[first] else (first,)
        reader = max(slot, key=lambda i: float(arrival_s[i]))
        opens = first == schedule.rank_start[rank_of[first]]
        free_s = -np.inf if opens else timeline.end_s[first - 1]
        waited = arrival_s[reader] > free_s and not (opens and arrival_s[reader] == -np.inf)
        through = Through.MESSAGE if waited else Through.START if opens else Through.RANK
        steps.append(
            Step(int(rank_of[at]), schedule.action(at), float(timeline.start_s[at]), float(timeline.end_s[at]), through)
        )
        if through is Through.START:
            return steps[::-1]
        at = int(remote[reader]) if through is Through.MESSAGE else first - 1
