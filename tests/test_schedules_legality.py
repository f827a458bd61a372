"""What is refused, what is advised against, and what the messages say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pipesim.schedules import (
    MAX_ACTIONS,
    canonical_name,
    make_schedule,
    problems,
    rules,
    schedule_names,
    warnings,
)
from pipesim.schedules.interleaved_1f1b import interleaved_1f1b
from pipesim.simulate import Deadlock, simulate


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pipedream_flush", "1f1b"), ("PipeDream-Flush", "1f1b"), ("DAPPLE", "1f1b"), ("vpp", "interleaved_1f1b"),
        ("Interleaved1F1B", "interleaved_1f1b"), ("ScheduleInterleaved1F1B", "interleaved_1f1b"), ("GPipe", "gpipe"),
        ("afab", "gpipe"), ("bfs", "looped_bfs"), ("LoopedBFS", "looped_bfs"), ("zb1p", "zb_h1"), ("ZB-1p", "zb_h1"),
        ("zb2p", "zb_h2"), ("ZBV", "zbv"), ("ZBVZeroBubble", "zbv"), ("InterleavedZeroBubble", "interleaved_zb"),
        ("V-Half", "v_half"), ("vmin", "v_min"), ("1F1B-V", "1f1b_v"), ("DualPipe", "dualpipe"),
        ("dualpipe_v", "dualpipev"),
        ("Chimera", "chimera"), ("Hanayo", "hanayo"), ("Seq1F1B", "seq1f1b"), ("eager", "eager_1f1b"), ("1F1B", "1f1b"),
    ],
)  # fmt: skip
def test_what_people_type_is_understood(typed, meant):
    assert canonical_name(typed) == meant
    assert make_schedule(typed, p=4, m=8) == make_schedule(meant, p=4, m=8)


def test_every_name_makes_a_schedule_without_further_choices():
    for name in schedule_names():
        schedule = make_schedule(name, p=4, m=8)
        rules.validate(schedule)
        assert schedule.name == name


def test_an_unknown_name_lists_the_nearest_and_all():
    (message,) = problems("interleaved_1f1", 4, 8)
    assert "schedule.name='interleaved_1f1' is unknown" in message
    assert re.search(r"Nearest: interleaved_1f1b", message)
    assert all(name in message for name in schedule_names())
    with pytest.raises(ValueError, match="is unknown"):
        warnings("nonsense", 4, 8)


def test_all_broken_rules_are_told_at_once():
    found = problems("dualpipe", 3, 8, 2)
    assert [re.match(r"(parallel\.\w)=\d", message)[1] for message in found] == ["parallel.v", "parallel.p"]
    with pytest.raises(ValueError, match=r"(?s)parallel\.v=2.*Nearest: v=1.*parallel\.p=3.*Nearest: p=4"):
        make_schedule("dualpipe", p=3, m=8, v=2)


@pytest.mark.parametrize(("p", "m", "v"), [(0, 8, 1), (4, 0, 1), (4, 8, 0), (4, 2.5, 1), (True, 8, 1), (4, None, 1)])
def test_sizes_are_whole_numbers_of_at_least_1(p, m, v):
    (message,) = problems("gpipe", p, m, v)
    assert "must be a whole number of at least 1. Nearest: 1." in message


def test_numpys_whole_numbers_are_whole_numbers():
    assert make_schedule("1f1b", p=np.int64(2), m=np.int64(3)) == make_schedule("1f1b", p=2, m=3)


@pytest.mark.parametrize(("name", "v"), [("zbv", 3), ("v_half", 1), ("1f1b", 2), ("dualpipev", 1), ("chimera", 2)])
def test_a_fixed_number_of_stages_is_told(name, v):
    (message,) = problems(name, 4, 8, v)
    nearest = 2 if name in ("zbv", "v_half", "dualpipev") else 1
    assert message.startswith(f"parallel.v={v}: schedule.name={name} has")
    assert message.endswith(f"Nearest: v={nearest}.")


def test_hanayo_needs_whole_waves():
    assert problems("hanayo", 4, 8, 3) == [
        "parallel.v=3: schedule.name=hanayo has two stages per rank and wave; v must be even. Nearest: v=2 or v=4."
    ]


def test_too_many_actions_are_refused_before_they_are_made():
    (message,) = problems("1f1b", 64, 10**6)
    nearest = int(re.search(r"Nearest: num_microbatches=(\d+)", message)[1])
    assert problems("1f1b", 64, nearest) == []
    assert problems("1f1b", 64, nearest + 1) != []
    assert 2 * 64 * nearest <= MAX_ACTIONS


def test_an_option_of_another_schedule_is_refused():
    assert problems("gpipe", 4, 8, group=4) == ["schedule.group: schedule.name=gpipe has no such option; it has none."]
    assert "it has group." in problems("vpp", 4, 8, segments=4)[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_inflight": 1, "v": 2}, "schedule.max_inflight=1"),
        ({"kept_for_weights": 0}, "schedule.kept_for_weights=0"),
        ({"objective": "speed"}, "schedule.objective='speed'"),
        ({"forward_s": [1, 2]}, "schedule.forward_s must be one number, or one for each of 4 stages"),
        ({"weight_grad_s": -1}, "schedule.weight_grad_s"),
    ],
)
def test_auto_says_what_is_wrong_with_its_options(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make_schedule("auto", p=4, m=8, **options)


def test_exactly_the_groups_that_deadlock_are_refused():
    for v in (2, 3, 4):
        for p in range(1, 6):
            for group in range(1, 2 * p + 2):
                for m in range(1, 3 * group + 3):
                    try:
                        simulate(interleaved_1f1b(p, m, v, group))
                        runs = True
                    except Deadlock:
                        runs = False
                    assert (problems("interleaved_1f1b", p, m, v, group=group) == []) == runs, (p, m, v, group)


def test_the_numbers_of_micro_batches_named_for_a_group_run():
    (message,) = problems("interleaved_1f1b", 8, 20, 2, group=8)
    named = re.search(r"num_microbatches=(\d+) or (\d+)", message).groups()
    for m in map(int, named):
        assert problems("interleaved_1f1b", 8, m, 2, group=8) == []
    assert "schedule.group=8" in message
    assert "parallel.p=8" in message
    assert "training.micro_batch" in message


def test_few_micro_batches_run_with_a_warning_that_names_the_keys():
    for name in schedule_names():
        assert problems(name, 8, 1) == []
        assert simulate(make_schedule(name, p=8, m=1)).makespan_s > 0
        message = warnings(name, 8, 1)[0]
        assert "num_microbatches=1 is smaller than parallel.p=8" in message
        assert "training.micro_batch" in message
        assert "Nearest: num_microbatches=8" in message
    assert warnings("1f1b", 8, 8) == []
    assert warnings("1f1b", 1, 1) == []


@pytest.mark.parametrize(("name", "m", "nearest"), [("dualpipe", 9, 16), ("dualpipev", 9, 16), ("chimera", 9, 8)])
def test_what_a_schedule_is_not_made_for_is_a_warning(name, m, nearest):
    assert problems(name, 8, m) == []
    (message,) = warnings(name, 8, m)
    assert f"num_microbatches={m}" in message
    assert f"num_microbatches={nearest}" in message


def test_m_smaller_than_p_takes_the_published_time():
    timeline = simulate(make_schedule("1f1b", p=8, m=4))
    assert timeline.bubble_fraction == pytest.approx(0.636, abs=1e-3)
    assert simulate(make_schedule("1f1b", p=8, m=1)).bubble_fraction == 0.875
    # interleaved, F + B of a whole rank 3: 21 with p=6, m=3, v=2; the usual formula would say 19.5
    assert simulate(make_schedule("vpp", p=6, m=3, v=2), 0.5, 0.5, 0.5).makespan_s == 21
