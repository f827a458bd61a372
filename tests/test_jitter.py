"""Drawn steps: without chance they are the simulated ones, with it they are longer, and a slow rank costs what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import configs

from pipesim import compose
from pipesim.checks import Invalid
from pipesim.report.document import Table
from pipesim.schedules import make_schedule, schedule_names
from pipesim.schedules.action import Schedule
from pipesim.simulate import simulate
from pipesim.simulate.jitter import LANES, Chance, makespans_s
from pipesim.tasks.jitter import drawn as jittered
from pipesim.tasks.jitter.task import jitter

NAMES = [name for name in schedule_names() if name != "custom"]
EVEN = Chance(spread=0.1)


def drawn(schedule: Schedule, chance: Chance = EVEN, latency_s: float = 0.0, **options: Any) -> Any:
    asked = {"samples": 200, "seed": 1} | options
    return makespans_s(schedule, 1.0, 1.0, 1.0, latency_s, chance=chance, **asked)


@pytest.mark.parametrize("name", NAMES)
def test_without_chance_every_step_is_the_simulated_one_to_the_last_bit(name: str) -> None:
    schedule = make_schedule(name, p=4, m=8)
    times = [*np.random.default_rng(3).random((3, schedule.stages)), 0.37]
    found = makespans_s(schedule, *times, chance=Chance(), samples=2, seed=0)
    assert found.tolist() == [simulate(schedule, *times).makespan_s] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_the_simulation_of_what_was_drawn(name: str) -> None:
    schedule = make_schedule(name, p=4, m=8)
    seconds = np.empty((3, schedule.stages, schedule.m))
    found = drawn(schedule, samples=1)[0]
    factors = np.random.default_rng((1, 0, 0, 0)).standard_normal((seconds.size, LANES), np.float32)[:, 0]
    variance = np.log1p(0.1**2)
    seconds.ravel()[:] = np.exp(np.sqrt(variance) * factors - variance / 2)
    assert found == pytest.approx(simulate(schedule, *seconds).makespan_s, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zbv", "dualpipe"])
def test_chance_lengthens_a_step_the_more_the_wider_it_is(name: str) -> None:
    schedule = make_schedule(name, p=4, m=16)
    alone_s = simulate(schedule, 1.0, 1.0, 1.0, 0.2).makespan_s
    means = [drawn(schedule, Chance(spread=spread), 0.2).mean() for spread in (0.05, 0.1, 0.2, 0.4)]
    assert alone_s < means[0]
    assert means == sorted(means)
    stalls = [drawn(schedule, Chance(stall_probability=q, stall_s=5.0), 0.2).mean() for q in (0.0, 0.01, 0.05)]
    assert stalls[0] == pytest.approx(alone_s)
    assert stalls == sorted(stalls)
    hops = drawn(schedule, Chance(hop_spread=0.5), 0.2)
    assert hops.mean() > alone_s - 4 * hops.std() / np.sqrt(len(hops))
    assert hops.std() > 0


def test_one_rank_alone_takes_the_mean_time_and_its_spread_averages_out() -> None:
    schedule = make_schedule("1f1b", p=1, m=100)
    found = drawn(schedule, Chance(spread=0.2), samples=4000)
    # the sum of 300 independent actions of mean 1 and standard deviation 0.2
    assert found.mean() == pytest.approx(300, abs=4 * 0.2 * np.sqrt(300 / 4000))
    assert found.std() == pytest.approx(0.2 * np.sqrt(300), rel=0.05)


def test_two_parallel_actions_take_the_mean_of_their_maximum() -> None:
    schedule = make_schedule("gpipe", p=2, m=2)  # 1F0 beside 0F1, 0B0 beside 1B1
    found = drawn(schedule, Chance(spread=0.1), samples=20000).mean()
    # E[max of two independent normals] = mean + deviation / sqrt(pi); a whole backward's deviation is 0.1 sqrt(2)
    expected = 2 * 1 + 2 * 2 + (1 + 0.1 / np.sqrt(np.pi)) + (2 + 0.1 * np.sqrt(2) / np.sqrt(np.pi))
    assert found == pytest.approx(expected, abs=0.01)


def test_the_same_seed_draws_the_same_and_the_first_steps_do_not_depend_on_how_many_follow() -> None:
    schedule = make_schedule("zb_h1", p=4, m=8)
    few, many = drawn(schedule, samples=50), drawn(schedule, samples=150)
    assert few.tolist() == many[:50].tolist() == drawn(schedule, samples=50).tolist()
    others = drawn(schedule, samples=50, seed=2), drawn(schedule, samples=50, replica=1)
    assert all(not np.any(few == other) for other in others)


def test_schedules_with_equal_stages_are_drawn_alike() -> None:
    orders = [make_schedule(name, p=1, m=6) for name in ("1f1b", "gpipe", "zb_h1")]
    first, *others = (drawn(order) for order in orders)
    for other in others:  # one rank does all the work, in whatever order
        assert other == pytest.approx(first, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    p=st.integers(1, 8), more=st.integers(0, 20), rank=st.integers(0, 7), forward=st.floats(0.5, 2), factor=st.floats(1, 1.5)
)  # fmt: skip
def test_a_slow_rank_of_1f1b_costs_the_closed_form(p: int, more: int, rank: int, forward: float, factor: float) -> None:
    rank, m, backward = rank % p, p + more, 1.0
    if factor > 1 + min(backward / forward, forward / backward):
        factor = 1 + min(backward / forward, forward / backward)
    slow = np.ones(p)
    slow[rank] = factor
    schedule = make_schedule("1f1b", p=p, m=m)
    found = makespans_s(schedule, forward, backward, 0.0, 0.0, chance=Chance(), samples=1, seed=0, slow=slow)[0]
    # Rank r's last micro-batches wait for the p - 1 - r ranks behind it while they fill and drain: there its own excess
    # hides. All m - (p - 1 - r) others cost the whole excess, as long as the slow rank's actions fit into a pair's time.
    each = forward + backward
    expected = (m + p - 1) * each + (factor - 1) * each * (m - (p - 1 - rank))
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_slower_rank_never_helps() -> None:
    for name in ("1f1b", "zbv", "dualpipe"):
        schedule = make_schedule(name, p=4, m=8)
        for rank in range(4):
            slow = np.where(np.arange(4)[:, None] == rank, np.linspace(1, 3, 9), 1.0)
            found = makespans_s(schedule, 1.0, 1.0, 1.0, 0.1, chance=Chance(), samples=9, seed=0, slow=slow)
            assert (np.diff(found) >= 0).all()
            assert found[-1] > found[0]


@pytest.mark.parametrize("wrong", [{"spread": -0.1}, {"stall_probability": 1.5}, {"stall_s": float("nan")}])
def test_impossible_chance_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Chance(**wrong)


def asked(*overrides: str) -> dict[str, Any]:
    few = ["parallel.t=8", "parallel.p=4", "parallel.d=4", "training.global_batch=64", "task.jitter.samples=200"]
    with compose.composer() as hydra:
        (config,) = configs(compose.expand(*hydra, ["experiment=jitter", *few, *overrides], {}))
    return config


@pytest.fixture(scope="module")
def done() -> Any:
    return jitter(asked("task.jitter.slow_rank=2", "task.jitter.schedules=[gpipe,interleaved_1f1b,zb_h1]"))


def test_the_report_tells_the_step_schedules_ranks_and_replicas(done: Any) -> None:
    tables = {
        block.title: block for section in done.document.sections for block in section.blocks if hasattr(block, "rows")
    }
    step = tables["Step time"].rows
    assert [row[0] for row in step] == [
        "one pipeline alone", "the step: the last of 4", "with rank 2 of one replica 1.1 times as slow"
    ]  # fmt: skip
    means = [row[2] for row in step]
    assert step[0][1] < means[0] < means[1] < means[2]
    compared = tables["Schedules under chance, fastest on average first"].rows
    assert {row[0] for row in compared} == {"1f1b", "gpipe", "interleaved_1f1b", "zb_h1"}
    assert [row[3] for row in compared] == sorted(row[3] for row in compared)
    replicas = tables["The slowest of so many replicas"].rows
    assert [row[1] for row in replicas] == sorted(row[1] for row in replicas)
    assert [row[0] for row in tables["What one rank costs that is 1.1 times as slow, in one replica"].rows] == [
        0,
        1,
        2,
        3,
    ]
    lines = done.files["steps.csv"].splitlines()
    assert len(lines) == 201
    assert len(lines[1].split(",")) == 5


def test_schedules_of_other_stages_take_a_balanced_partition_and_the_table_says_so() -> None:
    written = "parallel.partition=[18,17,17,20]"
    found = jitter(asked(written, "task.jitter.schedules=[gpipe,zbv]"))
    tables = [each for section in found.document.sections for each in section.blocks if isinstance(each, Table)]
    table = next(each for each in tables if each.title.startswith("Schedules under chance"))
    assert {row[0] for row in table.rows} == {"1f1b", "gpipe", "zbv"}
    assert "takes parallel.partition=balanced" in table.note
    assert {row["schedule"]: tuple(row["stage_units"]) for row in found.rows}["gpipe"] == (18, 17, 17, 20)


def test_without_chance_the_report_s_step_is_the_estimate() -> None:
    found = jitter(asked("task.jitter.spread=0", "task.jitter.hop_spread=0", "task.jitter.schedules=[]"))
    values = {float(line.split(",")[1]) for line in str(found.files["steps.csv"]).splitlines()[1:]}
    assert len(values) == 1
    assert values.pop() == pytest.approx(found.rows[0]["step_time_s"], rel=1e-9)


def test_cutting_work_into_pieces_evens_nothing_out() -> None:
    whole, halves = (
        jittered.Layout(
            row={}, schedule=make_schedule("looped_bfs", p=1, m=60, v=v), times=[1 / v, 1 / v, 1 / v, 0.0],
            samples=4000, seed=1,
        ).pipelines_s(Chance(spread=0.2, stall_probability=0.01, stall_s=1.0), 0)
        for v in (1, 2)
    )  # fmt: skip
    assert halves.mean() == pytest.approx(whole.mean(), rel=0.002)
    assert halves.std() == pytest.approx(whole.std(), rel=0.05)


def test_the_last_of_more_replicas_is_the_order_statistic_of_one() -> None:
    uniform = np.random.default_rng(5).random((4, 5000))
    found = dict(jittered._by_replicas(uniform, 2.0))
    assert sorted(found) == [1, 2, 4, 8, 16, 32]
    assert (found[4] == uniform.max(axis=0) + 2.0).all()  # the step itself, not other draws of it
    for replicas, steps_s in found.items():  # the mean of the largest of k uniform numbers is k / (k + 1)
        assert steps_s.mean() == pytest.approx(2 + replicas / (replicas + 1), abs=0.01)


@pytest.mark.slow
def test_a_slow_node_slows_every_replica_that_it_holds() -> None:
    from pipesim import config, legality

    def held(*overrides: str, node: int) -> list[tuple[int, int]]:
        point = legality.resolve(config.build(asked(*overrides)))
        return jittered._on_node(point, node)

    assert held(node=5) == [(1, 1)]  # t8 fills a node: 16 nodes are 4 replicas of each rank in turn
    assert held("parallel.t=2", "parallel.d=4", "parallel.p=4", node=1) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert held("parallel.t=2", "parallel.rank_order=tcpd", node=1) == [(1, 0), (1, 1), (1, 2), (1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("task.jitter.samples=10", "samples=10 must lie between 100"),
        ("task.jitter.slow_rank=4", "slow_rank=4 is none of the 4 pipeline ranks, counted from 0. Nearest: 3."),
        ("task.jitter.slow_node=-1", "slow_node=-1 is none of the 16 nodes in use, counted from 0. Nearest: 0."),
        ("task.jitter.spread=-1", "task.jitter.spread=-1"),
        ("task.jitter.slow_factor=0.5", "task.jitter.slow_factor=0.5 must be a finite number of at least 1"),
        ("task.jitter.schedules=[zb_h9]", "Nearest: zb_h"),
        ("training.optimizer_barrier=false", "Nearest: training.optimizer_barrier=true"),
        ("task.jitter.samples=10000000", "at most 2e+09 can be drawn. Nearest: "),
    ],
)
def test_a_mistake_is_told_with_the_nearest_that_works(override: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        jitter(asked(override))
    assert said in str(refused.value)


def test_the_study_s_steps_are_the_same_bytes_every_time(done: Any, tmp_path: Path) -> None:
    again = jitter(asked("task.jitter.slow_rank=2", "task.jitter.schedules=[gpipe,interleaved_1f1b,zb_h1]"))
    assert again.files == done.files
    assert again.document == done.document
