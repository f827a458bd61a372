"""The timeline viewer in a real browser: what it draws and says, its keys, its addresses, many actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesim.report import html, viewer
from pipesim.report.document import Document, Section, TimelineView
from pipesim.schedules import make_schedule
from pipesim.simulate import Links, Timeline, idle, simulate

pytestmark = pytest.mark.slow

LEFT, AXIS, HEAD, ROW = 58, 26, 22, 24
"""Where the rows are, in pixels: beside the names of ranks, below the axis and the title."""


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page of given HTML; fails on anything the console says and on any request but the file's own."""
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1000, "height": 800})

    def open_(text: str, address: str = "", size: tuple[int, int] = (1000, 800)) -> Any:
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page = context.new_page()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
        page.goto((tmp_path / "page.html").as_uri() + address)
        page.wait_for_selector("html[data-timelines=ready]")
        return page

    yield open_
    context.close()
    assert said == []


def timeline(name: str = "1f1b", *, links: Links | None = None) -> Timeline:
    return simulate(make_schedule(name, p=4, m=8), 1.0, 1.0, 1.0, links=links)


def document(*timelines: Timeline, language: Any = "en", title: str = "") -> Document:
    shown = tuple(
        TimelineView(slug=f"view-{k}", title=title or each.schedule.name, timeline=each, unit_s=1.0)
        for k, each in enumerate(timelines)
    )
    return Document(title="t", language=language, sections=(Section(title="s", blocks=shown),))


def spot(page: Any, run: Timeline, rank: int, time_s: float) -> tuple[float, float]:
    """On the screen, of a picture that shows everything."""
    box = page.locator("canvas").bounding_box()
    t0, t1 = page.evaluate("() => { const {t0, t1} = document.querySelector('.pv').viewer; return [t0, t1]; }")
    x = LEFT + (time_s - t0) / (t1 - t0) * (box["width"] - LEFT - 4)
    return box["x"] + x, box["y"] + AXIS + HEAD + (rank + 0.5) * ROW


def tip(page: Any) -> list[str]:
    return page.locator(".pv-tip").inner_text().splitlines()  # type: ignore[no-any-return]


def address(page: Any) -> str:
    page.wait_for_function("() => !document.querySelector('.pv').viewer.keeping")
    return page.url.partition("#")[2]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["1f1b", "dualpipe", "seq1f1b"])
def test_the_decoded_arrays_equal_the_timeline(opened: Any, name: str) -> None:
    run = simulate(make_schedule(name, p=4, m=8), 0.1, 0.2, 0.3, 0.05)
    gaps, page = idle(run), opened(viewer.page(document(run)))
    found = page.evaluate(
        """() => { const {timeline} = document.querySelector('.pv').viewer.panels[0], {work, idle} = timeline;
        return Object.fromEntries(Object.entries({start: work.start, end: work.end, from: idle.start, to: idle.end,
          before: timeline.before, cause: timeline.cause, rank: timeline.rankOf, held: timeline.held})
          .map(([name, column]) => [name, [...column]])); }"""
    )
    assert (found["start"], found["end"]) == (run.start_s.tolist(), run.end_s.tolist())
    assert (found["from"], found["to"]) == (gaps.start_s.tolist(), gaps.end_s.tolist())
    assert (found["before"], found["cause"]) == (gaps.before.tolist(), gaps.cause.tolist())
    assert found["rank"] == run.schedule.rank_of().tolist()


def test_hovering_tells_an_action_and_what_it_waited_for(opened: Any) -> None:
    run = timeline(links=Links(latency_s=0.5))
    page = opened(viewer.page(document(run)))
    names = [str(run.schedule.action(i)) for i in range(len(run.schedule))]
    i = names.index("2B0")
    page.mouse.move(*spot(page, run, 2, float(run.start_s[i]) + 0.2))
    gaps = [gap for gap in idle(run) if str(gap.before) == "2B0"]
    assert len(gaps) == 2
    waited = "; ".join(f"{gap.cause} for {gap.waits_for} of rank 3 {gap.end_s - gap.start_s:g}" for gap in gaps)
    assert tip(page) == [
        "2B0 · rank 2 · stage 2 · B backward · micro-batch 0",
        f"{run.start_s[i]:g} – {run.end_s[i]:g} (takes 2)",
        f"waited {sum(gap.end_s - gap.start_s for gap in gaps):g}: {waited}",
        "in flight: 2",
    ]


def test_hovering_a_gap_tells_why_the_rank_is_idle(opened: Any) -> None:
    run = timeline()
    page = opened(viewer.page(document(run)))
    page.mouse.move(*spot(page, run, 3, 1.5))
    assert tip(page) == ["idle · rank 3 · warm up", "0 – 3 (takes 3)", "in flight: 0"]
    page.mouse.move(*spot(page, run, 0, 6.0))
    assert tip(page) == ["idle · rank 0 · waiting for 1B0 of rank 1", "4 – 10 (takes 6)", "in flight: 4"]
    page.mouse.move(*spot(page, run, 0, 34.0))
    page.mouse.move(0, 0)
    assert page.locator(".pv-tip").is_hidden()


def test_the_tip_and_the_words_are_chinese_too(opened: Any) -> None:
    run = timeline()
    page = opened(viewer.page(document(run, language="zh")))
    page.mouse.move(*spot(page, run, 3, 1.5))
    assert tip(page)[0] == "空闲 · rank 3 · 等待首个动作"
    assert page.get_by_role("button", name="放大").is_visible()


def test_keys_zoom_move_and_choose_and_the_address_follows(opened: Any) -> None:
    run = timeline()
    page = opened(viewer.page(document(run)))
    canvas = page.locator("canvas")
    canvas.press("+")
    low, high = (float(each) for each in re.fullmatch(r"t=([\d.]+)-([\d.]+)", address(page)).groups())  # type: ignore[union-attr]
    assert high - low == pytest.approx(run.makespan_s / 2, rel=0.05)
    canvas.press("ArrowRight")
    moved = float(address(page).split("=")[1].split("-")[0])
    assert moved - low == pytest.approx((high - low) / 10, rel=0.01)
    canvas.press("0")
    for key in (".", ".", "ArrowDown", "ArrowDown"):
        canvas.press(key)
    assert "rank=2&action=2F0" in address(page)
    assert page.locator(".pv-said").first.inner_text().startswith("2F0 · rank 2")
    canvas.press("Enter")
    assert address(page).endswith("rank=1&action=1F0")
    canvas.press("Escape")
    assert "action" not in address(page)


def test_an_address_restores_the_place(opened: Any) -> None:
    runs = timeline("gpipe"), timeline("1f1b"), timeline("zbv")
    page = opened(viewer.page(document(*runs)), "#t=2.5-7&rank=3&action=3B0&of=2&view=view-1&with=view-2")
    assert page.locator(".pv-said").first.inner_text().startswith("3F") is False
    state = page.evaluate(
        "() => { const v = document.querySelector('.pv').viewer; return [v.t0, v.t1, v.slugs, v.chosen]; }"
    )
    assert state[:3] == [2.5, 7, ["view-1", "view-2"]]
    assert [each.input_value() for each in page.locator("select").all()] == ["view-1", "view-2"]
    page = opened(viewer.page(document(*runs)), "#t=2.5-7&rank=3&action=3B0&view=view-1")
    assert page.locator(".pv-said").first.inner_text().splitlines()[:2] == [
        "3B0 · rank 3 · stage 3 · B backward · micro-batch 0",
        "4 – 6 (takes 2)",
    ]
    page.evaluate("location.hash = '#t=0-4&rank=0&action=0F1&view=view-0'")
    page.wait_for_timeout(200)
    assert page.locator(".pv-said").first.inner_text().startswith("0F1 · rank 0")


@pytest.mark.parametrize(
    "hash_", ["#section-1", "#t=x-y", "#t=5-5", "#t=9e99-1&rank=999&action=7F7&view=none", "#t=1-2&rank=-1&action=<b>"]
)
def test_any_other_address_does_no_harm(opened: Any, hash_: str) -> None:
    page = opened(viewer.page(document(timeline())), hash_)
    t0, t1 = page.evaluate("() => { const v = document.querySelector('.pv').viewer; return [v.t0, v.t1]; }")
    assert t0 < t1


def test_two_timelines_are_compared_on_one_axis(opened: Any) -> None:
    one, other = timeline("naive"), timeline("gpipe")
    page = opened(viewer.page(document(one, other)))
    less = one.makespan_s - other.makespan_s
    assert page.get_by_text("A: makespan").inner_text() == (
        f"A: makespan {one.makespan_s:g} units · B: makespan {other.makespan_s:g} units · "
        f"B is {less:g} units ({less / one.makespan_s:.1%}) shorter than A".replace("%)", " %)")
    )
    cells = [row.locator("td").all_inner_texts() for row in page.locator(".pv-causes tbody tr").all()]
    for column, run in ((0, one), (2, other)):
        causes = idle(run).by_cause()
        assert float(cells[-1][column]) == sum(causes.values())
        assert sum(float(line[column]) for line in cells[:-1]) == sum(causes.values())
        assert cells[-1][column + 1] == f"{100 * run.bubble_fraction:.1f} %"


def test_dragging_moves_and_a_click_chooses(opened: Any) -> None:
    run = timeline()
    page = opened(viewer.page(document(run)))
    page.locator("canvas").press("+")
    before = page.evaluate("document.querySelector('.pv').viewer.t0")
    page.mouse.move(600, 200)
    page.mouse.down()
    page.mouse.move(500, 200, steps=4)
    page.mouse.up()
    assert page.evaluate("document.querySelector('.pv').viewer.t0") > before
    page.locator("canvas").press("0")
    page.mouse.click(*spot(page, run, 0, 0.5))
    assert "rank=0&action=0F0" in address(page)
    page.mouse.wheel(0, -200)
    assert page.evaluate("(({t0, t1}) => t1 - t0)(document.querySelector('.pv').viewer)") < run.makespan_s


def test_in_a_report_the_ranks_are_named_beside_their_rows(opened: Any) -> None:
    page = opened(html.to_html(document(timeline("gpipe"))))
    beside = """canvas => {
      const {data} = canvas.getContext("2d").getImageData(0, 30, 50, canvas.height - 30);
      return [...Array(data.length / 4).keys()].filter(k => data[4 * k + 3] > 128).map(k => [...data.slice(4 * k, 4 * k + 3)]);
    }"""
    dim = (0x59, 0x63, 0x6E)
    colours = page.locator("canvas").first.evaluate(beside)
    assert any(max(abs(one - other) for one, other in zip(each, dim, strict=True)) < 8 for each in colours)


def test_in_a_report_the_page_scrolls_and_each_timeline_has_a_viewer(opened: Any) -> None:
    page = opened(html.to_html(document(timeline("gpipe"), timeline("zbv"))))
    assert page.locator("canvas").count() == 2
    assert page.locator(".pv-still").first.is_hidden()
    box = page.locator("canvas").first.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 50)
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") > 0
    page.locator("select").first.select_option("view-1")
    page.wait_for_timeout(100)
    assert "B is" in page.locator(".pv-said").all_inner_texts()[1]
    page.emulate_media(media="print")
    assert page.locator(".pv-still").first.is_visible()
    assert page.locator("canvas").first.is_hidden()


@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_is_wider_than_the_page(opened: Any, width: int) -> None:
    page = opened(viewer.page(document(timeline(), timeline("zbv"), title="long title " * 40)), size=(width, 800))
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_dark_and_light_pages_differ(opened: Any) -> None:
    page = opened(viewer.page(document(timeline())))
    drawn = "document.querySelector('canvas').toDataURL()"
    page.wait_for_timeout(100)
    light = page.evaluate(drawn)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert page.evaluate(drawn) != light


def test_a_picture_has_each_ranks_colours_in_proportion_when_actions_are_narrower_than_pixels(opened: Any) -> None:
    run = simulate(make_schedule("gpipe", p=2, m=5000))
    page = opened(viewer.page(document(run)))
    page.wait_for_timeout(200)
    quarter = page.evaluate(
        """() => { const c = document.querySelector('canvas'), d = devicePixelRatio || 1;
        const x = Math.round(d * (58 + (c.clientWidth - 62) / 8));
        return [...c.getContext('2d').getImageData(x, Math.round(d * 60), 1, 1).data]; }"""
    )
    np.testing.assert_allclose(quarter[:3], [0x56, 0xB4, 0xE9], atol=2)  # forwards alone


def test_a_hundred_thousand_actions_move_smoothly(opened: Any) -> None:
    schedule = make_schedule("1f1b", p=64, m=800)
    run = simulate(schedule, *np.random.default_rng(0).uniform(0.9, 1.1, (3, 64, 800)), latency_s=0.01)
    text = viewer.page(document(run))
    assert len(text) < 3e6
    page = opened(text)
    frames = page.evaluate(
        """async () => { const {canvas} = document.querySelector('.pv').viewer, took = [];
        const press = key => canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
        for (let k = 0; k < 3; k++) press('+');
        for (let k = 0; k < 60; k++) {
          const begin = performance.now();
          press(k % 2 ? 'ArrowLeft' : 'ArrowRight');
          await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
          took.push(performance.now() - begin);
        }
        return took; }"""
    )
    print(f"a frame of 10^5 actions: {np.median(frames):.0f} ms in the median")
    assert len(frames) == 60
