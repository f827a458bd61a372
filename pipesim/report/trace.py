"""A timeline as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from pipesim.report.lanes import lanes
from pipesim.schedules.action import Op
from pipesim.schedules.rules import dependencies
from pipesim.simulate.timeline import Timeline

_COMPUTE, _OVERLAPPED = 0, 1
"""Threads; the second action of an overlapped pair has its own, so that arrows meet the action they mean."""


def chrome_trace(timeline: Timeline) -> str:
    """JSON with ranks as processes, actions as slices, sends as arrows and held activations as counters.

    The format's time is microseconds: a timeline in abstract units shows one unit as one second. Of bidirectional
    schedules each slice says at which rank its micro-batch enters. Events are put together as text, which takes a
    fifth of the time of making them objects first.
    """
    events = [*_names(timeline), *_slices(timeline), *_arrows(timeline), *_counters(timeline)]
    return f'{{"displayTimeUnit":"ms","traceEvents":[{",".join(events)}]}}'


def _names(timeline: Timeline) -> Iterator[str]:
    schedule = timeline.schedule
    overlapped_ranks = set(schedule.rank_of()[schedule.joined].tolist())
    for rank in range(schedule.p):
        yield _about(rank, "process_name", {"name": f"rank {rank}"})
        yield _about(rank, "process_sort_index", {"sort_index": rank})
        yield _about(rank, "thread_name", {"name": "compute"}, _COMPUTE)
        if rank in overlapped_ranks:
            yield _about(rank, "thread_name", {"name": "overlapped"}, _OVERLAPPED)


def _about(rank: int, name: str, args: dict[str, str | int], thread: int | None = None) -> str:
    where = {"pid": rank} if thread is None else {"pid": rank, "tid": thread}
    return json.dumps({"ph": "M", "name": name, **where, "args": args}, separators=(",", ":"))


def _slices(timeline: Timeline) -> Iterator[str]:
    schedule, of = timeline.schedule, lanes(timeline.schedule)
    ways = [f',"enters_at_rank":{rank}' if of.back_micro_batches else "" for rank in range(schedule.p)]
    columns = (
        schedule.rank_of().tolist(), _threads(timeline), schedule.stage.tolist(), schedule.op.tolist(),
        schedule.micro_batch.tolist(), of.enters_at.tolist(), _us(timeline.start_s), _us(timeline.end_s - timeline.start_s),
    )  # fmt: skip
    letters = [op.name for op in Op]
    for rank, thread, stage, number, micro_batch, enters_at, start_us, took_us in zip(*columns, strict=True):
        op = letters[number]
        yield (
            f'{{"ph":"X","name":"{stage}{op}{micro_batch}","cat":"{op}","pid":{rank},"tid":{thread},"ts":{start_us!r},'
            f'"dur":{took_us!r},"args":{{"stage":{stage},"op":"{op}","micro_batch":{micro_batch}{ways[enters_at]}}}}}'
        )


def _arrows(timeline: Timeline) -> Iterator[str]:
    """From just inside the sending slice, because an arrow from its very end would belong to the next one."""
    rank_of, threads = timeline.schedule.rank_of(), np.array(_threads(timeline))
    sender = dependencies(timeline.schedule).remote
    reader = np.flatnonzero((sender >= 0) & (rank_of != rank_of[sender]))
    source = sender[reader]
    leaves_s = timeline.start_s[source] + 0.99 * (timeline.end_s[source] - timeline.start_s[source])
    columns = (
        reader.tolist(), rank_of[source].tolist(), threads[source].tolist(), _us(leaves_s),
        rank_of[reader].tolist(), threads[reader].tolist(), _us(timeline.start_s[reader]),
    )  # fmt: skip
    for i, from_rank, from_thread, leaves_us, to_rank, to_thread, arrives_us in zip(*columns, strict=True):
        common = f'{{"name":"send","cat":"send","id":{i},'
        yield f'{common}"ph":"s","pid":{from_rank},"tid":{from_thread},"ts":{leaves_us!r}}}'
        yield f'{common}"ph":"f","bp":"e","pid":{to_rank},"tid":{to_thread},"ts":{arrives_us!r}}}'


def _counters(timeline: Timeline) -> Iterator[str]:
    for rank in range(timeline.schedule.p):
        when_s, held = timeline.inflight(rank)
        latest = dict(zip(_us(when_s), held.tolist(), strict=True))  # of changes at one time only the last shows
        head = f'{{"ph":"C","name":"in-flight activations","pid":{rank},"ts":'
        for time_us, count in latest.items():
            yield f'{head}{time_us!r},"args":{{"held":{count}}}}}'


def _threads(timeline: Timeline) -> list[int]:
    second = np.r_[False, timeline.schedule.joined[:-1]]
    return np.where(second, _OVERLAPPED, _COMPUTE).tolist()  # type: ignore[no-any-return]


def _us(seconds: ArrayLike) -> list[float]:
    return np.round(np.asarray(seconds, np.float64) * 1e6, 3).tolist()  # type: ignore[no-any-return]
