"""What a timeline explains: what is held, why ranks are idle, which chain makes it long, what no order can beat."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pipesim.schedules import make_schedule, read_schedule, schedule_names
from pipesim.schedules.action import Op
from pipesim.simulate import (
    Cause,
    Links,
    Timeline,
    critical_path,
    idle,
    idle_between,
    lower_bounds,
    peak_held,
    simulate,
    simulate_iterations,
)
from pipesim.simulate.memory import changes, curve, peaks

SPLIT = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n"
LINKS = [
    Links(),
    Links(latency_s=0.25),
    Links(latency_s=0.25, bytes_per_s=2.0, message_bytes=3.0),
    Links(bytes_per_s=2.0, message_bytes=3.0, rendezvous=True),
    Links(latency_s=0.5, bytes_per_s=2.0, message_bytes=3.0, blocking_sends=True),
]


def exact_times(schedule, seed):
    """Eighths: every sum of them is exact."""
    return np.random.default_rng(seed).integers(1, 16, (3, schedule.stages)) / 8


def cases():
    for name in schedule_names():
        for p, m in ((2, 4), (4, 8)):
            schedule = make_schedule(name, p=p, m=m)
            for seed, links in enumerate(LINKS):
                yield schedule, exact_times(schedule, seed), links


def test_idle_causes_sum_to_the_bubble_exactly_for_every_schedule_and_every_link():
    for schedule, times, links in cases():
        timeline = simulate(schedule, *times, links=links)
        found = idle(timeline)
        assert found.total_s == schedule.p * timeline.makespan_s - timeline.busy_s.sum(), schedule.name
        assert found.by_rank().tolist() == (timeline.makespan_s - timeline.busy_s).tolist()
        assert sum(found.by_cause().values()) == found.total_s
        assert Cause.DELAY not in found.by_cause()


def test_waits_before_each_action_and_after_the_last_are_all_idle_time_by_cause():
    for schedule, times, links in cases():
        timeline = simulate(schedule, *times, links=links)
        found = idle(timeline)
        waited_s = found.by_action()
        rank_of, last = schedule.rank_of(), schedule.rank_start[1:] - 1
        opens = np.r_[True, rank_of[1:] != rank_of[:-1]]
        slot = np.r_[True, ~schedule.joined[:-1]]
        free_s = np.where(opens, timeline.start_s.min(), np.r_[0.0, timeline.end_s[:-1]])
        assert (waited_s.sum(axis=1) == np.where(slot, timeline.start_s - free_s, 0.0)).all()
        after_s = timeline.end_s.max() - timeline.end_s[last]
        by_cause = waited_s.sum(axis=0)
        by_cause[Cause.COOL_DOWN] += after_s.sum()
        assert {cause: s for cause, s in zip(Cause, by_cause, strict=True) if s > 0} == found.by_cause()
        assert found.by_rank_and_cause().sum(axis=0).tolist() == by_cause.tolist()


def test_idle_intervals_lie_where_the_rank_does_nothing_and_never_overlap():
    for schedule, times, links in cases():
        timeline = simulate(schedule, *times, links=links)
        intervals = list(idle(timeline))
        for one, other in pairwise(intervals):
            assert one.end_s <= other.start_s or one.rank < other.rank
        for gap in intervals[:: max(1, len(intervals) // 7)]:
            own = slice(int(schedule.rank_start[gap.rank]), int(schedule.rank_start[gap.rank + 1]))
            assert not ((timeline.start_s[own] < gap.end_s) & (timeline.end_s[own] > gap.start_s)).any()


def test_every_cause_is_named_where_it_belongs():
    schedule = read_schedule("0F0,0F1,0F2,0B0,0B2,0B1\n1F0,1F2,1F1,1B0,1B2,1B1\n")  # 1F2 overtakes 1F1
    timeline = simulate(schedule, links=Links(latency_s=0.5, bytes_per_s=1.0, message_bytes=3.0))
    told = [(gap.rank, gap.start_s, gap.end_s, str(gap.cause), str(gap.waits_for)) for gap in idle(timeline)]
    assert told == [
        (0, 3.0, 14.5, "waiting", "1B0"),
        (0, 14.5, 18.0, "travel", "1B0"),
        (0, 20.0, 21.0, "travel", "1B2"),
        (0, 23.0, 24.0, "travel", "1B1"),
        (1, 0.0, 4.5, "warm up", "None"),
        (1, 5.5, 7.0, "link busy", "0F2"),
        (1, 7.0, 10.5, "travel", "0F2"),
        (1, 18.5, 26.0, "cool down", "None"),
    ]


def test_equal_stages_have_no_imbalance_and_a_slow_one_makes_others_wait_for_it():
    schedule = make_schedule("1f1b", p=4, m=8)
    assert Cause.IMBALANCE not in idle(simulate(schedule)).by_cause()
    slow = idle(simulate(schedule, [1, 1, 1, 2]))
    assert slow.by_cause()[Cause.IMBALANCE] >= 3 * 5  # in the steady state every other rank waits a second a turn
    assert all(gap.rank < 3 for gap in slow if gap.cause is Cause.IMBALANCE)


def test_blocked_senders_are_idle_because_they_send():
    timeline = simulate(
        make_schedule("1f1b", p=3, m=3), links=Links(bytes_per_s=1.0, message_bytes=0.5, blocking_sends=True)
    )
    assert idle(timeline).by_cause()[Cause.SENDING] > 0


@pytest.mark.parametrize("barrier", [True, False])
def test_idle_causes_of_several_iterations_sum_to_what_is_neither_work_nor_optimizer(barrier):
    schedule = make_schedule("zb_h2", p=4, m=8)
    optimizer_s = np.array([0.5, 0.25, 1.0, 0.125])
    run = simulate_iterations(schedule, 3, *exact_times(schedule, 0), optimizer_s=optimizer_s, barrier=barrier)
    found = idle_between(run)
    work_s = sum(timeline.busy_s.sum() for timeline in run.timelines) + 3 * optimizer_s.sum()
    assert found.total_s == 4 * run.makespan_s - work_s
    assert (Cause.BARRIER in found.by_cause()) == barrier


def test_a_rank_without_actions_is_unused():
    timeline = simulate(read_schedule("0F0,0B0\n\n1F0,1B0\n"))
    assert idle(timeline).by_cause()[Cause.UNUSED] == timeline.makespan_s
    assert timeline.busy_s.tolist() == [3.0, 0.0, 3.0]


def test_a_measured_timeline_tells_what_nothing_explains():
    exact = simulate(make_schedule("1f1b", p=2, m=2))
    late_s = 0.5 * (exact.start_s > 1)  # 1B0 could have started when 1F0 had ended
    late = Timeline(schedule=exact.schedule, start_s=exact.start_s + late_s, end_s=exact.end_s + late_s)
    assert [(gap.rank, gap.start_s, gap.end_s) for gap in idle(late) if gap.cause is Cause.DELAY] == [(1, 2.0, 2.5)]


def test_the_critical_path_has_no_gap_but_communication():
    for schedule, times, links in cases():
        timeline = simulate(schedule, *times, links=links)
        path = critical_path(timeline)
        assert path[-1].end_s == timeline.end_s.max()
        assert path[0].start_s == timeline.start_s.min()
        for before, step in pairwise(path):
            gap_s = step.start_s - before.end_s
            assert gap_s >= 0
            if not links.blocking_sends and step.through == "rank":
                assert gap_s == 0
            if links.latency_s == 0 and links.message_bytes == 0:
                assert gap_s == 0


def test_no_timeline_is_shorter_than_its_bounds():
    for schedule, times, links in cases():
        timeline, bounds = simulate(schedule, *times, links=links), lower_bounds(schedule, *times, links=links)
        assert timeline.makespan_s >= bounds.makespan_s, schedule.name
        assert timeline.span_s >= bounds.span_s


def test_bounds_are_reached_where_the_papers_say_so():
    assert lower_bounds(make_schedule("1f1b", p=4, m=8)).makespan_s == 33.0  # (m + p - 1)(F + B)
    bounds = lower_bounds(make_schedule("1f1b", p=4, m=1), latency_s=0.5)
    assert (bounds.path_s, bounds.work_s) == (15.0, 15.0)  # one micro-batch: 4 (F + B) and 6 hops
    assert lower_bounds(make_schedule("zb_h2", p=4, m=8)).span_s == simulate(make_schedule("zb_h2", p=4, m=8)).span_s


def test_what_is_freed_at_i_is_held_for_a_shorter_time():
    schedule = read_schedule(SPLIT)
    timeline = simulate(schedule)
    assert peak_held(schedule, np.ones(2)).tolist() == [2.0, 2.0]
    assert peak_held(schedule, np.ones(2), Op.I).tolist() == [2.0, 1.0]
    when_s, held = timeline.inflight(1, Op.I)
    assert held.tolist() == [1, 0, 1, 0]
    assert when_s.tolist() == [1.0, 3.0, 3.0, 6.0]
    assert timeline.inflight(1)[1].max() == 2


def test_the_most_that_the_curve_shows_is_the_peak():
    for name in schedule_names():
        schedule = make_schedule(name, p=4, m=8)
        timeline = simulate(schedule)
        curves = [timeline.inflight(rank)[1] for rank in range(4)]
        assert tuple(held.max() for held in curves) == timeline.peak_inflight, name
        assert all(held[-1] == 0 for held in curves)


def test_memory_deltas_may_have_any_sign():
    schedule = read_schedule(SPLIT)
    deltas = {Op.F: 4.0, Op.I: 1.5, Op.W: -5.5}  # the input gradient adds: its buffers outweigh what it frees
    assert peaks(schedule, changes(schedule, deltas)).tolist() == [9.5, 9.5]
    timeline = simulate(schedule)
    _, held = curve(schedule, timeline.start_s, timeline.end_s, changes(schedule, deltas), rank=0)
    assert (held.max(), held[-1]) == (9.5, 0.0)


def test_a_pair_holds_what_both_add_from_its_start():
    schedule = read_schedule("0F0,(0F1;0I0)OVERLAP_F_B,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n")
    change = changes(schedule, {Op.F: 4.0, Op.I: 1.0, Op.W: -5.0})
    timeline = simulate(schedule)
    assert timeline.peak_inflight == (2, 2)
    assert peaks(schedule, change).tolist() == [9.0, 10.0]
    when_s, held = curve(schedule, timeline.start_s, timeline.end_s, change, rank=0)
    assert list(zip(when_s, held, strict=True))[:3] == [(0.0, 4.0), (3.0, 9.0), (6.0, 4.0)]


def test_weights_per_stage_may_come_as_many_rows():
    schedule = make_schedule("1f1b", p=2, m=4)
    rows = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert peak_held(schedule, rows).tolist() == [[2.0, 2.0], [6.0, 5.0]]
