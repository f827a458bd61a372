"""The report of a schedule that really ran, from made-up runs; it needs no torch."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipesim.report import figures, html, markdown
from pipesim.report.document import Document, Observations, Table, TimelineView
from pipesim.report.execute.facts import Agreement, Execution, Fact, LinkCost, StageCost, Traffic
from pipesim.report.execute.page import execute_page, signed
from pipesim.report.timeline.trace import chrome_trace, chrome_traces
from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import Beside, simulate
from pipesim.simulate.timeline import Timeline
from pipesim.tasks.execute.spans import spans_parquet


def slower(timeline: Timeline, factor: float) -> Timeline:
    """The same run, as measured on a machine that takes ``factor`` times as long."""
    return Timeline(schedule=timeline.schedule, start_s=timeline.start_s * factor, end_s=timeline.end_s * factor)


def beside(name: str = "1f1b", factors: tuple[float, ...] = (1.0, 1.25, 0.8), p: int = 2, m: int = 4) -> Beside:
    simulated = simulate(make_schedule(name, p=p, m=m), 0.03, 0.03, 0.03, latency_s=0.001)
    return Beside(simulated=simulated, measured=tuple(slower(simulated, factor) for factor in factors))


def ran(**changes: Any) -> Execution:
    """A run that bears out every claim, but for ``changes``."""
    found = changes.pop("beside", beside(factors=(1.0, 1.05, 0.98)))
    execution = Execution(
        beside=found,
        asked=(Fact("schedule", "text", "1f1b"),),
        mode="processes",
        processes=2,
        cores=2,
        core_share=0.99,
        peaks=found.simulated.peak_inflight,
        traffic=(Traffic(0, 1, 4096, 4096), Traffic(1, 0, 4096, 4096)),
        agreements=(Agreement("the uncut model", 0.0, "–", 0.0, 0.0, 1e-5),),
        stage_costs=(StageCost(0, 0, "embedding", 0.03, 0.06, None, None, None),),
        link_costs=(LinkCost("0 – 1", 1e-4, 2e-4, 4096),),
    )
    return replace(execution, **changes)


def said(document: Document) -> str:
    blocks = [block for section in document.sections for block in section.blocks]
    return "\n".join(claim for block in blocks if isinstance(block, Observations) for claim in block.claims)


def table(document: Document, title: str) -> Table:
    blocks = [block for section in document.sections for block in section.blocks]
    (found,) = [block for block in blocks if isinstance(block, Table) and block.title == title]
    return found


def warned(document: Document) -> list[str]:
    return [b for b in document.sections[0].blocks if isinstance(b, str) and b.startswith("Warning")]


def test_errors_are_of_the_prediction_relative_to_each_measured_run() -> None:
    np.testing.assert_allclose(beside().errors, [0.0, -0.2, 0.25])


@pytest.mark.parametrize(("factors", "typical"), [((1.0, 1.25, 0.8), 0), ((1.0, 1.25, 0.8, 0.9), 3), ((2.0,), 0)])
def test_the_typical_run_is_that_of_the_median_makespan(factors: tuple[float, ...], typical: int) -> None:
    found = beside(factors=factors)
    assert found.typical is found.measured[typical]


@pytest.mark.parametrize("name", schedule_names())
def test_the_causes_of_a_rank_add_up_to_its_idle_time(name: str) -> None:
    found = beside(name)
    for timeline, column in ((found.simulated, 2), (found.typical, 3)):
        idle_s = np.zeros(2)
        for line in found.idle():
            idle_s[line.rank] += line[column]
        np.testing.assert_allclose(idle_s, timeline.makespan_s - timeline.busy_s, atol=1e-12)


def test_a_run_of_another_schedule_stands_beside_nothing() -> None:
    with pytest.raises(AssertionError, match="another schedule"):
        Beside(simulated=beside().simulated, measured=beside("gpipe").measured)


def test_a_good_run_says_all_that_it_bears_out() -> None:
    text = said(execute_page(ran()))
    for words in (
        "within 10.0 %",
        "one cause",
        "at most 2, 1 activations",
        "8,192 in all",
        "Every bit of every gradient",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("changes", "unsaid"),
    [
        ({"beside": beside(factors=(1.3, 1.2, 1.0))}, "within 10.0 %"),
        ({"cores": 1}, "within 10.0 %"),
        ({"peaks": (3, 1)}, "activations at once"),
        ({"traffic": (Traffic(0, 1, 4096, 4097),)}, "Every link"),
        ({"agreements": (Agreement("the uncut model", 1e-6, "a", 0.0, 0.0, 1e-5),)}, "Every bit"),
        ({"agreements": (Agreement("the uncut model", 1e-3, "a", 0.0, 0.0, 1e-5),)}, "gradient"),
        ({"agreements": (Agreement("the uncut model", float("nan"), "a", 0.0, 0.0, 1e-5),)}, "gradient"),
    ],
)
def test_what_a_run_does_not_bear_out_is_not_said(changes: dict[str, Any], unsaid: str) -> None:
    assert unsaid not in said(execute_page(ran(**changes)))


def test_rounding_is_told_with_its_size() -> None:
    near = Agreement("the uncut model", 4e-7, "a", 0.0, 0.0, 1e-5)
    assert "by more than 4.00e-7 of its largest element" in said(execute_page(ran(agreements=(near,))))


def test_a_difference_that_is_no_number_is_no_agreement() -> None:
    assert Agreement("x", 0.0, "–", None, 0.0, 1e-5).equal
    assert not Agreement("x", float("nan"), "a", None, 0.0, 1e-5).equal
    assert not Agreement("x", 0.0, "–", 0.0, float("nan"), 1e-5).equal


def test_a_quiet_machine_with_a_core_for_each_rank_gives_no_warning() -> None:
    assert warned(execute_page(ran())) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"processes": 8}, "8 ranks share 2 cores"),
        ({"core_share": 0.5}, "only 50.0 %"),
        ({"mode": "threads"}, "Python's lock"),
        ({"unlike_copies": ("head.weight",)}, "head.weight"),
    ],
)
def test_what_makes_times_doubtful_is_told_first(changes: dict[str, Any], words: str) -> None:
    (warning,) = warned(execute_page(ran(**changes)))
    assert words in warning


def test_the_answer_tells_prediction_measurement_and_spread() -> None:
    answer = execute_page(ran(beside=beside())).sections[0].blocks[0]
    assert isinstance(answer, str)
    assert "median of 3 runs" in answer
    assert "is +0.0 % in the median (-20.0 % to +25.0 %)" in answer
    assert (signed(0.0312), signed(-0.2)) == ("+3.1 %", "-20.0 %")


def test_every_rank_link_and_repeat_has_its_line() -> None:
    document = execute_page(ran(peaks=(2, 2)))
    assert table(document, "Most activations held at once").rows == ((0, 2, 2, True), (1, 1, 2, False))
    assert table(document, "Bytes of one step on every link").rows[0] == (0, 1, 4096, 4096, True)
    assert len(table(document, "Makespan, predicted and measured").rows) == 3 + 1


def test_both_timelines_share_one_axis() -> None:
    views = [b for s in execute_page(ran(beside=beside())).sections for b in s.blocks if isinstance(b, TimelineView)]
    assert [view.slug for view in views] == ["simulated", "measured"]
    assert views[0].until_s == views[1].until_s == max(view.timeline.makespan_s for view in views)


def test_a_run_on_one_rank_has_a_report_without_links() -> None:
    alone = ran(beside=beside("gpipe", p=1), traffic=(), link_costs=(), processes=1)
    titles = [b.title for s in execute_page(alone).sections for b in s.blocks if isinstance(b, Table)]
    assert not {title for title in titles if "link" in title or "message" in title}


def test_the_report_renders_everywhere() -> None:
    document = execute_page(ran())
    drawn = figures.figures(document)
    assert set(drawn) == {"simulated.svg", "measured.svg"}
    assert "Observations" in markdown.to_markdown(document)
    assert "Idle time of every rank by cause" in html.to_html(document, drawn)


@pytest.mark.parametrize("name", ["1f1b", "dualpipe", "chimera"])
def test_a_trace_of_both_has_the_events_of_each_with_processes_of_its_own(name: str) -> None:
    found = beside(name)
    both = json.loads(chrome_traces({"simulated": found.simulated, "measured": found.typical}))["traceEvents"]
    first, second = (json.loads(chrome_trace(each))["traceEvents"] for each in (found.simulated, found.typical))
    assert len(both) == len(first) + len(second)
    spans = [[event for event in events if event["ph"] != "M"] for events in (both, first, second)]
    shifted = [event | {"pid": event["pid"] + 2} for event in spans[2]]
    ids = len(found.simulated.schedule)
    shifted = [event | {"id": event["id"] + ids} if "id" in event else event for event in shifted]
    assert spans[0] == spans[1] + shifted


def test_a_trace_of_both_says_whose_ranks_are_whose() -> None:
    found = beside()
    events = json.loads(chrome_traces({"simulated": found.simulated, "measured": found.typical}))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "simulated, rank 0", 1: "simulated, rank 1", 2: "measured, rank 0", 3: "measured, rank 1"}


def test_the_spans_have_a_row_for_every_action_and_an_entry_for_every_repeat() -> None:
    found = beside("zb_h1")
    rows = pq.read_table(io.BytesIO(spans_parquet(found))).to_pylist()
    assert [f"{row['stage']}{row['op']}{row['micro_batch']}" for row in rows] == [
        str(found.simulated.schedule.action(at)) for at in range(len(rows))
    ]
    assert [row["simulated_end_s"] for row in rows] == found.simulated.end_s.tolist()
    assert [row["measured_end_s"][1] for row in rows] == found.measured[1].end_s.tolist()
    assert {len(row["measured_start_s"]) for row in rows} == {3}
