"""What connects one rank with all others, whether they are threads or processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pipesim.execute import layout
from pipesim.execute.groups import Group, Wire
from pipesim.execute.job import Job, Place
from pipesim.execute.seat import Tell

Members = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """``team`` shares the layers; ``copies`` has the group of each bucket's holders."""

    wire: Wire
    everyone: Group
    team: Group
    copies: Mapping[tuple[int, ...], Group]
    clock_offset_s: float
    device: torch.device
    tell: Tell


def ties(
    job: Job,
    place: Place,
    wire: Wire,
    groups: Mapping[Members, Group],
    *,
    tell: Tell,
    device: torch.device,
    clock_offset_s: float = 0.0,
) -> Ties:
    """From the groups of a process, by their members."""
    own = [bucket.holders for bucket in layout.buckets(job) if place.pipeline in bucket.holders]
    return Ties(
        wire=wire,
        everyone=groups[layout.everyone(job)],
        team=groups[layout.team(job, place)],
        copies={holders: groups[layout.copies(job, place, holders)] for holders in own},
        clock_offset_s=clock_offset_s,
        device=device,
        tell=tell,
    )
