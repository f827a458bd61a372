"""Timelines as text."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from timelines import PAIR, TWO_STAGES_EACH, by_name, every_timeline, unit_timeline

from pipesim.report.timeline import lanes
from pipesim.report.timeline import text as timeline_text
from pipesim.schedules import make_schedule
from pipesim.schedules.action import Op, Schedule, parse
from pipesim.simulate import Timeline, simulate

GPIPE = """\
rank 0 | F0F1F2F3··················b0b0b1b1b2b2b3b3
rank 1 | ··F0F1F2F3············b0b0b1b1b2b2b3b3····
rank 2 | ····F0F1F2F3······b0b0b1b1b2b2b3b3········
rank 3 | ······F0F1F2F3b0b0b1b1b2b2b3b3············"""


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


# every schedule


@pytest.mark.parametrize("module", [lanes, timeline_text])
def test_the_examples_of_the_docstrings_are_real(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_narrow_cells_equal_the_durations(timeline: Timeline) -> None:
    """The cells of a pair are those of its two labels together."""
    schedule, joined = timeline.schedule, timeline.schedule.joined
    lines = [line.split(" | ")[1] for line in timeline_text.draw(timeline, 1.0).splitlines()]
    width, labels = len(lines[0]) // int(timeline.makespan_s), labels_of(schedule)
    second = np.r_[False, joined[:-1]]
    for rank, line in enumerate(lines):
        own = np.flatnonzero(schedule.rank_of() == rank)
        cells = Counter(line[k : k + width].strip() for k in range(0, len(line), width))
        idle = cells.pop("·" * width, 0)
        slots = [(i, i + 1) if joined[i] else (i,) for i in own if not second[i]]
        for slot in slots:
            assert sum(cells[labels[i]] for i in slot) == timeline.end_s[slot[0]] - timeline.start_s[slot[0]]
        assert set(cells) == {labels[i] for i in own}
        assert idle == timeline.makespan_s - timeline.busy_s[rank]


def labels_of(schedule: Schedule) -> list[str]:
    of = lanes.lanes(schedule)
    letters = {Op.F: "F", Op.B: "b", Op.I: "i", Op.W: "w"}
    return [
        f"{letter}{letters[Op(op)]}{number}{mark}"
        for letter, op, number, mark in zip(of.letters(), schedule.op, schedule.micro_batch, of.marks(), strict=True)
    ]


@pytest.mark.parametrize("timeline", by_name(every_timeline()))
def test_wide_text_names_every_action_where_it_starts(timeline: Timeline) -> None:
    ruler, *lines = timeline_text.draw(timeline, 1.0, wide=True).splitlines()
    schedule, marks = timeline.schedule, lanes.lanes(timeline.schedule).marks()
    left, right = ruler.index("| ") + 2, ruler.index("| peak")
    width = (right - left) // int(timeline.makespan_s)
    assert {len(line.rsplit("|", 1)[0]) for line in lines} == {right}
    for i, rank in enumerate(schedule.rank_of().tolist()):
        cell = lines[rank][left + int(timeline.start_s[i]) * width : left + int(timeline.end_s[i]) * width]
        assert f"{schedule.action(i)}{marks[i]}" in re.split(r"[&─ ]", cell)
    assert [int(line.rsplit("| ", 1)[1]) for line in lines] == list(timeline.peak_inflight)


def test_the_rulers_numbers_stand_over_their_cells() -> None:
    ruler, first, *_ = timeline_text.draw(unit_timeline("1f1b", p=2, m=8), 1.0, wide=True).splitlines()
    at = ruler.index("10")
    assert (at - ruler.index("0")) % 10 == 0
    assert ruler.index("|", 8) == first.index("|", 8)
