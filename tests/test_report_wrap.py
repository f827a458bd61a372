"""Prose breaks where a reader would break it, and loses nothing."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipesim.report.wrap import wrap

TEXT = st.text(alphabet="ab (，。）（气泡 %7.9·—\t“”", max_size=60)


@given(text=TEXT, cells=st.integers(4, 30))
def test_wrapping_loses_and_adds_nothing_but_space(text, cells):
    assert re.sub(r"\s", "", "".join(wrap(text, cells))) == re.sub(r"\s", "", text)


@given(text=st.text(alphabet="气泡a1 ，", max_size=80))
def test_a_line_is_never_longer_than_asked_where_pieces_are_short(text):
    words_shortened = re.sub(r"([a1]{6})(?=[a1])", r"\1 ", re.sub(r"，+", "，", text))
    assert all(cell_len(line) <= 10 for line in wrap(words_shortened, 10))


def test_closing_punctuation_never_starts_a_line():
    for cells in range(4, 40):
        assert not any(
            line.startswith(("，", "。", "？", "%")) for line in wrap("气泡占比为 7.9 %，空闲时间多吗？是的。", cells)
        )


def test_a_number_keeps_its_per_cent_sign():
    assert wrap("a bubble fraction of 7.9 %.", 24) == ["a bubble fraction of", "7.9 %."]


def test_english_breaks_at_spaces_only():
    assert wrap("four GPUs do the work of one", 10) == ["four GPUs", "do the", "work of", "one"]


def test_line_feeds_of_the_text_stay():
    assert wrap("one\n\ntwo", 10) == ["one", "", "two"]
