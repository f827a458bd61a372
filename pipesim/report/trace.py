"""A timeline as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipesim.schedules.rules import dependencies
from pipesim.simulate.timeline import Timeline

_Event = dict[str, Any]

_COMPUTE, _OVERLAPPED = 0, 1
"""Threads; the second action of an overlapped pair has its own, so that arrows meet the action they mean."""


def chrome_trace(timeline: Timeline) -> str:
    """JSON with ranks as processes, actions as slices, sends as arrows and held activations as counters.

    The format's time is microseconds: a timeline in abstract units shows one unit as one second.
    """
    events = [*_names(timeline), *_slices(timeline), *_arrows(timeline), *_counters(timeline)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))


def _names(timeline: Timeline) -> Iterator[_Event]:
    schedule = timeline.schedule
    overlapped_ranks = set(schedule.rank_of()[schedule.joined].tolist())
    for rank in range(schedule.p):
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": _COMPUTE, "args": {"name": "compute"}}
        if rank in overlapped_ranks:
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": _OVERLAPPED, "args": {"name": "overlapped"}}


def _slices(timeline: Timeline) -> Iterator[_Event]:
    schedule = timeline.schedule
    for i, (rank, thread) in enumerate(zip(schedule.rank_of().tolist(), _threads(timeline), strict=True)):
        action = schedule.action(i)
        start_s = float(timeline.start_s[i])
        yield {
            "ph": "X", "name": str(action), "cat": action.op.name, "pid": rank, "tid": thread,
            "ts": _us(start_s), "dur": _us(float(timeline.end_s[i]) - start_s),
            "args": {"stage": action.stage, "op": action.op.name, "micro_batch": action.micro_batch},
        }  # fmt: skip


def _arrows(timeline: Timeline) -> Iterator[_Event]:
    """From just inside the sending slice, because an arrow from its very end would belong to the next one."""
    rank_of, threads = timeline.schedule.rank_of(), _threads(timeline)
    sender = dependencies(timeline.schedule).remote
    for i in np.flatnonzero((sender >= 0) & (rank_of != rank_of[sender])).tolist():
        source = int(sender[i])
        common = {"name": "send", "cat": "send", "id": i}
        leaves_s = timeline.start_s[source] + 0.99 * (timeline.end_s[source] - timeline.start_s[source])
        yield {**common, "ph": "s", "pid": int(rank_of[source]), "tid": threads[source], "ts": _us(leaves_s)}
        arrives_us = _us(timeline.start_s[i])
        yield {**common, "ph": "f", "bp": "e", "pid": int(rank_of[i]), "tid": threads[i], "ts": arrives_us}


def _counters(timeline: Timeline) -> Iterator[_Event]:
    for rank in range(timeline.schedule.p):
        when_s, held = timeline.inflight(rank)
        latest = dict(zip(when_s.tolist(), held.tolist(), strict=True))  # of changes at one time only the last shows
        for time_s, count in latest.items():
            yield {"ph": "C", "name": "in-flight activations", "pid": rank, "ts": _us(time_s), "args": {"held": count}}


def _threads(timeline: Timeline) -> list[int]:
    second = np.r_[False, timeline.schedule.joined[:-1]]
    return [_OVERLAPPED if overlapped else _COMPUTE for overlapped in second]


def _us(time_s: float) -> float:
    return round(float(time_s) * 1e6, 3)
