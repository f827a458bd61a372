"""The timeline viewer's data, words and pages; ``test_browser_viewer`` looks at it in a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import numpy as np
import pytest

from pipesim.report import html, viewer
from pipesim.report.document import Document, Section, TimelineView
from pipesim.report.viewer import data as viewer_data
from pipesim.report.viewer import words as viewer_words
from pipesim.schedules import make_schedule, read_schedule, schedule_names
from pipesim.schedules.rules import dependencies
from pipesim.simulate import Cause, Links, Timeline, idle, simulate

HOSTILE = '</script><script>alert("1")</script>\u202e<b>'


def timeline(name: str, links: Links | None = None) -> Timeline:
    schedule = make_schedule(name, p=4, m=8)
    return simulate(schedule, *np.random.default_rng(0).uniform(0.5, 1.5, (3, schedule.stages)), links=links)


def document(*timelines: Timeline, title: str = "t", language: Any = "en", **more: Any) -> Document:
    shown = tuple(
        TimelineView(slug=f"view-{k}", title=f"{title} {k}", timeline=each, **more) for k, each in enumerate(timelines)
    )
    return Document(title=title, language=language, sections=(Section(title="s", blocks=shown),))


def unpacked(island: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    raw, at, found = gzip.decompress(base64.b64decode(island["gzip"])), 0, {}
    for name, kind, length in island["columns"]:
        found[name] = np.frombuffer(raw, f"<{kind}", length, at)
        assert at % found[name].itemsize == 0, "typed arrays must be aligned"
        at += found[name].nbytes
    assert at == len(raw)
    return found


@pytest.mark.parametrize("name", schedule_names())
def test_the_columns_hold_the_timeline_to_the_bit(name: str) -> None:
    run = timeline(name)
    found, schedule, needs = (
        unpacked(viewer_data.island("x", "x", run, "seconds")),
        run.schedule,
        dependencies(run.schedule),
    )
    assert found["edges_s"].reshape(-1, 2).T.tolist() == [run.start_s.tolist(), run.end_s.tolist()]
    for column in ("stage", "op", "micro_batch", "joined", "rank_start"):
        assert found[column].tolist() == getattr(schedule, column).astype(int).tolist(), column
    for column in ("remote", "local"):
        back = found[column].astype(np.uint32).astype(np.int32)
        expected = getattr(needs, column)
        assert np.where(back == 0, -1, np.arange(len(schedule)) - back).tolist() == expected.tolist()


@pytest.mark.parametrize("name", schedule_names())
def test_what_is_held_during_actions_has_the_timelines_peaks_and_moments(name: str) -> None:
    run = timeline(name)
    held = viewer_data.held(run.schedule)
    for rank, peak in enumerate(run.peak_inflight):
        own = slice(*run.schedule.rank_start[rank : rank + 2])
        assert held[own].max() == peak
        when_s, count = run.inflight(rank)
        middle_s = (run.start_s[own] + run.end_s[own]) / 2
        assert held[own].tolist() == count[np.searchsorted(when_s, middle_s, side="right") - 1].tolist()


@pytest.mark.parametrize(
    "links", [None, Links(latency_s=0.25, bytes_per_s=2.0, message_bytes=0.5, blocking_sends=True)]
)
@pytest.mark.parametrize("name", schedule_names())
def test_idle_intervals_come_back_from_their_gaps(name: str, links: Links | None) -> None:
    run = timeline(name, links)
    found, gaps, k, cut = unpacked(viewer_data.island("x", "x", run, "seconds")), idle(run), 0, 0
    intervals = []
    for rank in range(run.schedule.p):
        free_s = run.start_s.min()
        own = range(run.schedule.rank_start[rank], run.schedule.rank_start[rank + 1])
        slots = [i for i in own if i == own[0] or not run.schedule.joined[i - 1]]
        ends = [(run.start_s[i], run.end_s[i], i) for i in slots] + [(run.end_s.max(), 0.0, -1)]
        for start_s, end_s, before in ends:
            while start_s > free_s:
                to_s = found["cut_s"][cut] if found["more"][k] else start_s
                source = before + found["reason"][k] - 1 if found["reason"][k] else None
                waits_for = -1 if source is None else dependencies(run.schedule).remote[source]
                intervals.append((rank, free_s, to_s, found["cause"][k], waits_for, before))
                cut, k, free_s = cut + found["more"][k], k + 1, to_s
            free_s = end_s
    told = zip(gaps.rank, gaps.start_s, gaps.end_s, gaps.cause, gaps.waits_for, gaps.before, strict=True)
    assert intervals == list(told)


def test_the_table_beside_the_picture_sums_to_all_rank_time() -> None:
    run = timeline("1f1b", Links(latency_s=0.25))
    table = viewer.sums(document(run).sections[0].blocks[0], "en")  # type: ignore[arg-type]
    *ranks, total = table.rows
    for values in zip(*[line[1:-1] for line in ranks], strict=True):
        assert np.isfinite(values).all()  # type: ignore[arg-type]
    for line in ranks:
        assert line[1] + line[2] == pytest.approx(run.makespan_s)  # type: ignore[operator]
        assert sum(line[3:-1]) == pytest.approx(line[2])  # type: ignore[arg-type]
    assert total[2] == pytest.approx(idle(run).total_s)
    assert [line[-1] for line in ranks] == list(run.peak_inflight)
    titles = [column.title for column in table.columns]
    assert titles[3:-1] == [str(cause) for cause in Cause if cause in idle(run).by_cause()]


def test_a_large_timeline_takes_few_bytes() -> None:
    run = simulate(make_schedule("1f1b", p=16, m=600), 0.123, 0.234, 0.111, 0.01)
    size = len(viewer_data.island("x", "x", run, "seconds")["gzip"]) / len(run.schedule)
    assert size < 20  # of 10^5 actions below 2 MB


def test_every_word_is_said_in_both_languages_with_the_same_gaps() -> None:
    english, chinese = (viewer_words.words(language) for language in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        other = chinese[key]
        assert sorted(re.findall(r"\{\d\}", str(text))) == sorted(re.findall(r"\{\d\}", str(other))), key
        assert isinstance(text, str) == isinstance(other, str)
        assert re.search("[\u4e00-\u9fff]", str(other)) or key == "rank", key
    assert len(english["causes"]) == len(chinese["causes"]) == len(Cause)


def test_hostile_titles_are_text() -> None:
    run = timeline("gpipe")
    for page in (viewer.page(document(run, title=HOSTILE)), html.to_html(document(run, title=HOSTILE))):
        assert "<script>alert" not in page
        assert "\u202e" not in page
        islands = re.findall(r'<script type="application/json" class="pv-data">(.*?)</script>', page)
        assert json.loads(islands[0])["title"].startswith("</script><script>alert")


def test_pages_are_the_same_bytes_again_and_need_no_other_file() -> None:
    runs = timeline("gpipe"), timeline("zbv")
    page = viewer.page(document(*runs))
    assert page == viewer.page(document(*runs))
    assert not re.search(r"(src|href)=|@import|url\((?!\$)|https?://(?!www.w3.org)", page)
    assert page.count('class="pv-data"') == 2
    assert 'data-against="view-1"' in page  # two are compared from the start
    assert 'data-against=""' in viewer.page(document(*runs, runs[0]))


def test_a_report_has_one_script_and_a_still_picture_for_every_timeline() -> None:
    page = html.to_html(document(timeline("gpipe"), timeline("zbv")))
    assert page.count("const WORDS") == 1
    assert page.count('class="pv-still"') == page.count("<svg") == 2
    assert "const WORDS" not in html.to_html(document())


def test_a_rank_without_actions_has_a_row_that_is_idle() -> None:
    run = simulate(read_schedule("0F0,0B0\n\n1F0,1B0\n"))
    found = unpacked(viewer_data.island("x", "x", run, "units"))
    assert found["cause"].tolist().count(Cause.UNUSED) == 1
    assert "unused" in viewer.page(document(run))
