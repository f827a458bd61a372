"""The rules of Chrome's Trace Event Format that a trace of ours must keep, as sentences about what breaks them.

Source: Google, "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU,
sections "JSON Object Format", "Duration", "Complete", "Counter", "Flow" and "Metadata Events".
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Event = dict[str, Any]

NEEDED = {
    "X": ("name", "cat", "ts", "dur", "pid", "tid", "args"),
    "C": ("name", "ts", "pid", "args"),
    "M": ("name", "pid", "args"),
    "s": ("name", "cat", "id", "ts", "pid", "tid"),
    "t": ("name", "cat", "id", "ts", "pid", "tid"),
    "f": ("name", "cat", "id", "ts", "pid", "tid", "bp"),
}
SAID = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


def problems(text: str) -> list[str]:
    trace = json.loads(text, parse_constant=lambda word: _no_json(word))
    events: list[Event] = trace["traceEvents"]
    found = [f"displayTimeUnit {trace['displayTimeUnit']}"] if trace["displayTimeUnit"] not in ("ms", "ns") else []
    for event in events:
        found += _fields(event)
    return found or [*_slices(events), *_flows(events), *_counters(events), *_names(events)]


def _no_json(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _fields(event: Event) -> Iterator[str]:
    phase = event.get("ph")
    if phase not in NEEDED:
        yield f"unknown phase {phase!r}"
        return
    for key in NEEDED[phase]:
        if key not in event:
            yield f"{phase} lacks {key}: {event}"
    for key in ("ts", "dur"):
        value = event.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            yield f"{key} is no number: {event}"
    if event.get("dur", 0) < 0:
        yield f"negative duration: {event}"
    for key in ("pid", "tid"):
        if not isinstance(event.get(key, 0), int):
            yield f"{key} is no whole number: {event}"


def _ns(event: Event) -> tuple[int, int]:
    """As viewers read it: start and end in nanoseconds."""
    start = round(1000 * event["ts"])
    return start, start + round(1000 * event["dur"])


def _threads(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def _slices(events: list[Event]) -> Iterator[str]:
    """On a thread slices nest or lie apart; ours lie apart."""
    for own in _threads(events).values():
        for one, other in pairwise(sorted(own, key=_ns)):
            if _ns(other)[0] < _ns(one)[1]:
                yield f"slices overlap: {one} and {other}"


def _flows(events: list[Event]) -> Iterator[str]:
    """Each begins once and ends once, goes forward in time, and every event of it lies on a slice."""
    threads, flows = _threads(events), defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event["cat"], event["id"]].append(event)
    for key, own in flows.items():
        phases = "".join(event["ph"] for event in own)
        if phases != f"s{phases[1:-1]}f" or phases[1:-1].strip("t"):
            yield f"flow {key} has the phases {phases}"
        if any(one["ts"] > other["ts"] for one, other in pairwise(own)):
            yield f"flow {key} goes back in time"
        for event in own:
            at = round(1000 * event["ts"])
            if not any(_ns(s)[0] <= at <= _ns(s)[1] for s in threads[event["pid"], event["tid"]]):
                yield f"flow {key} touches no slice at {event}"


def _counters(events: list[Event]) -> Iterator[str]:
    """Series of numbers, of one name and process the same series, in order of time."""
    series = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            series[event["pid"], event["name"]].append(event)
            if not event["args"] or not all(type(value) in (int, float) for value in event["args"].values()):
                yield f"a counter counts numbers: {event}"
    for own in series.values():
        if len({tuple(event["args"]) for event in own}) > 1 or own != sorted(own, key=lambda event: float(event["ts"])):
            yield f"a counter changes its series or its order: {own[0]}"


def _names(events: list[Event]) -> Iterator[str]:
    """Every process and thread that has slices has one name."""
    said = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            if event["name"] not in SAID or SAID[event["name"]] not in event["args"]:
                yield f"unknown metadata: {event}"
            said[event["name"], event["pid"], event.get("tid") if "thread" in event["name"] else None].append(event)
    for pid, tid in _threads(events):
        for key in (("process_name", pid, None), ("thread_name", pid, tid)):
            if len(said[key]) != 1:
                yield f"{key} is said {len(said[key])} times"
