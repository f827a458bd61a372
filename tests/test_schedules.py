"""Laws that every schedule keeps, closed forms from the papers, and the golden table."""

from __future__ import annotations

import doctest
import importlib
import itertools
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesim.schedules
from pipesim.schedules import make_schedule, peak_inflight, problems, read_schedule, rules, schedule_names
from pipesim.schedules.families import FAMILIES
from pipesim.simulate import simulate, steady_period_s

SIZES = st.integers(1, 9)
MANY = st.integers(1, 24)
SECONDS = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 4.0])
NAMED = [name for name in schedule_names() if name != "auto"]

# F = I = W = 1, no communication: makespan, steady period, peak in flight at (p, m) = (4, 8), (8, 16), (8, 32).
# Source: simulations of the orders that PyTorch, Megatron-LM, the zero-bubble, DualPipe, Chimera and JaxPP code print.
GOLDEN = {
    ("gpipe", 1): [(33, 33, 8), (69, 69, 16), (117, 117, 32)],
    ("1f1b", 1): [(33, 33, 4), (69, 69, 8), (117, 117, 8)],
    ("interleaved_1f1b", 2): [(57, 57, 11), (117, 117, 23), (213, 213, 23)],
    ("interleaved_1f1b", 4): [(105, 105, 19), (213, 213, 39), (405, 405, 39)],
    ("looped_bfs", 2): [(57, 57, 16), (117, 117, 32), (213, 213, 64)],
    ("interleaved_zb", 1): [(27, 27, 4), (55, 55, 8), (103, 103, 8)],
    ("interleaved_zb", 2): [(51, 51, 8), (103, 103, 16), (199, 199, 16)],
    ("zb_h1", 1): [(27, 27, 4), (55, 55, 8), (103, 103, 8)],
    ("zb_h2", 1): [(27, 24, 8), (55, 48, 16), (103, 96, 16)],
    ("zbv", 2): [(51, 48, 8), (103, 96, 16), (199, 192, 16)],
    ("v_half", 2): [(53, 53, 6), (113, 113, 10), (209, 209, 10)],
    ("v_min", 2): [(59, 59, 4), (123, 123, 8), (219, 219, 8)],
    ("1f1b_v", 2): [(63, 63, 6), (129, 129, 12), (225, 225, 12)],
    ("dualpipev", 2): [(54, 54, 9), (110, 110, 17), (206, 206, 17)],
    ("dualpipe", 1): [(26, 26, 5), (54, 54, 9), (102, 102, 9)],
    ("chimera", 1): [(30, 30, 4), (66, 66, 8)],
    ("eager_1f1b", 1): [(33, 33, 7), (69, 69, 15), (117, 117, 15)],
}


@pytest.mark.parametrize(("name", "v"), GOLDEN, ids=lambda part: str(part))
def test_golden_makespan_steady_period_and_peak(name, v):
    for (p, m), expected in zip(((4, 8), (8, 16), (8, 32)), GOLDEN[name, v], strict=False):
        schedule = make_schedule(name, p=p, m=m, v=v)
        timeline = simulate(schedule)
        found = (timeline.makespan_s, steady_period_s(schedule), max(timeline.peak_inflight))
        assert found == expected, (p, m)


@pytest.mark.parametrize("module", [found.name for found in pkgutil.iter_modules(pipesim.schedules.__path__)])
def test_the_pictures_in_the_docstrings_are_what_is_made(module):
    assert doctest.testmod(importlib.import_module(f"pipesim.schedules.{module}")).failed == 0


@pytest.mark.parametrize("name", schedule_names())
def test_each_schedule_has_one_file_with_its_source_its_picture_and_its_memory_law(name):
    make = FAMILIES[name].make
    module = importlib.import_module(make.__module__)
    assert "Source: " in module.__doc__
    assert ">>> print(" in make.__doc__
    assert module.peak_inflight.__doc__
    assert sum(family.make.__module__ == make.__module__ for family in FAMILIES.values()) == 1


@st.composite
def choices(draw):
    """A schedule's name with sizes that break none of its rules."""
    name = draw(st.sampled_from(NAMED))
    p, m = draw(SIZES), draw(MANY)
    v = draw(st.integers(1, 4)) if FAMILIES[name].free_v else FAMILIES[name].v
    if name in ("dualpipe", "chimera"):
        p += p % 2
    if name == "hanayo":
        v += v % 2
    return name, p, m, v


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(choices())
def test_every_legal_choice_makes_a_valid_order_that_runs_within_its_memory_law(choice):
    name, p, m, v = choice
    assert problems(*choice) == []
    schedule = make_schedule(name, p=p, m=m, v=v)
    rules.validate(schedule)
    assert (schedule.p, schedule.stages) == (p, p * v)
    timeline = simulate(schedule)  # raises Deadlock
    assert np.all(np.array(timeline.peak_inflight) <= peak_inflight(name, p, m, v))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(choices(), SECONDS, SECONDS, SECONDS)
def test_no_makespan_is_below_the_work_of_a_rank_or_the_way_of_a_micro_batch(choice, forward_s, input_s, weight_s):
    name, p, m, v = choice
    schedule = make_schedule(name, p=p, m=m, v=v)
    timeline = simulate(schedule, forward_s, input_s, weight_s)
    work_s = schedule.m * v * (forward_s + input_s + weight_s)
    path_s = p * v * (forward_s + input_s) + (0 if FAMILIES[name].split else p * v * weight_s)
    assert timeline.makespan_s >= max(work_s, path_s) - 1e-9
    assert timeline.busy_s.sum() == pytest.approx(p * work_s)


@settings(max_examples=100, deadline=None)
@given(choices())
def test_more_micro_batches_never_enlarge_the_bubble(choice):
    name, p, m, v = choice
    fewer = simulate(make_schedule(name, p=p, m=p * m, v=v)).bubble_fraction
    more = simulate(make_schedule(name, p=p, m=2 * p * m, v=v)).bubble_fraction
    assert more <= fewer + 1e-12


@settings(max_examples=60, deadline=None)
@given(choices())
def test_a_schedule_comes_back_from_its_csv_unchanged(choice):
    name, p, m, v = choice
    schedule = make_schedule(name, p=p, m=m, v=v)
    assert read_schedule(schedule.to_csv()) == schedule


@given(SIZES, MANY, SECONDS, SECONDS, SECONDS)
def test_gpipe_and_1f1b_take_the_published_time(p, m, forward_s, input_s, weight_s):
    for name in ("gpipe", "1f1b", "eager_1f1b"):
        timeline = simulate(make_schedule(name, p=p, m=m), forward_s, input_s, weight_s)
        # Narayanan et al. 2021, section 2.2: ideal m (tf + tb) and bubble (p - 1)(tf + tb)
        assert timeline.makespan_s == pytest.approx((m + p - 1) * (forward_s + input_s + weight_s))


@given(SIZES, MANY, st.integers(1, 4))
def test_interleaving_divides_the_bubble_by_the_stages_for_any_number_of_micro_batches(p, m, v):
    timeline = simulate(make_schedule("interleaved_1f1b", p=p, m=m, v=v), 1 / v, 1 / v, 1 / v)
    # F + B of a whole rank is 3; the usual (p - 1) / (v m + p - 1) holds for m >= p only
    assert timeline.makespan_s == pytest.approx(3 * (max(m, p) + (min(m, p) - 1) / v))


@given(st.integers(1, 6), st.integers(0, 10), SECONDS, st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([0.75, 1.0]))
def test_dualpipe_idles_as_published_and_holds_p_plus_1(half, extra, forward_s, weight_part, overlap):
    p, m = 2 * half, 4 * half + 2 * extra
    weight_s = weight_part * forward_s
    backward_s = forward_s + weight_s
    pair_s = overlap * (forward_s + backward_s)
    timeline = simulate(make_schedule("dualpipe", p=p, m=m), forward_s, forward_s, weight_s, pair_s=pair_s)
    # DeepSeek-V3, table 2: (PP/2 - 1)(F&B + B - 3W), which takes F = I and W no longer than either
    idle_s = (half - 1) * (pair_s + backward_s - 3 * weight_s)
    idle_of_rank_s = timeline.makespan_s - timeline.busy_s
    assert max(idle_of_rank_s) == pytest.approx(idle_s)
    if overlap == 1:  # pairs that are shorter than their parts are not spread evenly over the ranks
        assert idle_of_rank_s == pytest.approx([idle_s] * p)
    assert max(timeline.peak_inflight) <= p + 1


@given(SIZES, MANY)
def test_zb_h1_idles_a_third_of_1f1b_and_zb_h2_not_at_all(p, m):
    m += 2 * p
    h1, h2 = (simulate(make_schedule(name, p=p, m=m)) for name in ("zb_h1", "zb_h2"))
    # Qi et al. 2024, table 2: (p - 1)(F + I - W) and 0, of the longest rank
    assert h1.span_s == h1.makespan_s == 3 * m + p - 1
    assert h2.span_s == 3 * m
    assert (max(h1.peak_inflight), max(h2.peak_inflight)) == (p, 2 * p)


@given(SIZES, MANY)
def test_zbv_never_idles_within_a_rank_at_the_memory_of_1f1b(p, m):
    m += 2 * p
    timeline = simulate(make_schedule("zbv", p=p, m=m))
    assert timeline.span_s == 6 * m
    assert timeline.peak_inflight == (2 * p,) * p  # of half a rank each


@given(st.integers(2, 12))
def test_controllable_memory_trades_a_longer_bubble_for_less_memory(p):
    m = 4 * p
    rows = [simulate(make_schedule(name, p=p, m=m)) for name in ("zbv", "v_half", "v_min")]
    assert sorted(row.makespan_s for row in rows) == [row.makespan_s for row in rows]
    assert sorted((max(row.peak_inflight) for row in rows), reverse=True) == [max(row.peak_inflight) for row in rows]


@pytest.mark.parametrize(("p", "v"), [*itertools.product((2, 4, 8), (2, 4, 8))])
def test_more_waves_of_hanayo_shorten_the_bubble(p, v):
    waves = simulate(make_schedule("hanayo", p=p, m=p, v=v), 1 / v, 1 / v, 1 / v)
    fewer = simulate(make_schedule("1f1b", p=p, m=p))
    assert waves.makespan_s < fewer.makespan_s
    more = simulate(make_schedule("hanayo", p=p, m=p, v=2 * v), 0.5 / v, 0.5 / v, 0.5 / v)
    assert more.makespan_s < waves.makespan_s


@given(SIZES, MANY, st.integers(1, 5))
def test_seq1f1b_is_1f1b_over_segments_and_backwards_run_from_the_last(p, m, segments):
    schedule = make_schedule("seq1f1b", p=p, m=m, segments=segments)
    rules.validate(schedule)
    assert (schedule.m, schedule.segments) == (m * segments, segments)
    if segments == 1:
        assert schedule == make_schedule("1f1b", p=p, m=m)


def test_a_segment_before_its_time_is_refused():
    schedule = read_schedule("0F0,0F1,0B0,0B1")
    with pytest.raises(rules.IllegalSchedule, match="0B0 comes before 0B1, a segment after it"):
        rules.validate(replace(schedule, segments=2))


@pytest.mark.parametrize("cap", [1, 2, 3, 4, 6, 8])
def test_auto_keeps_below_any_cap_and_gets_shorter_with_more(cap):
    timeline = simulate(make_schedule("auto", p=4, m=12, max_inflight=cap))
    assert max(timeline.peak_inflight) <= cap
    more = simulate(make_schedule("auto", p=4, m=12, max_inflight=cap + 1))
    assert more.makespan_s <= timeline.makespan_s


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 2), st.data())
def test_auto_is_no_longer_than_the_known_orders_for_unequal_times(p, m, v, data):
    per_stage = st.lists(SECONDS, min_size=p * v, max_size=p * v)
    forward_s, input_s, weight_s = (data.draw(per_stage) for _ in range(3))
    made = make_schedule("auto", p=p, m=m, v=v, forward_s=forward_s, input_grad_s=input_s, weight_grad_s=weight_s)
    rules.validate(made)
    found = simulate(made, forward_s, input_s, weight_s).makespan_s
    for name in ("zb_h1", "1f1b") if v == 1 else ("zbv", "v_half", "v_min"):
        known = make_schedule(name, p=p, m=m)
        assert found <= simulate(known, forward_s, input_s, weight_s).makespan_s + 1e-9
