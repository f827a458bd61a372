"""Steady periods and proven optima from an independent source."""

from __future__ import annotations

import pytest
from oracle_data import order, rows, sizes, times

from pipesim.simulate import lower_bounds, simulate, steady_period_s
from pipesim.simulate.optimum import Question, optimum

QUICK_S = 0.3
"""Optima that took the source's solver longer than this are left to ``make test``."""


def test_every_recorded_steady_period_and_makespan_comes_out():
    for row in rows("steady"):
        schedule = order(row["schedule"], *sizes(row))
        assert simulate(schedule, *times(row)).makespan_s == pytest.approx(float(row["makespan"])), row
        assert steady_period_s(schedule, *times(row)) == pytest.approx(float(row["steady_period"])), row


def question(row: dict[str, str]) -> Question:
    p, stages = int(row["p"]), int(row["p"]) * int(row["v"])
    wave = row["placement"] == "v"
    return Question(
        rank_of_stage=[p - 1 - s % p if wave and s // p % 2 else s % p for s in range(stages)],
        m=int(row["m"]),
        forward=int(row["tF"]),
        input_grad=int(row["tB"]),
        weight_grad=int(row["tW"]),
        latency=int(row["tcomm"]),
        max_held=int(row["act_cap"]) or None,
        split=row["split_backward"] == "1",
        objective="span" if row["objective"] == "span" else "makespan",
    )


def prove(row: dict[str, str]) -> None:
    asked = question(row)
    best = optimum(asked, time_limit_s=120)
    assert best.proven
    assert best.value == float(row["value"]), row
    timeline = simulate(best.schedule, *times(row))
    assert {"makespan": timeline.makespan_s, "span": timeline.span_s}[asked.objective] == best.value
    assert asked.max_held is None or max(timeline.peak_inflight) <= asked.max_held
    bounds = lower_bounds(best.schedule, *times(row))
    assert best.value >= {"makespan": bounds.makespan_s, "span": bounds.span_s}[asked.objective]


@pytest.mark.slow
def test_the_exact_search_proves_the_quick_recorded_optima():
    pytest.importorskip("ortools")
    proven = [row for row in rows("optimal") if row["status"] == "OPTIMAL" and float(row["seconds"]) <= QUICK_S]
    assert len(proven) > 40
    for row in proven:
        prove(row)


@pytest.mark.slow
def test_the_exact_search_proves_every_other_recorded_optimum():
    pytest.importorskip("ortools")
    for row in rows("optimal"):
        if row["status"] == "OPTIMAL" and float(row["seconds"]) > QUICK_S:
            prove(row)


def test_a_cap_below_what_any_order_needs_is_refused():
    pytest.importorskip("ortools")
    with pytest.raises(ValueError, match="max_held=0: infeasible"):
        optimum(Question(rank_of_stage=[0, 1], m=2, max_held=0))


def test_the_search_finds_the_papers_order_for_two_ranks():
    pytest.importorskip("ortools")
    best = optimum(Question(rank_of_stage=[0, 1], m=2, max_held=2, split=False))
    assert (best.value, best.proven) == (9, True)
    assert best.schedule.p == 2
