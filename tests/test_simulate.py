"""What a simulation says: closed forms, links, iterations, many points, any number of micro-batches."""

from __future__ import annotations

import numpy as np
import pytest

from pipesim.schedules import make_schedule, read_schedule, schedule_names
from pipesim.schedules.compiled import compiled
from pipesim.simulate import (
    Deadlock,
    Link,
    Links,
    figures,
    placed,
    simulate,
    simulate_iterations,
    simulate_many,
    steady_period_s,
)
from pipesim.simulate.growth import growth
from pipesim.simulate.periodic import Figures

TWO_HOPS = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
OVERLAPPED = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n"
ZB_2P = "0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2\n1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n"


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 5), (4, 3), (8, 16)])
def test_makespan_equals_the_published_closed_form(name, p, m):
    # Narayanan et al. 2021, section 2.2: ideal m (tf + tb), bubble (p - 1)(tf + tb)
    timeline = simulate(make_schedule(name, p=p, m=m), 1.0, 0.5, 1.5)
    assert timeline.makespan_s == (m + p - 1) * 3.0
    assert timeline.bubble_overhead == pytest.approx((p - 1) / m)
    assert timeline.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))


def test_times_may_differ_by_micro_batch():
    forward_s = [[1.0, 4.0], [1.0, 1.0]]
    timeline = simulate(read_schedule(TWO_HOPS), forward_s, 1.0, 0.0)
    assert timeline.start_s.tolist() == [0, 1, 7, 8, 1, 5, 6, 7]


def test_a_pair_takes_its_own_time_and_else_the_sum_of_its_two():
    schedule = read_schedule(OVERLAPPED)
    assert simulate(schedule).makespan_s == 12.0  # 0F0 1F0 1B0, the pair, 1F1 1B1 0B1
    fused = simulate(schedule, pair_s=2.0)
    first = int(np.flatnonzero(schedule.joined)[0])
    assert (fused.end_s - fused.start_s)[first] == 2.0
    per_stage = simulate(schedule, pair_s=[2.0, 9.0])  # the pair's first action is of stage 0
    assert per_stage.makespan_s == fused.makespan_s


def test_a_message_takes_latency_plus_bytes_over_bandwidth():
    links = Links(latency_s=0.5, bytes_per_s=4.0, message_bytes=8.0)
    timeline = simulate(read_schedule("0F0,0B0\n1F0,1B0\n"), links=links)
    assert timeline.start_s.tolist() == [0.0, 1 + 2.5 + 3 + 2.5, 3.5, 4.5]


def test_a_link_carries_one_message_at_a_time_in_each_direction():
    links = Links(bytes_per_s=1.0, message_bytes=3.0)
    timeline = simulate(read_schedule(TWO_HOPS), links=links)
    assert timeline.start_s[4:6].tolist() == [4.0, 7.0]  # 0F1 ends at 2, its message waits until 4


def test_rendezvous_starts_a_message_when_its_reader_asks_for_it():
    schedule = read_schedule("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    eager = simulate(schedule, latency_s=0.5)
    asked = simulate(schedule, links=Links(latency_s=0.5, rendezvous=True))
    assert eager.start_s[6] == 1.5 + 1 + 2  # 1F1 finds its input there when 1B0 ends
    assert asked.start_s[6] == eager.start_s[6] + 0.5


def test_a_blocking_send_holds_the_sender_until_its_message_has_left():
    links = Links(bytes_per_s=1.0, message_bytes=3.0, blocking_sends=True)
    timeline = simulate(read_schedule(TWO_HOPS), links=links)
    assert timeline.start_s[:2].tolist() == [0.0, 4.0]


def test_blocking_rendezvous_deadlocks_where_two_ranks_send_to_each_other_and_the_message_says_so():
    schedule = make_schedule("1f1b", p=2, m=3)
    with pytest.raises(Deadlock) as told:
        simulate(schedule, links=Links(rendezvous=True, blocking_sends=True))
    assert str(told.value) == (
        "1f1b deadlocks:\n"
        "rank 0: 0F1 cannot hand over its result before 1F1 of rank 1 asks for it\n"
        "rank 1: 1B0 cannot hand over its result before 0B0 of rank 0 asks for it"
    )


def test_a_deadlock_is_told_as_the_cycle_of_waiting_actions():
    with pytest.raises(Deadlock) as told:
        simulate(read_schedule("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"))
    assert str(told.value) == (
        "custom deadlocks:\nrank 0: 0B0 waits for 1B0 of rank 1\nrank 1: 1F1 waits for 0F1 of rank 0"
    )


def test_the_node_of_each_rank_decides_its_link():
    links = placed([0, 0, 1], inside=Link(0.25), between=Link(2.0))
    timeline = simulate(make_schedule("1f1b", p=3, m=1), links=links)
    assert timeline.makespan_s == 9 + 2 * 0.25 + 2 * 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"forward_s": [1.0, 2.0, 3.0]}, "one for each of 2 stages"),
        ({"forward_s": -1.0}, "forward_s=-1.0 must be finite and at least 0"),
        ({"latency_s": float("nan")}, "latency_s=nan must be a finite number"),
        ({"pair_s": [1.0, 2.0, 3.0]}, "pair_s has shape"),
        ({"links": Links(bytes_per_s=0.0)}, "bytes_per_s=0.0 must be above 0"),
        ({"links": Links(message_bytes=[1.0, 2.0])}, "one for each of 1 boundaries"),
        ({"links": Links(latency_s=[[1.0]] * 3)}, "2 x 2, sender by receiver"),
        ({"links": Links(), "latency_s": 1.0}, "put the latency into links"),
    ],
)
def test_wrong_times_are_refused_with_the_rule(arguments, words):
    with pytest.raises(ValueError, match=words):
        simulate(make_schedule("1f1b", p=2, m=2), **arguments)


def test_the_one_shot_makespan_hides_what_span_and_period_show():
    schedule = read_schedule(ZB_2P)
    timeline = simulate(schedule)
    assert (timeline.makespan_s, timeline.span_s, steady_period_s(schedule)) == (10.0, 9.0, 9.0)


def test_the_steady_period_is_where_many_iterations_end_up():
    rng = np.random.default_rng(0)
    for _ in range(20):
        schedule = make_schedule("1f1b", p=int(rng.integers(2, 5)), m=int(rng.integers(1, 6)))
        links = Links(
            latency_s=rng.random(), bytes_per_s=2.0, message_bytes=rng.random(), rendezvous=rng.random() < 0.5
        )
        times = rng.random((3, schedule.stages))
        optimizer_s = rng.random(schedule.p)
        run = simulate_iterations(schedule, 240, *times, links=links, optimizer_s=optimizer_s, barrier=False)
        mean_s = (run.ready_s[-1].max() - run.ready_s[-121].max()) / 120
        period_s = steady_period_s(schedule, *times, links=links, optimizer_s=optimizer_s)
        assert period_s == pytest.approx(mean_s, rel=1e-9)


def test_a_barrier_makes_the_period_a_makespan_and_the_slowest_optimizer_step():
    schedule = read_schedule(ZB_2P)
    optimizer_s = [0.5, 2.0]
    assert steady_period_s(schedule, optimizer_s=optimizer_s, barrier=True) == 12.0
    run = simulate_iterations(schedule, 3, optimizer_s=optimizer_s, barrier=True)
    assert run.makespan_s == 36.0
    assert steady_period_s(schedule, optimizer_s=optimizer_s) < 12.0


def test_many_points_equal_one_by_one_to_the_last_bit():
    rng = np.random.default_rng(1)
    n = 60
    p, m = rng.choice([1, 2, 4], n), rng.choice([1, 4, 8], n)
    times, latency_s = rng.random((3, n, 4)), rng.random(n)
    batch = simulate_many(
        "1f1b", p=p, m=m, v=1, forward_s=times[0], input_grad_s=times[1], weight_grad_s=times[2], latency_s=latency_s
    )
    for i in range(n):
        own = times[:, i, : p[i]]
        timeline = simulate(make_schedule("1f1b", p=int(p[i]), m=int(m[i])), *own, latency_s[i])
        assert batch.makespan_s[i] == timeline.makespan_s
        assert batch.span_s[i] == timeline.span_s
        assert batch.bubble_fraction[i] == pytest.approx(timeline.bubble_fraction, abs=1e-12)


def test_a_batch_refuses_times_that_are_missing_or_negative():
    with pytest.raises(ValueError, match="2 times are given for each point; 1f1b has 4 stages"):
        simulate_many("1f1b", p=4, m=4, v=1, forward_s=np.ones((1, 2)))
    with pytest.raises(ValueError, match="latency_s=-1\\.0 must be finite"):
        simulate_many("1f1b", p=[2, 4], m=4, v=1, latency_s=-1.0)


EXACT = {"forward_s": 1.0, "input_grad_s": 0.75, "weight_grad_s": 0.5, "latency_s": 0.125}
INEXACT = {"forward_s": 1.1, "input_grad_s": 0.7, "weight_grad_s": 0.3, "latency_s": 0.05}
STATIC = [name for name in schedule_names() if name != "auto"]


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("m", [128, 130])
def test_a_few_micro_batches_tell_all_about_many(name, m):
    found = figures(name, p=4, m=m, **EXACT)
    timeline = simulate(make_schedule(name, p=4, m=m), **EXACT)
    assert (found.makespan_s, found.span_s) == (timeline.makespan_s, timeline.span_s)  # to the last bit
    assert found.busy_s.tolist() == timeline.busy_s.tolist()
    assert found.peak_inflight == timeline.peak_inflight
    assert found.simulated < timeline.schedule.m


@pytest.mark.parametrize("name", STATIC)
def test_times_that_no_sum_represents_come_within_1e_12(name):
    found, timeline = figures(name, p=4, m=128, **INEXACT), simulate(make_schedule(name, p=4, m=128), **INEXACT)
    assert found.makespan_s == pytest.approx(timeline.makespan_s, rel=1e-12)
    assert found.bubble_fraction == pytest.approx(timeline.bubble_fraction, abs=1e-12)
    assert found.simulated < timeline.schedule.m


def test_a_period_is_found_with_unequal_stages_and_links_that_queue():
    links = Links(latency_s=0.25, bytes_per_s=4.0, message_bytes=[1.0, 4.0, 2.0])
    times = {"forward_s": [1.0, 1.25, 1.0, 1.5], "input_grad_s": [1.0, 1.0, 2.0, 1.0], "links": links}
    found, timeline = figures("1f1b", p=4, m=200, **times), simulate(make_schedule("1f1b", p=4, m=200), **times)
    assert found.how == "period"
    assert found.makespan_s == timeline.makespan_s


def test_a_million_micro_batches_follow_the_closed_form():
    found = figures("1f1b", p=8, m=10**6)
    assert found.makespan_s == (10**6 + 7) * 3.0
    assert (found.how, found.simulated, found.peak_inflight[0]) == ("period", 32, 8)


def test_a_group_of_micro_batches_is_a_block_of_its_own():
    found = figures("interleaved_1f1b", p=4, m=480, group=6)
    assert found.how == "period"
    assert found.makespan_s == simulate(make_schedule("interleaved_1f1b", p=4, m=480, group=6)).makespan_s


def test_what_breaks_a_rule_is_refused_with_the_rule():
    with pytest.raises(ValueError, match=r"parallel\.p=3"):
        figures("dualpipe", p=3, m=64)
    with pytest.raises(ValueError, match="every micro-batch takes the same time"):
        figures("1f1b", p=2, m=3, forward_s=np.ones((2, 3)))


def test_a_short_run_is_run_in_full():
    found: Figures = figures("1f1b", p=4, m=5)
    assert (found.how, found.makespan_s) == ("full", 24.0)


def test_an_order_that_grows_in_several_places_has_no_single_block():
    assert growth(make_schedule("1f1b", p=2, m=8), make_schedule("1f1b", p=2, m=10)) is not None
    grown = growth(make_schedule("gpipe", p=2, m=8), make_schedule("gpipe", p=2, m=10))
    assert grown is not None
    assert (grown.high - grown.low < grown.block).all()  # nothing in it repeats
    assert growth(make_schedule("gpipe", p=2, m=8), make_schedule("1f1b", p=2, m=10)) is None


def test_where_no_cache_can_be_written_functions_are_compiled_all_the_same():
    scope: dict[str, object] = {}
    exec("def twice(x):\n    return 2 * x\n", scope)  # without a file there is no folder for a cache
    assert compiled(scope["twice"])(21) == 42
