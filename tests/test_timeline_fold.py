"""Text timelines in a terminal: folded where they are wider, with nothing lost, cut between units of time."""

import re

import pytest

from pipesim.report.document import TimelineView
from pipesim.report.timeline import text as timeline_text
from pipesim.report.timeline.fold import fold
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate


def view(text, m=8):
    timeline = simulate(make_schedule("1f1b", p=3, m=m), input_grad_s=1.0, weight_grad_s=1.0)
    return TimelineView(slug="x", title="x", timeline=timeline, unit_s=1.0, text=text)


@pytest.mark.parametrize("text", ["narrow", "wide"])
@pytest.mark.parametrize("room", [30, 44, 60, 80])
def test_pieces_fit_and_hold_everything(text, room):
    shown = view(text, m=12)
    (drawing,) = timeline_text.view(shown, "en")
    lines = fold(shown, drawing, room)
    assert max(map(len, lines)) <= room
    pieces = "\n".join(lines).split("\n\n")
    assert len(pieces) > 1
    count = len(drawing.splitlines())
    for at, whole in enumerate(drawing.splitlines()):
        head, body = whole.split(" | ", 1)
        parts = [piece.splitlines()[at] for piece in pieces]
        assert all(part.startswith(f"{head} |") for part in parts)
        joined = "".join(part.partition("|")[2] for part in parts)
        assert re.sub(r"[\s|]", "", joined) == re.sub(r"[\s|]", "", body)
    assert all(len(piece.splitlines()) == count for piece in pieces)


def test_no_label_is_cut():
    shown = view("wide", m=12)
    (drawing,) = timeline_text.view(shown, "en")
    labels = set(re.findall(r"\d[FB]\d+", drawing))
    assert set(re.findall(r"\d[FB]\d+", "\n".join(fold(shown, drawing, 44)))) == labels


def test_what_fits_stays_as_it_is():
    shown = view("narrow", m=2)
    (drawing,) = timeline_text.view(shown, "en")
    assert fold(shown, drawing, 200) == drawing.splitlines()
