"""A timeline as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipesim.report.timeline.lanes import lanes
from pipesim.schedules.action import Op
from pipesim.schedules.rules import dependencies
from pipesim.simulate.causes import Cause, idle
from pipesim.simulate.memory import curve, held_change
from pipesim.simulate.timeline import Timeline

_COMPUTE, _OVERLAPPED, _SEND, _RECEIVE = 0, 1, 100, 200
"""Threads; the second action of an overlapped pair has its own, so that arrows meet the action they mean. Messages that
are on their way at the same time have threads beside each other, because slices of one thread must not overlap.
"""

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]


class _Hops(NamedTuple):
    """Messages that take time to travel, by the action that reads them: shape (messages,) each."""

    reader: IntColumn
    start_us: FloatColumn
    end_us: FloatColumn
    send_thread: IntColumn
    receive_thread: IntColumn


class Memory(NamedTuple):
    """Bytes that each stage holds for a whole micro-batch in flight, shape (stages,), and that each rank holds at most,
    shape (p,).
    """

    stage_bytes: ArrayLike
    rank_bytes: ArrayLike


class _Group(NamedTuple):
    """A timeline among others: what stands before its ranks' names, and its first process and first arrow."""

    timeline: Timeline
    title: str = ""
    process: int = 0
    arrow: int = 0
    memory: Memory | None = None


def chrome_trace(timeline: Timeline, memory: Memory | None = None) -> str:
    """JSON with ranks as processes, actions and messages as slices, sends as arrows and held activations as counters; with
    ``memory`` a counter of bytes too.

    A message that takes time is a slice on a thread of its sender and on one of its reader, from when it goes on the
    wire until it is there. What an action waited for stands in its slice, in microseconds by cause.

    The format's time is microseconds: a timeline in abstract units shows one unit as one second. Of bidirectional
    schedules each slice says at which rank its micro-batch enters. Events are put together as text, which takes a
    fifth of the time of making them objects first.
    """
    return _trace([_Group(timeline, memory=memory)])


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
    events = [event for group in groups for event in _events(group)]
    return f'{{"displayTimeUnit":"ms","traceEvents":[{",".join(events)}]}}'


def _events(group: _Group) -> Iterator[str]:
    hops = _hops(group.timeline)
    yield from _names(group, hops)
    yield from _slices(group)
    yield from _messages(group, hops)
    yield from _arrows(group, hops)
    yield from _counters(group)


def _names(group: _Group, hops: _Hops) -> Iterator[str]:
    schedule = group.timeline.schedule
    source, target = _ends(group.timeline, hops.reader)
    used = sorted(
        {*zip(source, hops.send_thread.tolist(), strict=True), *zip(target, hops.receive_thread.tolist(), strict=True)}
    )
    overlapped_ranks = set(schedule.rank_of()[schedule.joined].tolist())
    for rank in range(schedule.p):
        process = group.process + rank
        yield _about(process, "process_name", {"name": f"{group.title}rank {rank}"})
        yield _about(process, "process_sort_index", {"sort_index": process})
        yield _about(process, "thread_name", {"name": "compute"}, _COMPUTE)
        if rank in overlapped_ranks:
            yield _about(process, "thread_name", {"name": "overlapped"}, _OVERLAPPED)
        for thread in (thread for at, thread in used if at == rank):
            yield _about(process, "thread_name", {"name": _thread_name(thread)}, thread)


def _about(process: int, name: str, args: dict[str, str | int], thread: int | None = None) -> str:
    where = {"pid": process} if thread is None else {"pid": process, "tid": thread}
    return json.dumps({"ph": "M", "name": name, **where, "args": args}, separators=(",", ":"))


def _thread_name(thread: int) -> str:
    word, first = ("send", _SEND) if thread < _RECEIVE else ("receive", _RECEIVE)
    return word if thread == first else f"{word} {thread - first + 1}"


def _slices(group: _Group) -> Iterator[str]:
    timeline, schedule = group.timeline, group.timeline.schedule
    of, waits = lanes(schedule), _waits(timeline)
    ways = [f',"enters_at_rank":{rank}' if of.back_micro_batches else "" for rank in range(schedule.p)]
    start_us, end_us = (np.array(_us(edge)) for edge in (timeline.start_s, timeline.end_s))
    columns = (
        (group.process + schedule.rank_of()).tolist(), _threads(timeline), schedule.stage.tolist(), schedule.op.tolist(),
        schedule.micro_batch.tolist(), of.enters_at.tolist(), start_us.tolist(), _rounded(end_us - start_us), waits,
    )  # fmt: skip
    letters = [op.name for op in Op]
    for process, thread, stage, number, micro_batch, enters_at, begin_us, took_us, waited in zip(*columns, strict=True):
        op = letters[number]
        yield (
            f'{{"ph":"X","name":"{stage}{op}{micro_batch}","cat":"{op}","pid":{process},"tid":{thread},"ts":{begin_us!r},'
            f'"dur":{took_us!r},"args":{{"stage":{stage},"op":"{op}","micro_batch":{micro_batch}{ways[enters_at]}{waited}}}}}'
        )


def _waits(timeline: Timeline) -> list[str]:
    """Of each action the members that say for what causes its rank waited before it, or ""."""
    waited_us = np.round(idle(timeline).by_action() * 1e6, 3)
    found = [""] * len(waited_us)
    for i in np.flatnonzero(waited_us.any(axis=1)).tolist():
        causes = {str(Cause(cause)): float(waited_us[i, cause]) for cause in np.flatnonzero(waited_us[i]).tolist()}
        found[i] = f',"waited_us":{json.dumps(causes, separators=(",", ":"))}'
    return found


def _hops(timeline: Timeline) -> _Hops:
    messages = timeline.messages()
    reader = np.flatnonzero(messages.arrival_s > messages.sent_s)
    start_us, end_us = (np.array(_us(edge[reader])) for edge in (messages.sent_s, messages.arrival_s))
    source, target = _ends(timeline, reader)
    threads = (_SEND + _side_by_side(source, start_us, end_us), _RECEIVE + _side_by_side(target, start_us, end_us))
    return _Hops(reader, start_us, end_us, *threads)


def _ends(timeline: Timeline, reader: IntColumn) -> tuple[list[int], list[int]]:
    """The ranks that send, and that read, what these actions need."""
    rank_of = timeline.schedule.rank_of()
    return rank_of[dependencies(timeline.schedule).remote[reader]].tolist(), rank_of[reader].tolist()


def _side_by_side(rank: list[int], start_us: FloatColumn, end_us: FloatColumn) -> IntColumn:
    """Numbers such that intervals of one rank and number never overlap: of the free ones always the smallest."""
    number = np.zeros(len(rank), np.int64)
    busy: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    for i in np.lexsort((end_us, start_us)).tolist():
        until, idle_numbers = busy.setdefault(rank[i], []), free.setdefault(rank[i], [])
        while until and until[0][0] <= start_us[i]:
            heapq.heappush(idle_numbers, heapq.heappop(until)[1])
        number[i] = heapq.heappop(idle_numbers) if idle_numbers else len(until)
        heapq.heappush(until, (float(end_us[i]), int(number[i])))
    return number


def _messages(group: _Group, hops: _Hops) -> Iterator[str]:
    schedule = group.timeline.schedule
    source, target = _ends(group.timeline, hops.reader)
    made = dependencies(schedule).remote[hops.reader].tolist()
    columns = (
        made, source, target, hops.send_thread.tolist(), hops.receive_thread.tolist(), hops.start_us.tolist(),
        _rounded(hops.end_us - hops.start_us),
    )  # fmt: skip
    for action, sender, reader, send, receive, start_us, took_us in zip(*columns, strict=True):
        name = str(schedule.action(action))
        for word, rank, other, thread in (("send", sender, reader, send), ("receive", reader, sender, receive)):
            yield (
                f'{{"ph":"X","name":"{word} {name}","cat":"{word}","pid":{group.process + rank},"tid":{thread},'
                f'"ts":{start_us!r},"dur":{took_us!r},"args":{{"{"to" if word == "send" else "from"}_rank":{other}}}}}'
            )


def _arrows(group: _Group, hops: _Hops) -> Iterator[str]:
    """From just inside the sending slice, because an arrow from its very end would belong to the next one; over the
    message's own slices, if it takes time.
    """
    timeline = group.timeline
    rank_of, threads = timeline.schedule.rank_of(), np.array(_threads(timeline))
    sender = dependencies(timeline.schedule).remote
    reader = np.flatnonzero((sender >= 0) & (rank_of != rank_of[sender]))
    source = sender[reader]
    leaves_s = timeline.start_s[source] + 0.99 * (timeline.end_s[source] - timeline.start_s[source])
    process_of = group.process + rank_of
    columns = (
        reader.tolist(), process_of[source].tolist(), threads[source].tolist(), _us(leaves_s),
        process_of[reader].tolist(), threads[reader].tolist(), _us(timeline.start_s[reader]),
    )  # fmt: skip
    hop_of = dict(zip(hops.reader.tolist(), range(len(hops.reader)), strict=True))
    for i, source_process, from_thread, leaves_us, reader_process, to_thread, arrives_us in zip(*columns, strict=True):
        common = f'{{"name":"send","cat":"send","id":{group.arrow + i},'
        yield f'{common}"ph":"s","pid":{source_process},"tid":{from_thread},"ts":{leaves_us!r}}}'
        if i in hop_of:
            at = hop_of[i]
            quarter_us = (hops.end_us[at] - hops.start_us[at]) / 4
            for process, thread, part in (
                (source_process, hops.send_thread[at], 1),
                (reader_process, hops.receive_thread[at], 3),
            ):
                when_us = round(float(hops.start_us[at] + part * quarter_us), 3)
                yield f'{common}"ph":"t","pid":{process},"tid":{thread},"ts":{when_us!r}}}'
        yield f'{common}"ph":"f","bp":"e","pid":{reader_process},"tid":{to_thread},"ts":{arrives_us!r}}}'


def _counters(group: _Group) -> Iterator[str]:
    for rank in range(group.timeline.schedule.p):
        when_s, held = group.timeline.inflight(rank)
        latest = dict(zip(_us(when_s), held.tolist(), strict=True))  # of changes at one time only the last shows
        head = f'{{"ph":"C","name":"in-flight activations","pid":{group.process + rank},"ts":'
        for time_us, count in latest.items():
            yield f'{head}{time_us!r},"args":{{"held":{count}}}}}'
        if group.memory is not None:
            yield from _bytes_held(group, rank, group.memory)


def _bytes_held(group: _Group, rank: int, memory: Memory) -> Iterator[str]:
    """What comes and goes is the activations in flight; all else is there all the time."""
    timeline, schedule = group.timeline, group.timeline.schedule
    each = np.asarray(memory.stage_bytes, np.float64)[schedule.stage] / schedule.segments
    when_s, held = curve(schedule, timeline.start_s, timeline.end_s, held_change(schedule) * each, rank)
    always = float(np.asarray(memory.rank_bytes, np.float64)[rank] - held.max(initial=0.0))
    latest = {0.0: always} | dict(zip(_us(when_s), (always + held).round().tolist(), strict=True))
    head = f'{{"ph":"C","name":"memory","pid":{group.process + rank},"ts":'
    for time_us, total in latest.items():
        yield f'{head}{time_us!r},"args":{{"bytes":{total!r}}}}}'


def _threads(timeline: Timeline) -> list[int]:
    second = np.r_[False, timeline.schedule.joined[:-1]]
    return np.where(second, _OVERLAPPED, _COMPUTE).tolist()  # type: ignore[no-any-return]


def _us(seconds: ArrayLike) -> list[float]:
    return _rounded(np.asarray(seconds, np.float64) * 1e6)


def _rounded(microseconds: FloatColumn) -> list[float]:
    """To nanoseconds, the finest that viewers know."""
    return np.round(microseconds, 3).tolist()  # type: ignore[no-any-return]
