"""Bars, heat maps, curves and parallel coordinates, drawn and interactive: right values, units, escaping, the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from pipesim.report import charts, plots
from pipesim.report.charts.bars import stacked
from pipesim.report.charts.lines import upright
from pipesim.report.document import Axis, Bars, Curves, HeatMap, Line, Panel, Parallel, Picture

EVIL = "<script>alert(1)</script> $x$ 布局"
SECONDS = Axis(title="step " + EVIL, kind="seconds")
NAMES = {"title": "T " + EVIL, "caption": "C"}

BARS = Bars(
    slug="bars",
    **NAMES,
    x=Axis(title="memory", kind="bytes"),
    items=("weights", "nothing", EVIL),
    bars=(("t4 p12", (20e9, 0.0, 5e9)), (EVIL, (50e9, 0.0, 40e9))),
    x_limit=(80e9, "80 GB a GPU"),
)
MAP = HeatMap(
    slug="map",
    **NAMES,
    x_title="t",
    y_title="p",
    xs=("1", "2"),
    ys=("6", "12"),
    value=SECONDS,
    panels=(
        Panel(title=EVIL, squares=((9.0, "▲"), (8.0, "×")), names=(("a", "b"), (EVIL, "d"))),
        Panel(title="b2", squares=(("", 7.5), (7.0, 7.0)), names=(("a", "b"), ("c", "d"))),
    ),
)
CURVES = Curves(
    slug="curves",
    **NAMES,
    x=Axis(title="m", kind="count", log=True),
    y=SECONDS,
    lines=(
        Line(name=EVIL, points=((1, 9.0), (2, 8.0), (4, 8.5)), labels=("a", EVIL, "c"), hollow=frozenset({2}), best=1),
        Line(name="other", points=((1, 9.5), (2, 8.5)), labels=("a", "b")),
    ),
)
PARALLEL = Parallel(
    slug="parallel",
    **NAMES,
    axes=(Axis(title="schedule " + EVIL, kind="text"), Axis(title="memory", kind="bytes"), SECONDS),
    choices=(("1f1b", EVIL), (), ()),
    rows=(("1f1b", 40e9, 100.0), (EVIL, 60e9, 120.0), ("1f1b", 50e9, 110.0)),
)
PICTURES = (BARS, MAP, CURVES, PARALLEL)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.slug)
def test_a_picture_is_xml_with_its_title_and_units_as_text_and_the_same_bytes_every_time(picture: Picture) -> None:
    drawn = charts.draw(picture)
    assert drawn == charts.draw(picture)
    text = " ".join(ElementTree.fromstring(drawn).itertext())
    assert "T <script>alert(1)</script> $x$ 布局" in text
    assert "(GB)" in text if picture in (BARS, PARALLEL) else "(s)" in text


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.slug)
def test_plotly_reads_no_name_as_html(picture: Picture) -> None:
    told = json.dumps(plots.plot(picture), ensure_ascii=False)
    assert "<script>" not in told
    assert "&lt;script&gt;" in told


def bars_of(plot: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in plot["data"] if trace["type"] == "bar"]


def test_the_parts_of_a_bar_sum_to_its_total_and_empty_items_are_left_out() -> None:
    found = stacked(BARS)
    assert found.totals == ["25.0 GB", "90.0 GB"]
    assert list(found.parts) == ["weights", EVIL]
    traces = bars_of(plots.plot(BARS))
    assert [sum(parts) for parts in zip(*(trace["x"] for trace in traces), strict=True)] == [25.0, 90.0]


def test_the_limit_of_bars_is_drawn_in_their_unit() -> None:
    lines = [trace for trace in plots.plot(BARS)["data"] if trace.get("mode") == "lines"]
    assert [line["x"] for line in lines] == [[80.0, 80.0]]


def test_more_items_than_colours_are_striped() -> None:
    many = replace(BARS, items=tuple(f"i{k}" for k in range(9)), bars=(("a", (1e9,) * 9),))
    looks = [(trace["marker"]["color"], "pattern" in trace["marker"]) for trace in bars_of(plots.plot(many))]
    assert len(set(looks)) == 9


def test_bars_refuse_negative_parts() -> None:
    with pytest.raises(AssertionError):
        replace(BARS, bars=(("a", (1.0, -1.0, 0.0)),))


def test_a_map_marks_the_smallest_value_of_all_panels_the_first_of_equals() -> None:
    assert MAP.best() == (1, 1, 0)
    texts = [text for trace in plots.plot(MAP)["data"] for row in trace["text"] for text in row]
    assert [text for text in texts if "★" in text] == ["7 ★"]


def test_squares_without_a_value_show_their_sign() -> None:
    plot = plots.plot(MAP)
    assert plot["data"][0]["z"] == [[9.0, None], [8.0, None]]
    notes = {note["text"] for note in plot["layout"]["annotations"]}
    assert {"▲", "×"} <= notes
    text = " ".join(ElementTree.fromstring(charts.draw(MAP)).itertext())
    assert "▲" in text
    assert "×" in text


def test_a_map_without_any_value_is_still_drawn() -> None:
    empty = replace(MAP, panels=(Panel(title="b", squares=(("▲", "×"), ("", "")), names=(("", ""), ("", ""))),))
    assert empty.best() is None
    assert charts.draw(empty).startswith("<?xml")


def test_a_curve_shows_the_best_point_and_those_that_are_not_to_be_had() -> None:
    symbols = [trace["marker"]["symbol"] for trace in plots.plot(CURVES)["data"]]
    assert symbols == [["circle", "star", "circle-open"], ["square", "square"]]
    assert plots.plot(CURVES)["layout"]["xaxis"]["ticktext"] == ["1", "2", "4"]


def test_parallel_axes_place_words_in_their_order_and_numbers_by_size() -> None:
    schedule, memory, step = upright(PARALLEL)
    assert schedule.heights == [0.0, 1.0, 0.0]
    assert memory.heights == step.heights == [0.0, 1.0, 0.5]
    assert memory.ticks == [(0.0, "40"), (0.5, "50"), (1.0, "60")]
