"""Timelines as SVG."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.cells import cell_len
from timelines import PAIR, by_name, events, every_timeline, unit_timeline

from pipesim.report.timeline import bars as timeline_bars
from pipesim.report.timeline import look as timeline_look
from pipesim.report.timeline import svg as timeline_svg
from pipesim.report.timeline import text as timeline_text
from pipesim.report.timeline.trace import chrome_trace
from pipesim.schedules import make_schedule, schedule_names
from pipesim.schedules.action import Op, parse
from pipesim.simulate import Timeline, lower_bounds, simulate

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def bars_of(svg: str) -> list[ElementTree.Element]:
    return [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("class") in tuple("FBIW")]


def drawn_lengths(svg: str) -> list[list[int]]:
    """In steps, of each path."""
    return [[int(length) for length in re.findall(r"h(\d+)", bar.attrib["d"])] for bar in bars_of(svg)]


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


def test_a_huge_schedule_is_a_small_picture_and_loses_no_work() -> None:
    timeline = unit_timeline("1f1b", p=64, m=1024)
    svg = timeline_svg.draw(timeline, "huge")
    assert len(svg.encode()) < 2_000_000
    assert len(bars_of(svg)) == 4
    assert sum(map(sum, drawn_lengths(svg))) == timeline.busy_s.sum()  # whole units are drawn exactly


def test_two_drawings_are_the_same_bytes() -> None:
    timeline = unit_timeline("1f1b", p=4, m=8)
    assert timeline_svg.draw(timeline, "a") == timeline_svg.draw(timeline, "a")
    assert chrome_trace(timeline) == chrome_trace(timeline)


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_every_action_is_drawn_once_at_its_length(timeline: Timeline) -> None:
    svg = ElementTree.fromstring(timeline_svg.draw(timeline, timeline.schedule.name))
    bars = [bar for bar in svg.iter(f"{SVG}path") if bar.get("class") in tuple("FBIW")]
    for i, bar in enumerate(bars):
        action = timeline.schedule.action(i)
        left, length = (int(number) for number in re.findall(r"M(\d+) .*h(\d+)", bar.attrib["d"])[0])
        assert bar.findtext(f"{SVG}title", "").startswith(f"{action}: ")
        assert (left, left + length) == (timeline.start_s[i], timeline.end_s[i])
        assert bar.get("class") == action.op.name
    assert len(bars) == len(timeline.schedule)


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_merged_paths_draw_every_action_once_too(timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_bars, "MAX_TOOLTIPS", 0)
    assert "<title>" not in timeline_svg.draw(timeline, "x")
    drawn = Counter(length for lengths in drawn_lengths(timeline_svg.draw(timeline, "x")) for length in lengths)
    assert drawn == Counter((timeline.end_s - timeline.start_s).astype(int).tolist())


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_every_picture_is_the_same_bytes_again(timeline: Timeline) -> None:
    again = unit_timeline(timeline.schedule.name, 4, 8)
    assert timeline_svg.draw(timeline, "a") == timeline_svg.draw(again, "a")
    assert chrome_trace(timeline) == chrome_trace(again)
    for wide in (False, True):
        assert timeline_text.draw(timeline, 1.0, wide=wide) == timeline_text.draw(again, 1.0, wide=wide)


def boxes(svg: str) -> list[tuple[float, float, float, float, str]]:
    """Where every text lies: left, top, right, bottom, in pixels of the picture, with generous widths."""
    found: list[tuple[float, float, float, float, str]] = []

    def walk(element: ElementTree.Element, dx: float, dy: float, size: float) -> None:
        move = re.match(r"translate\(([\d.]+)(?: ([\d.]+))?\)", element.get("transform", ""))
        if move:
            dx, dy = dx + float(move[1]), dy + float(move[2] or 0)
        own = re.search(r"font-size:([\d.]+)px", element.get("style", ""))
        size = float(own[1]) if own else 11 if "small" in element.get("class", "") else size
        if element.tag == f"{SVG}text":
            text = element.text or ""
            width = 0.58 * size * cell_len(text)
            anchor = {"end": 1.0, "middle": 0.5}.get(element.get("text-anchor", ""), 0.0)
            x, y = dx + float(element.attrib["x"]), dy + float(element.attrib["y"])
            left = x - width * anchor
            found.append((left, y - 0.74 * size, left + width, y + 0.2 * size, text))
        for child in element:
            inherits = child.get("text-anchor") is None and element.get("class") == "no"
            if inherits:
                child.set("text-anchor", "middle")
            walk(child, dx, dy, 10 if element.get("class") == "guide" else size)

    walk(ElementTree.fromstring(svg), 0, 0, 13)
    return found


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 40)])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", schedule_names())
def test_no_label_covers_another_or_leaves_the_picture(name: str, language: str, p: int, m: int) -> None:
    svg = timeline_svg.draw(unit_timeline(name, p, m), name, language=language, lower_bound_s=12345.0)
    height = float(ElementTree.fromstring(svg).attrib["viewBox"].split()[3])
    placed = sorted(boxes(svg))
    for left, top, right, bottom, text in placed:
        assert left >= 0, text
        assert right <= 1000, text
        assert top >= 0, text
        assert bottom <= height, text
    assert len(placed) > 2 * p
    for k, one in enumerate(placed):
        for other in placed[k + 1 :]:
            if other[0] >= one[2]:
                break
            assert one[1] >= other[3] or other[1] >= one[3], (one, other)


def test_long_timelines_mark_some_micro_batches_instead() -> None:
    svg = timeline_svg.draw(unit_timeline("1f1b", p=16, m=512), "1F1B")
    assert "forward of micro-batch 0, 50, 100 … starts" in texts(svg)
    assert texts(svg).count("450") == 16
    assert "451" not in texts(svg)
    assert len(svg.encode()) < 150_000


def test_a_bidirectional_schedule_says_which_micro_batches_come_from_the_other_end() -> None:
    timeline = unit_timeline("chimera", p=4, m=8)
    assert "micro-batches 4–7: enter at rank 3" in texts(timeline_svg.draw(timeline, "Chimera"))
    assert "微批次 4–7：从 rank 3 进入" in texts(timeline_svg.draw(timeline, "Chimera", language="zh"))
    assert timeline_text.legend(timeline) == "‹: micro-batches 4–7, which enter at rank 3"
    assert timeline_text.draw(timeline, 1.0).startswith("rank 0 | F0 F1 ···F4‹b4‹b4‹F5‹")
    enters = {e["args"]["micro_batch"]: e["args"]["enters_at_rank"] for e in events(timeline, "X")}
    assert enters == {0: 0, 1: 0, 2: 0, 3: 0, 4: 3, 5: 3, 6: 3, 7: 3}
    down, up = (fill_of(timeline, name) for name in ("0F0", "0F4"))
    assert down != up


def fill_of(timeline: Timeline, action: str) -> str:
    svg = timeline_svg.draw(timeline, "x")
    bars = {bar.findtext(f"{SVG}title", "").split(":")[0]: bar for bar in bars_of(svg)}
    return bars[action].attrib["stroke"]


def test_the_stages_of_a_rank_differ_in_shade_and_letter() -> None:
    timeline = unit_timeline("zbv", p=4, m=8)
    assert fill_of(timeline, "0F0") != fill_of(timeline, "7F0")
    shown = texts(timeline_svg.draw(timeline, "ZB-V"))
    assert "A, B: a rank's stages, in order" in shown
    assert {"A0", "B0"} <= set(shown)
    assert timeline_text.legend(timeline, "zh") == "A, B：同一 rank 上的阶段，按先后"


def test_segments_are_explained() -> None:
    timeline = unit_timeline("seq1f1b", p=2, m=2)
    assert "a micro-batch has 2 segments, numbered through" in texts(timeline_svg.draw(timeline, "Seq1F1B"))
    assert "2 segments" in timeline_text.legend(timeline)


def test_a_schedule_without_signs_needs_no_legend() -> None:
    assert timeline_text.legend(unit_timeline("1f1b", p=2, m=2)) == ""


def test_the_lower_bound_stands_beside_the_makespan() -> None:
    timeline = unit_timeline("chimera", p=4, m=8)
    bound_s = lower_bounds(timeline.schedule).makespan_s
    subtitle = texts(timeline_svg.draw(timeline, "x", lower_bound_s=bound_s))[1]
    assert "makespan 30 units · lower bound 27 units" in subtitle
    assert "lower bound" not in timeline_svg.draw(timeline, "x")


def test_pictures_can_share_a_time_axis() -> None:
    short, long = unit_timeline("zb_h1", p=4, m=8), unit_timeline("1f1b", p=4, m=8)
    drawn = timeline_svg.draw(short, "x", until_s=long.makespan_s)
    scale = re.compile(r'class="bars" transform="translate\(72\) scale\(([\d.]+) 1\)"')
    assert scale.findall(drawn) == scale.findall(timeline_svg.draw(long, "x"))
    idle = [rect for rect in ElementTree.fromstring(drawn).iter(f"{SVG}rect") if rect.get("class") == "idle"]
    assert max(float(rect.attrib["width"]) for rect in idle) == pytest.approx(888 * 27 / 33, abs=0.01)


def test_the_curve_is_what_the_rank_holds() -> None:
    timeline = unit_timeline("1f1b", p=4, m=8)
    svg = ElementTree.fromstring(timeline_svg.draw(timeline, "x"))
    curves = [path for path in svg.iter(f"{SVG}path") if path.get("class") == "held"]
    assert len(curves) == 4
    for rank, curve in enumerate(curves):
        steps = [(int(h), -int(v)) for h, v in re.findall(r"h(\d+)v(-?\d+)", curve.attrib["d"])]
        when, levels = np.cumsum(steps, axis=0).T
        assert levels.max() == timeline.peak_inflight[rank]
        assert levels[-1] == 0
        assert when[-1] == timeline.end_s[timeline.schedule.rank_of() == rank].max()
        area = int(np.sum(levels[:-1] * np.diff(when)))
        forward = timeline.start_s[(timeline.schedule.rank_of() == rank) & (timeline.schedule.op == Op.F)].sum()
        backward = timeline.end_s[(timeline.schedule.rank_of() == rank) & (timeline.schedule.op == Op.B)].sum()
        assert area == backward - forward


def test_of_many_ranks_the_one_that_holds_most_stands_for_all() -> None:
    svg = timeline_svg.draw(unit_timeline("1f1b", p=20, m=4), "x")
    assert svg.count('class="held"') == 1
    assert "activations in flight on rank 0, which holds most; at the right, the most" in texts(svg)


def test_real_seconds_stay_exact_when_enlarged() -> None:
    timeline = simulate(make_schedule("1f1b", p=8, m=256), 0.0123, 0.0077, 0.0131)
    lengths = sorted({length for path in drawn_lengths(timeline_svg.draw(timeline, "x")) for length in path})
    assert lengths[0] >= 19
    assert lengths[-1] / lengths[0] == pytest.approx(0.0208 / 0.0123, rel=0.06)


# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009
_SEES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    "no deficiency": np.eye(3).tolist(),
}


def lab(colour: str, sees: list[list[float]]) -> Any:
    """CIE 1976 L*a*b* of an sRGB colour, as those who see so see it."""
    srgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(np.array(sees) @ linear, 0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sees", list(_SEES.values()), ids=list(_SEES))
def test_all_colours_stay_apart_for_everybody(sees: list[list[float]]) -> None:
    """A difference of 2.3 is just noticeable (Mahy, Van Eycken and Oosterlinck, 1994)."""
    seen = [lab(colour, sees) for colour in timeline_look.tones(2).colour]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 3 * 2.3


def test_numbers_are_read_on_every_colour() -> None:
    """At least 4.5 : 1. Source: W3C, "Web Content Accessibility Guidelines 2.1", success criterion 1.4.3."""
    for shades in (1, 2, 4):
        for colour, light in zip(*timeline_look.tones(shades), strict=True):
            rgb = tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))
            ground = timeline_look._luminance(rgb)
            contrast = 1.05 / (ground + 0.05) if light else (ground + 0.05) / 0.05
            assert contrast >= 4.5, colour
