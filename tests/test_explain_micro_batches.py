"""How many micro-batches are enough, and which size of them is best."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from explained import asked, ideal

from pipesim.launch import rules
from pipesim.plan.explain import micro_batches
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate
from pipesim.specs import Point
from pipesim.tasks.explain import words as explain_words

# Event simulation of 1F1B and of interleaved 1F1B with v = 2: the first m with a bubble below 5 % of the step. The closed
# forms (p - 1) / (m + p - 1) and (p - 1) / (v m + p - 1) give the same (Narayanan et al. 2021, section 2.2).
FEWEST = [(4, 58, 29), (8, 134, 67), (16, 286, 143), (32, 590, 295)]


@pytest.mark.parametrize(("p", "plain", "interleaved"), FEWEST)
def test_so_many_micro_batches_bring_the_bubble_below_a_twentieth(p: int, plain: int, interleaved: int) -> None:
    assert micro_batches.enough(ideal(p, 62), 0.05, equal=True).fraction == plain
    two = ideal(p, 126, "schedule=interleaved_1f1b", "parallel.v=2")
    assert micro_batches.enough(two, 0.05, equal=True).fraction == interleaved


@pytest.mark.parametrize("p", [4, 8, 16, 32])
def test_idle_over_useful_asks_for_more_than_idle_over_total(p: int) -> None:
    """(p - 1) / m < 1/20 is m > 20 (p - 1)."""
    assert micro_batches.enough(ideal(p, 62), 0.05, equal=True).overhead == 20 * (p - 1) + 1


def of_framework(point: Point, name: str) -> Point:
    return dataclasses.replace(point, stack=dataclasses.replace(point.stack, framework=name))


# Megatron-LM's groups of p leave no rest smaller than p; PyTorch's max(1, m // p) rounds divide m: 29 in 7, 33 in 8 do not.
RULED = [("megatron_lm", 4, 32), ("megatron_lm", 8, 72), ("torchtitan", 4, 32), ("torchtitan", 8, 72)]


@pytest.mark.parametrize(("framework", "p", "fewest"), RULED)
def test_so_many_micro_batches_are_told_as_the_framework_runs(framework: str, p: int, fewest: int) -> None:
    unruled = {p: interleaved for p, _, interleaved in FEWEST}[p]
    two = ideal(p, 126, "schedule=interleaved_1f1b", "parallel.v=2", "parallel.zero=3")
    two = of_framework(
        dataclasses.replace(two, layout=dataclasses.replace(two.layout, sequence_parallel=False)), framework
    )
    found = micro_batches.enough(two, 0.05, equal=True)
    assert (found.fraction, found.unruled) == (fewest, unruled)
    with_so_many = dataclasses.replace(two, training=dataclasses.replace(two.training, global_batch=fewest))
    assert not rules.problems(with_so_many)


def test_rules_cost_nothing_where_the_framework_runs_every_number_or_none() -> None:
    for point in (ideal(4, 62), ideal(4, 62, "schedule=zb_h1")):
        found = micro_batches.enough(of_framework(point, "megatron_lm"), 0.05, equal=True)
        assert found.fraction == found.unruled == micro_batches.enough(point, 0.05, equal=True).fraction


RAGGED = [
    ("interleaved_1f1b", 2, {}), ("interleaved_1f1b", 2, {"group": 5}), ("zb_h1", 1, {}), ("zbv", 2, {}), ("hanayo", 2, {}),
    ("gpipe", 1, {}), ("interleaved_zb", 2, {}), ("looped_bfs", 3, {}), ("dualpipev", 2, {}), ("seq1f1b", 1, {"segments": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "v", "options"), RAGGED, ids=str)
def test_the_fewest_are_what_trying_every_number_finds(name: str, v: int, options: dict[str, int]) -> None:
    more = [f"schedule={name}", f"parallel.v={v}", *(f"schedule.{key}={value}" for key, value in options.items())]
    point = ideal(4, 48 * v - 2, *more)
    times = micro_batches._times(point, True)
    for share in (0.4, 0.2, 0.1):
        enough = micro_batches.enough(point, share, equal=True)
        assert enough.fraction == next(m for m in range(1, 200) if _bubble(point, m, times) < share * (1 - 1e-9))


def _bubble(point: Point, m: int, times: Any) -> float:
    """1 where the schedule refuses m."""
    ops, hop_s = times
    try:
        schedule = make_schedule(point.schedule, p=4, m=m, v=point.layout.v, **dict(point.options))
    except ValueError:
        return 1.0
    return float(simulate(schedule, *(op / schedule.segments for op in ops), hop_s).bubble_fraction)


def test_stages_that_are_not_alike_may_never_reach_a_share() -> None:
    _, point, _ = asked("parallel.partition=[12,6,6,6,6,6,5,5,5,5,5,5]")
    enough = micro_batches.enough(point, 0.05, equal=False)
    assert enough.fraction is None
    assert enough.least is not None
    assert enough.least > 0.05


A02 = "parallel.t=8", "parallel.p=6", "parallel.d=8"
"""BigScience's prequel ran such a layout: 183.64, 172.36, 173.92 and 192.42 s for micro-batches of 1, 2, 4 and 8."""


def test_the_best_micro_batch_lies_between_a_longer_bubble_and_slower_kernels() -> None:
    conf, point, _ = asked(*A02)
    sizes = micro_batches.sizes(conf, point)[:4]
    assert [row["num_microbatches"] for row in sizes] == [256, 128, 64, 32]
    ideal_bubble = [5 / (row["num_microbatches"] + 5) for row in sizes]
    assert [round(100 * each, 1) for each in ideal_bubble] == [1.9, 3.8, 7.2, 13.5]
    steps = [row["step_time_s"] for row in sizes]
    assert min(steps) in steps[1:3]
    bubbles = [row["bubble_s"] for row in sizes]
    rests = [explain_words.rest(row) for row in sizes]
    assert bubbles == sorted(bubbles)
    assert rests[:3] == sorted(rests[:3], reverse=True)
    assert "more bubble" in explain_words.best_size(sizes, 0.0)
