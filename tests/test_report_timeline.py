"""Timelines as text, as SVG and as a trace."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from xml.etree import ElementTree

import pytest

from pipesim.report import timeline_svg, timeline_text
from pipesim.report.trace import chrome_trace
from pipesim.schedules import make_schedule
from pipesim.schedules.action import parse
from pipesim.simulate import Timeline, simulate

GPIPE = """\
rank 0 | F0F1F2F3··················b0b0b1b1b2b2b3b3
rank 1 | ··F0F1F2F3············b0b0b1b1b2b2b3b3····
rank 2 | ····F0F1F2F3······b0b0b1b1b2b2b3b3········
rank 3 | ······F0F1F2F3b0b0b1b1b2b2b3b3············"""

TWO_STAGES_EACH = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0"
PAIR = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0I1,0W1,0B2\n1F0,1B0,1F1,1I1,1W1,1F2,1B2"
SVG = "{http://www.w3.org/2000/svg}"


def unit_timeline(name: str, p: int, m: int) -> Timeline:
    return simulate(make_schedule(name, p=p, m=m))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def events(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(chrome_trace(timeline))["traceEvents"] if event["ph"] == phase]


def test_gpipe_reads_as_in_the_textbook() -> None:
    assert timeline_text.draw(unit_timeline("gpipe", p=4, m=4), 1.0) == GPIPE


def test_idle_cells_show_as_dots() -> None:
    row = timeline_text.draw(unit_timeline("naive", p=2, m=1), 1.0).splitlines()[1]
    assert row == "rank 1 | ··F0b0b0····"


def test_a_larger_unit_needs_fewer_cells() -> None:
    timeline = simulate(make_schedule("gpipe", p=2, m=1), 4, 4, 4)
    assert timeline_text.draw(timeline, 4.0) == "rank 0 | F0······b0b0\nrank 1 | ··F0b0b0····"


def test_all_cells_are_as_wide_as_the_widest_label() -> None:
    lines = timeline_text.draw(unit_timeline("1f1b", p=3, m=12), 1.0).splitlines()
    assert lines[0].startswith("rank 0 | F0 F1 F2 ···")
    assert {len(line) for line in lines} == {len("rank 0 | ") + 3 * 42}


def test_with_several_stages_a_capital_says_which() -> None:
    first, second = timeline_text.draw(simulate(parse(TWO_STAGES_EACH)), 1.0).splitlines()
    assert first == "rank 0 | AF0······BF0Bb0Bb0············Ab0Ab0"
    assert second == "rank 1 | ···AF0BF0·········Bb0Bb0Ab0Ab0······"


def test_an_overlapped_pair_shows_both_actions() -> None:
    assert timeline_text.draw(simulate(parse(PAIR), 2, 1, 1), 1.0).splitlines()[0] == (
        "rank 0 | F0F0F1F1····F2F2b0b0i1w1····b2b2"
    )


def test_a_pair_in_one_cell_still_shows_both() -> None:
    timeline = simulate(parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1"), 1, 0, 0)
    assert timeline_text.draw(timeline, 1.0) == "rank 0 | F0  F1b0"


def test_times_between_cells_are_refused_with_the_action_named() -> None:
    with pytest.raises(ValueError, match=r"unit_s=1\.0 does not fit 0F0, which runs from 0 to 1\.5"):
        timeline_text.draw(simulate(make_schedule("gpipe", p=2, m=2), 1.5), 1.0)


@pytest.mark.parametrize("unit_s", [0.0, -1.0, float("nan")])
def test_a_unit_that_is_no_length_is_refused(unit_s: float) -> None:
    with pytest.raises(ValueError, match="must be a finite number above 0"):
        timeline_text.draw(unit_timeline("gpipe", p=2, m=2), unit_s)


def test_the_picture_names_both_bubble_figures() -> None:
    subtitle = texts(timeline_svg.draw(unit_timeline("gpipe", p=4, m=4), "GPipe"))[1]
    assert "bubble fraction (idle/total) 42.9 %" in subtitle
    assert "bubble overhead (idle/useful) 75.0 %" in subtitle
    assert "makespan 21 units" in subtitle


def test_a_chinese_picture_keeps_the_terms_and_explains_them() -> None:
    svg = timeline_svg.draw(unit_timeline("gpipe", p=4, m=4), "流水线", language="zh")
    assert "bubble fraction（空闲/总时间） 42.9 %" in texts(svg)[1]


def test_seconds_are_drawn_in_a_human_unit() -> None:
    svg = timeline_svg.draw(simulate(make_schedule("gpipe", p=2, m=2), 0.001, 0.001, 0.001), "GPipe", unit="seconds")
    assert "time (ms)" in texts(svg)
    assert "makespan 9.0 ms" in svg


def test_every_action_has_a_bar_at_its_time_with_a_tooltip() -> None:
    timeline = unit_timeline("1f1b", p=2, m=3)
    svg = ElementTree.fromstring(timeline_svg.draw(timeline, "1F1B"))
    bars = [path for path in svg.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    tooltips = [bar.findtext(f"{SVG}title") for bar in bars]
    assert tooltips[:2] == ["0F0: 0 – 1", "0F1: 1 – 2"]
    assert len(tooltips) == len(timeline.schedule)
    lefts = [int(bar.attrib["d"][1:].split()[0]) for bar in bars]
    last = timeline.makespan_s - 2  # the last backward of rank 0
    assert lefts[5] / lefts[1] == pytest.approx(last, rel=1e-3)


def test_both_actions_of_a_pair_are_seen() -> None:
    svg = ElementTree.fromstring(timeline_svg.draw(simulate(parse(PAIR)), "pair"))
    bars = {path.findtext(f"{SVG}title", "").split(":")[0]: path for path in svg.iter(f"{SVG}path")}
    forward, backward = (bars[name].attrib["d"].split("h")[0].split() for name in ("0F2", "0B0"))
    assert forward[0] == backward[0]
    assert float(backward[1]) - float(forward[1]) == float(bars["0F2"].attrib["stroke-width"])


def test_numbers_stand_only_where_they_fit() -> None:
    assert texts(timeline_svg.draw(unit_timeline("gpipe", p=2, m=4), "few")).count("3") == 4
    assert "101" not in texts(timeline_svg.draw(unit_timeline("gpipe", p=2, m=128), "many"))


def test_a_name_cannot_break_out_of_the_picture() -> None:
    svg = timeline_svg.draw(unit_timeline("gpipe", p=2, m=2), '<script>"&\x00')
    assert "<script" not in svg
    assert texts(svg)[0] == '<script>"&\ufffd'


def test_a_real_training_step_stays_a_small_picture() -> None:
    assert len(timeline_svg.draw(unit_timeline("1f1b", p=12, m=128), "BLOOM").encode()) < 600_000


def test_a_huge_schedule_is_drawn_quickly_and_loses_no_work() -> None:
    timeline = unit_timeline("1f1b", p=64, m=1024)
    begin = time.perf_counter()
    svg = timeline_svg.draw(timeline, "huge")
    assert time.perf_counter() - begin < 5
    assert len(svg.encode()) < 2_000_000
    paths = [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("class", "")[0] in "FB"]
    drawn_steps = sum(int(length) for path in paths for length in re.findall(r"h(\d+)", path.attrib["d"]))
    row_width = max(float(rect.attrib["width"]) for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect"))
    whole_steps = 64 * 10 * row_width
    assert len(paths) == 4
    assert 1 - drawn_steps / whole_steps == pytest.approx(timeline.bubble_fraction, abs=1e-3)


def test_two_drawings_are_the_same_bytes() -> None:
    timeline = unit_timeline("1f1b", p=4, m=8)
    assert timeline_svg.draw(timeline, "a") == timeline_svg.draw(timeline, "a")
    assert chrome_trace(timeline) == chrome_trace(timeline)


def test_slices_of_the_trace_are_in_microseconds() -> None:
    timeline = simulate(make_schedule("gpipe", p=2, m=1), 0.001, 0.001, 0.001)
    slices = {event["name"]: event for event in events(timeline, "X")}
    assert (slices["1F0"]["ts"], slices["1F0"]["dur"], slices["1F0"]["pid"]) == (1000, 1000, 1)
    assert (slices["0B0"]["ts"], slices["0B0"]["dur"]) == (4000, 2000)
    assert slices["0B0"]["args"] == {"stage": 0, "op": "B", "micro_batch": 0}


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
