"""Pictures for papers: PNG and PDF of every chart and timeline, with text that shows."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest

from pipesim.report import paper
from pipesim.report.document import Axis, Chart, Document, Mark, Section, TimelineView
from pipesim.report.timeline import figure as timeline_figure
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate

VIEW = TimelineView(slug="run", title="a <run> $x$", timeline=simulate(make_schedule("dualpipe", p=4, m=8)), unit_s=1.0)
CHART = Chart(
    slug="chart", title="c", caption="", x=Axis(title="x", kind="number"), y=Axis(title="y", kind="seconds"),
    marks=(Mark(x=1.0, y=2.0, label="m", group="g"),),
)  # fmt: skip


def document(*blocks: Any, language: Any = "en") -> Document:
    return Document(title="t", language=language, sections=(Section(title="s", blocks=blocks),))


def shown_text(pdf: bytes) -> str:
    """What a reader can search for: the signs of its fonts' maps to Unicode."""
    streams = [zlib.decompress(each) for each in re.findall(rb"stream\n(x.*?)\nendstream", pdf, re.DOTALL)]
    codes = [code for each in streams if b"beginbf" in each for code in re.findall(rb"<([0-9a-fA-F]{4})>", each)]
    return "".join(chr(int(code, 16)) for code in codes)


@pytest.mark.slow
def test_every_picture_comes_in_the_formats_asked_and_the_same_bytes_again() -> None:
    files, notes = paper.papers(document(VIEW, CHART), ["svg", "png", "pdf"])
    assert sorted(files) == ["chart.pdf", "chart.png", "run.pdf", "run.png"]
    assert notes == []
    assert files == paper.papers(document(VIEW, CHART), ["png", "pdf"])[0]
    assert all(files[name].startswith(b"\x89PNG" if name.endswith("png") else b"%PDF") for name in files)
    assert b"CreationDate" not in files["run.pdf"]
    assert b"Type3" not in files["run.pdf"]
    assert paper.papers(document(VIEW, CHART), ["svg"]) == ({}, [])


def test_chinese_shows_as_text_where_a_font_has_it_and_is_told_where_none_has(monkeypatch: pytest.MonkeyPatch) -> None:
    if paper._chinese():
        files, notes = paper.papers(document(VIEW, language="zh"), ["pdf", "png"])
        assert notes == []
        assert set("总时长前向") <= set(shown_text(files["run.pdf"]))
        assert b"Type3" in files["run.pdf"]
    monkeypatch.setattr(paper, "_CHINESE", ())
    files, [note] = paper.papers(document(VIEW, language="zh"), ["png"])
    assert files["run.png"]
    assert note.startswith("Warning: no font of this machine has")
    assert "总" in note or "…" in note or len(note) > 100


def test_the_bars_are_the_timelines() -> None:
    run, figure = VIEW.timeline, timeline_figure.drawing(VIEW, "en").figure()
    (bars,) = [each for each in figure.axes[0].collections if len(each.get_paths()) == len(run.schedule)]
    boxes = np.array([path.get_extents().get_points() for path in bars.get_paths()])
    assert boxes[:, 0, 0].tolist() == run.start_s.tolist()
    assert boxes[:, 1, 0].tolist() == run.end_s.tolist()
    assert np.rint(boxes[:, :, 1].mean(axis=1)).tolist() == run.schedule.rank_of().tolist()
    high = np.ptp(boxes[:, :, 1], axis=1)
    pairs = run.schedule.joined | np.r_[False, run.schedule.joined[:-1]]
    np.testing.assert_allclose(high[pairs], high[~pairs][0] / 2)
    assert figure.axes[0].get_title(loc="left").startswith("a <run> $x$\nmakespan")
