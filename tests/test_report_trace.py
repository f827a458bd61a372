"""Timelines as a trace."""

from __future__ import annotations

from typing import Any

import pytest
from timelines import PAIR, TWO_STAGES_EACH, by_name, events, every_timeline, unit_timeline

from pipesim.schedules import make_schedule
from pipesim.schedules.action import parse
from pipesim.simulate import Timeline, simulate


def test_slices_of_the_trace_are_in_microseconds() -> None:
    timeline = simulate(make_schedule("gpipe", p=2, m=1), 0.001, 0.001, 0.001)
    slices = {event["name"]: event for event in events(timeline, "X")}
    assert (slices["1F0"]["ts"], slices["1F0"]["dur"], slices["1F0"]["pid"]) == (1000, 1000, 1)
    assert (slices["0B0"]["ts"], slices["0B0"]["dur"]) == (4000, 2000)
    assert slices["0B0"]["args"] == {"stage": 0, "op": "B", "micro_batch": 0, "waited_us": {"waiting": 3000}}


def test_every_send_of_the_trace_leaves_one_slice_and_enters_another() -> None:
    timeline = unit_timeline("1f1b", p=3, m=4)
    slices, leaving, entering = (events(timeline, phase) for phase in "Xsf")

    def slice_at(arrow: dict[str, Any]) -> dict[str, Any]:
        at = (arrow["pid"], arrow["tid"])
        [found] = [x for x in slices if (x["pid"], x["tid"]) == at and x["ts"] <= arrow["ts"] < x["ts"] + x["dur"]]
        return dict(found["args"])

    assert [arrow["id"] for arrow in leaving] == [arrow["id"] for arrow in entering]
    assert len({arrow["id"] for arrow in leaving}) == 2 * 2 * 4  # two cuts, there and back, four micro-batches
    for sent, received in zip(leaving, entering, strict=True):
        source, target = slice_at(sent), slice_at(received)
        assert (source["op"], source["micro_batch"]) == (target["op"], target["micro_batch"])
        assert target["stage"] - source["stage"] == (1 if source["op"] == "F" else -1)


def test_results_that_stay_on_a_rank_are_no_sends() -> None:
    assert len(events(simulate(parse(TWO_STAGES_EACH)), "s")) == 4  # 0-1 and 2-3, there and back; 1-2 stays


def test_both_actions_of_a_pair_have_a_thread() -> None:
    timeline = simulate(parse(PAIR))
    threads = {event["name"]: event["tid"] for event in events(timeline, "X") if event["pid"] == 0}
    assert (threads["0F2"], threads["0B0"], threads["0B2"]) == (0, 1, 0)


def test_the_trace_counts_the_activations_that_a_rank_holds() -> None:
    timeline = unit_timeline("1f1b", p=4, m=8)
    peaks = [max(e["args"]["held"] for e in events(timeline, "C") if e["pid"] == rank) for rank in range(4)]
    assert peaks == [4, 3, 2, 1]


def test_the_trace_names_its_ranks() -> None:
    names = [e["args"]["name"] for e in events(unit_timeline("gpipe", p=2, m=1), "M") if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 1"]


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_the_traces_events_equal_the_timeline(timeline: Timeline) -> None:
    slices = events(timeline, "X")
    schedule = timeline.schedule
    assert [event["name"] for event in slices] == [str(schedule.action(i)) for i in range(len(schedule))]
    assert [event["pid"] for event in slices] == schedule.rank_of().tolist()
    assert [event["ts"] for event in slices] == (timeline.start_s * 1e6).tolist()
    assert [event["dur"] for event in slices] == ((timeline.end_s - timeline.start_s) * 1e6).tolist()
    peaks = [max(e["args"]["held"] for e in events(timeline, "C") if e["pid"] == rank) for rank in range(schedule.p)]
    assert tuple(peaks) == timeline.peak_inflight
