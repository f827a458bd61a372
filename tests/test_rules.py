"""The facts of training: what depends on what, and which orders are no schedules."""

from __future__ import annotations

import numpy as np
import pytest

from pipesim.schedules import action, make_schedule, read_schedule, rules
from pipesim.schedules.action import Action, Op


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0F0,0B0\n1F0\n", "1B0 is missing"),
        ("0F0,0I0\n", "0W0 is missing"),
        ("0F1,0B1\n", "0F0 is missing"),
        ("0F0,0B0,0F0\n", "0F0 runs a second time (rank 0, step 2)"),
        ("0F0,0B0,0W0\n", "0W0 has no I; its stage has a whole B"),
        ("0B0,0F0\n", "0B0 comes before 0F0"),
        ("0F0,0W0,0I0\n", "0W0 comes before 0I0"),
        ("0F0,0F1,0B1\n0B0,\n", "0B0 needs 0F0, of another rank (rank 1, step 0)"),
        ("(0F0;0B0)OVERLAP_F_B,", "0B0 needs 0F0 and cannot overlap it"),
        ("(0F0;0F1)OVERLAP_F_B,0B0,0B1", "0F0 and 0F1 are no pair"),
        ("0F999999999,0B0", "0F0 is missing"),
        ("999999999F0,0B0", "0F0 is missing"),
    ],
)
def test_an_illegal_order_is_refused_with_the_rule_and_the_grid(text, problem):
    with pytest.raises(rules.IllegalSchedule) as caught:
        read_schedule(text)
    message = str(caught.value)
    assert message.startswith(problem)
    assert "\nrank 0  |" in message


def test_the_arrow_stands_under_the_bad_action():
    with pytest.raises(rules.IllegalSchedule) as caught:
        read_schedule("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1B1,1F1,1F2,1B2\n")
    _, rank_0, rank_1, arrow = str(caught.value).splitlines()
    assert rank_0.index("0F0") == rank_1.index("1F0")
    assert arrow.index("^^^") == rank_1.index("1B1")


def test_a_long_order_shows_what_is_around_the_bad_action():
    schedule = make_schedule("gpipe", p=2, m=100)
    text = schedule.to_csv().replace("1B50,1B51", "1B51,1B50,1B50")
    with pytest.raises(rules.IllegalSchedule, match="1B50 runs a second time") as caught:
        read_schedule(text)
    assert max(map(len, str(caught.value).splitlines())) < 150


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0X0\n", "line 1 (rank 0): '0X0' is no action"),
        ("0F0,0B0\n1F0,hello\n", "line 2 (rank 1): 'hello' is no action"),
        (",\n", "the schedule has no actions"),
        ("(0F0;0Z1)OVERLAP_F_B,", "'0Z1' is no action"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are compared
        read_schedule(text)
    assert words in str(caught.value)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_schedule(tmp_path / "no.csv")
    file = tmp_path / "mine.csv"
    file.write_text(make_schedule("zbv", p=2, m=4).to_csv())
    assert read_schedule(file).name == "mine"
    assert read_schedule(str(file)) == make_schedule("zbv", p=2, m=4)


def test_empty_cells_are_fillers_and_stages_are_placed_by_the_rows():
    schedule = read_schedule("0F0,,,,0B0\n,1F0,,1B0,\n,,2F0 , 2B0\n")
    assert schedule == action.parse("0F0,0B0\n1F0,1B0\n2F0,2B0\n")
    assert schedule.rank_of().tolist() == [0, 0, 1, 1, 2, 2]


def test_each_action_depends_on_its_neighbour_stage_and_its_own():
    schedule = make_schedule("interleaved_zb", p=2, m=2, v=2)
    needs = rules.dependencies(schedule)
    where = {schedule.action(i): i for i in range(len(schedule))}
    last = schedule.stages - 1
    for i in range(len(schedule)):
        stage, op, micro_batch = schedule.action(i)
        remote, local = {
            Op.F: ((stage - 1, Op.F) if stage else None, None),
            Op.I: ((stage + 1, Op.I) if stage < last else None, (stage, Op.F)),
            Op.W: (None, (stage, Op.I)),
        }[op]
        for found, needed in ((needs.remote[i], remote), (needs.local[i], local)):
            assert found == (where[Action(*needed, micro_batch)] if needed else -1)


def test_a_whole_backward_can_follow_an_input_gradient_of_the_next_stage():
    schedule = read_schedule("0F0,0B0\n1F0,1I0,1W0\n")
    needs = rules.dependencies(schedule)
    assert schedule.action(int(needs.remote[1])) == Action(1, Op.I, 0)


def test_a_stage_on_two_ranks_is_legal_if_each_micro_batch_stays_on_one():
    schedule = make_schedule("chimera", p=2, m=2)
    rules.validate(schedule)
    assert {int(rank) for rank in np.unique(schedule.rank_of()[schedule.stage == 0])} == {0, 1}


def test_an_action_reads_as_it_prints():
    for text in ("0F0", "12W3", "7I10", "3B0"):
        assert str(Action.parse(text)) == text
    for text in ("F0", "0F", "0G0", "0F-1", "0F0 1"):
        with pytest.raises(ValueError, match="is no action"):
            Action.parse(text)
