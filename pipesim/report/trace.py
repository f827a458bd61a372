"""A timeline as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.report.lanes import lanes
from pipesim.schedules.action import Op
from pipesim.schedules.rules import dependencies
from pipesim.simulate.timeline import Timeline

_COMPUTE, _OVERLAPPED = 0, 1
"""Threads; the second action of an overlapped pair has its own, so that arrows meet the action they mean."""


class _Group(NamedTuple):
    """A timeline among others: what stands before its ranks' names, and its first process and first arrow."""

    timeline: Timeline
    title: str = ""
    process: int = 0
    arrow: int = 0


def chrome_trace(timeline: Timeline) -> str:
    """JSON with ranks as processes, actions as slices, sends as arrows and held activations as counters.

    The format's time is microseconds: a timeline in abstract units shows one unit as one second. Of bidirectional
    schedules each slice says at which rank its micro-batch enters. Events are put together as text, which takes a
    fifth of the time of making them objects first.
    """
    return _trace([_Group(timeline)])


def chrome_traces(timelines: Mapping[str, Timeline]) -> str:
    """Several timelines in one trace, such as a simulated and a measured one: the ranks of each below those before.

    Every process is called after its timeline: "measured, rank 0".
    """
    groups, process, arrow = [], 0, 0
    for title, timeline in timelines.items():
        groups.append(_Group(timeline, f"{title}, ", process, arrow))
        process, arrow = process + timeline.schedule.p, arrow + len(timeline.schedule)
    return _trace(groups)


def _trace(groups: Iterable[_Group]) -> str:
    events = [event for group in groups for part in (_names, _slices, _arrows, _counters) for event in part(group)]
    return f'{{"displayTimeUnit":"ms","traceEvents":[{",".join(events)}]}}'


def _names(group: _Group) -> Iterator[str]:
    schedule = group.timeline.schedule
    overlapped_ranks = set(schedule.rank_of()[schedule.joined].tolist())
    for rank in range(schedule.p):
        process = group.process + rank
        yield _about(process, "process_name", {"name": f"{group.title}rank {rank}"})
        yield _about(process, "process_sort_index", {"sort_index": process})
        yield _about(process, "thread_name", {"name": "compute"}, _COMPUTE)
        if rank in overlapped_ranks:
            yield _about(process, "thread_name", {"name": "overlapped"}, _OVERLAPPED)


def _about(process: int, name: str, args: dict[str, str | int], thread: int | None = None) -> str:
    where = {"pid": process} if thread is None else {"pid": process, "tid": thread}
    return json.dumps({"ph": "M", "name": name, **where, "args": args}, separators=(",", ":"))


def _slices(group: _Group) -> Iterator[str]:
    timeline, schedule = group.timeline, group.timeline.schedule
    of = lanes(schedule)
    ways = [f',"enters_at_rank":{rank}' if of.back_micro_batches else "" for rank in range(schedule.p)]
    columns = (
        (group.process + schedule.rank_of()).tolist(), _threads(timeline), schedule.stage.tolist(), schedule.op.tolist(),
        schedule.micro_batch.tolist(), of.enters_at.tolist(), _us(timeline.start_s), _us(timeline.end_s - timeline.start_s),
    )  # fmt: skip
    letters = [op.name for op in Op]
    for process, thread, stage, number, micro_batch, enters_at, start_us, took_us in zip(*columns, strict=True):
        op = letters[number]
        yield (
            f'{{"ph":"X","name":"{stage}{op}{micro_batch}","cat":"{op}","pid":{process},"tid":{thread},"ts":{start_us!r},'
            f'"dur":{took_us!r},"args":{{"stage":{stage},"op":"{op}","micro_batch":{micro_batch}{ways[enters_at]}}}}}'
        )


def _arrows(group: _Group) -> Iterator[str]:
    """From just inside the sending slice, because an arrow from its very end would belong to the next one."""
    timeline = group.timeline
    rank_of, threads = timeline.schedule.rank_of(), np.array(_threads(timeline))
    sender = dependencies(timeline.schedule).remote
    reader = np.flatnonzero((sender >= 0) & (rank_of != rank_of[sender]))
    source = sender[reader]
    leaves_s = timeline.start_s[source] + 0.99 * (timeline.end_s[source] - timeline.start_s[source])
    process_of = group.process + rank_of
    columns = (
        (group.arrow + reader).tolist(), process_of[source].tolist(), threads[source].tolist(), _us(leaves_s),
        process_of[reader].tolist(), threads[reader].tolist(), _us(timeline.start_s[reader]),
    )  # fmt: skip
    for i, source_process, from_thread, leaves_us, reader_process, to_thread, arrives_us in zip(*columns, strict=True):
        common = f'{{"name":"send","cat":"send","id":{i},'
        yield f'{common}"ph":"s","pid":{source_process},"tid":{from_thread},"ts":{leaves_us!r}}}'
        yield f'{common}"ph":"f","bp":"e","pid":{reader_process},"tid":{to_thread},"ts":{arrives_us!r}}}'


def _counters(group: _Group) -> Iterator[str]:
    for rank in range(group.timeline.schedule.p):
        when_s, held = group.timeline.inflight(rank)
        latest = dict(zip(_us(when_s), held.tolist(), strict=True))  # of changes at one time only the last shows
        head = f'{{"ph":"C","name":"in-flight activations","pid":{group.process + rank},"ts":'
        for time_us, count in latest.items():
            yield f'{head}{time_us!r},"args":{{"held":{count}}}}}'


def _threads(timeline: Timeline) -> list[int]:
    second = np.r_[False, timeline.schedule.joined[:-1]]
    return np.where(second, _OVERLAPPED, _COMPUTE).tolist()  # type: ignore[no-any-return]


def _us(seconds: ArrayLike) -> list[float]:
    return np.round(np.asarray(seconds, np.float64) * 1e6, 3).tolist()  # type: ignore[no-any-return]
