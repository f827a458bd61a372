"""Traces keep the rules of their format, with messages as slices of their own."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from trace_format import problems

from pipesim.report.timeline.trace import Memory, chrome_trace, chrome_traces
from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import Links, Timeline, idle, peak_held, simulate

LINKS = (
    None,
    Links(latency_s=0.7),
    Links(latency_s=0.25, bytes_per_s=2.0, message_bytes=3.0),
    Links(latency_s=0.5, bytes_per_s=2.0, message_bytes=3.0, blocking_sends=True),
    Links(bytes_per_s=2.0, message_bytes=3.0, rendezvous=True),
)


def timeline(name: str, links: Links | None) -> Timeline:
    schedule = make_schedule(name, p=4, m=8)
    return simulate(schedule, *np.random.default_rng(1).uniform(0.001, 0.003, (3, schedule.stages)), links=links)


def slices(run: Timeline, cat: str) -> list[dict[str, Any]]:
    return [
        event
        for event in json.loads(chrome_trace(run))["traceEvents"]
        if event.get("cat") == cat and event["ph"] == "X"
    ]


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("name", schedule_names())
def test_traces_keep_the_rules_of_the_format(name: str, links: Links | None) -> None:
    run = timeline(name, links)
    assert problems(chrome_trace(run)) == []
    assert problems(chrome_traces({"one": run, "other": timeline(name, None)})) == []


def test_the_rules_are_really_checked() -> None:
    trace = json.loads(chrome_trace(timeline("1f1b", LINKS[1])))
    events = trace["traceEvents"]

    def broken(change: Any) -> list[str]:
        copied = json.loads(json.dumps(events))
        change(copied)
        return problems(json.dumps({**trace, "traceEvents": copied}))

    at = {phase: next(i for i, event in enumerate(events) if event["ph"] == phase) for phase in "XCMstf"}
    assert broken(lambda e: None) == []
    assert broken(lambda e: e[at["X"]].pop("dur"))
    assert broken(lambda e: e[at["X"]].update(dur=1e9))
    assert broken(lambda e: e[at["X"]].update(tid=77))
    assert broken(lambda e: e[at["s"]].update(ts=1e9))
    assert broken(lambda e: e.pop(at["f"]))
    assert broken(lambda e: e[at["t"]].update(tid=0))
    assert broken(lambda e: e[at["C"]].update(args={"held": "3"}))
    assert broken(lambda e: e.pop(at["M"]))


@pytest.mark.parametrize("links", LINKS[1:])
def test_every_message_is_a_slice_of_its_sender_and_of_its_reader_from_wire_to_arrival(links: Links) -> None:
    run = timeline("zb_h1", links)
    messages = run.messages()
    reads = np.flatnonzero(~np.isnan(messages.arrival_s))
    expected = sorted(
        zip(messages.sent_s[reads], messages.arrival_s[reads], run.schedule.rank_of()[reads], strict=True)
    )
    received = sorted((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["pid"]) for e in slices(run, "receive"))
    np.testing.assert_allclose(received, expected, atol=2e-9)
    sent = slices(run, "send")
    assert len(sent) == len(received)
    whole = {(e["ts"], e["dur"], e["args"]["to_rank"]) for e in sent}
    assert whole == {(e["ts"], e["dur"], e["pid"]) for e in slices(run, "receive")}


def test_threads_of_messages_are_as_few_as_fly_at_once() -> None:
    run = timeline("gpipe", Links(latency_s=0.01))
    flying = defaultdict(list)
    for event in slices(run, "send"):
        flying[event["pid"]].append((event["ts"], 1))
        flying[event["pid"]].append((round(event["ts"] + event["dur"], 3), -1))
    used = {(event["pid"], event["tid"]) for event in slices(run, "send")}
    for rank, changes in flying.items():
        most = max(np.cumsum([step for _, step in sorted(changes, key=lambda change: (change[0], change[1]))]))
        assert sum(pid == rank for pid, _ in used) == most


def test_no_message_is_shown_where_none_takes_time() -> None:
    run = timeline("1f1b", None)
    assert slices(run, "send") == slices(run, "receive") == []


def test_slices_say_what_their_rank_waited_for() -> None:
    run = timeline("1f1b", Links(latency_s=0.001))
    waited_s: dict[str, float] = defaultdict(float)
    for event in json.loads(chrome_trace(run))["traceEvents"]:
        for cause, waited_us in event.get("args", {}).get("waited_us", {}).items():
            waited_s[cause] += waited_us / 1e6
    expected = {str(cause): seconds for cause, seconds in idle(run).by_cause().items() if str(cause) != "cool down"}
    assert waited_s == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", schedule_names())
def test_the_memory_counter_rises_and_falls_with_what_is_in_flight_up_to_the_ranks_most(name: str) -> None:
    run = timeline(name, None)
    weights, most = np.arange(1.0, run.schedule.stages + 1) * 1e6, np.arange(run.schedule.p) * 1e9 + 1e10
    text = chrome_trace(run, Memory(weights, most))
    assert problems(text) == []
    held: dict[int, list[float]] = defaultdict(list)
    for event in json.loads(text)["traceEvents"]:
        if event["ph"] == "C" and event["name"] == "memory":
            held[event["pid"]].append(event["args"]["bytes"])
    assert [max(held[rank]) for rank in range(run.schedule.p)] == most.tolist()
    peaks = peak_held(run.schedule, weights / run.schedule.segments)
    assert [min(held[rank]) for rank in held] == pytest.approx((most - peaks).tolist(), abs=1)
    assert [held[rank][-1] for rank in held] == pytest.approx((most - peaks).tolist(), abs=1)
