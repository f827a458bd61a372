"""A timeline as compact columns for the viewer: typed arrays, compressed, as text; exact to the bit."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.report.formats import clean
from pipesim.report.timeline.lanes import lanes
from pipesim.report.timeline.look import tones
from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.rules import dependencies
from pipesim.simulate.causes import idle
from pipesim.simulate.memory import held_change
from pipesim.simulate.timeline import Timeline

Column = NDArray[Any]


def island(slug: str, title: str, timeline: Timeline, unit: str) -> dict[str, Any]:
    """What the viewer knows of a timeline, for JSON; ``unit`` is "seconds" or "units".

    ``columns`` names each array in ``gzip`` with its type (f8, u4, u2, u1; little-endian) and length, in order.
    """
    look = tones(lanes(timeline.schedule).shades)
    found = columns(timeline)
    raw = b"".join(column.tobytes() for column in found.values())
    return {
        "slug": slug, "title": clean(title), "unit": unit, "p": timeline.schedule.p,
        "colours": look.colour, "light": [int(light) for light in look.light],
        "columns": [[name, f"{column.dtype.kind}{column.dtype.itemsize}", len(column)] for name, column in found.items()],
        "gzip": base64.b64encode(gzip.compress(raw, mtime=0)).decode(),
    }  # fmt: skip


def columns(timeline: Timeline) -> Mapping[str, Column]:
    """The widest types first, so that each array lies at a multiple of its item's size.

    ``edges_s`` is start, end, start, end …: what ends where the next begins then compresses well. Idle intervals fill
    the gaps between the slots of a rank, by time: ``more`` says that the next one is of the same gap, ``cut_s`` where
    it begins. ``remote`` and ``local`` tell how far back in the list (or, wrapped, ahead) an action's dependencies
    stand, 0 is none. ``reason`` is 1 where an interval waits for what the next action needs from another rank, 2 where
    the pair's second action needs it, 0 if for nothing.
    """
    schedule, gaps, needs = timeline.schedule, idle(timeline), dependencies(timeline.schedule)
    of = lanes(schedule)
    more = np.r_[(np.diff(gaps.rank) == 0) & (np.diff(gaps.before) == 0), False][: len(gaps)]
    real = {"edges_s": np.stack([timeline.start_s, timeline.end_s], axis=1).ravel(), "cut_s": gaps.end_s[more]}
    whole = {
        "rank_start": schedule.rank_start,
        "stage": schedule.stage,
        "op": schedule.op,
        "micro_batch": schedule.micro_batch,
        "joined": schedule.joined,
        "colour": (schedule.op * of.shades + of.shade) * 2 + schedule.micro_batch % 2,
        "held": held(schedule),
        "remote": _back(needs.remote),
        "local": _back(needs.local),
        "cause": gaps.cause,
        "more": more,
        "reason": np.where(gaps.waits_for < 0, 0, np.where(needs.remote[gaps.before] == gaps.waits_for, 1, 2)),
    }
    small = {name: column.astype(_smallest(column)) for name, column in whole.items()}
    return dict(sorted((real | small).items(), key=lambda item: -item[1].dtype.itemsize))


def held(schedule: Schedule) -> IntArray:
    """How many activations the rank holds while it works on each action, shape (actions,)."""
    change = held_change(schedule)
    after = np.cumsum(change)
    before_rank = np.r_[0, after][schedule.rank_start[:-1]]
    own = after - before_rank[schedule.rank_of()]
    during: IntArray = own - np.minimum(change, 0)  # what it frees is there until it ends
    first = np.flatnonzero(schedule.joined)
    during[first + 1] = during[first]
    return during


def _back(needed: NDArray[np.int32]) -> IntArray:
    """Distances modulo 2**32: an action that another needs can stand behind it in the list."""
    index = np.arange(len(needed))
    return np.where(needed >= 0, (index - needed) % 2**32, 0)


def _smallest(column: Column) -> str:
    most = int(column.max(initial=0))
    return next(kind for kind, limit in (("<u1", 2**8), ("<u2", 2**16), ("<u4", 2**32)) if most < limit)
