"""Intervals: how wide, why, and whether nine of ten measurements lie inside."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from measured_rows import catalog, measured, packaged

from pipesim.calibrate import constants, intervals, residuals, summary, tables
from pipesim.calibrate.fit import fit, moved
from pipesim.calibrate.intervals import Residuals
from pipesim.calibrate.predict import predict
from pipesim.calibrate.residuals import Rest
from pipesim.calibrate.rows import Measurement
from pipesim.costs.columns import FloatArray
from pipesim.report import words
from pipesim.specs import Moe, Point

TERMS = {"scatter": 0.3, "study": 0.4, "stack": 1.2, "chip": 0.1, "moe": 0.2, "fp8": 0.5, "size": 0.6, "sequence": 0.7}
LEFT = {"study": (0.3, 0.1, 0.03), "chip": (0.35, 0.117, 0.035), "stack": (0.9, 0.3, 0.09)}
KNOWN = Residuals(
    step_time=TERMS, memory={name: term / 2 for name, term in TERMS.items()}, step_time_own={}, memory_own={},
    after={f"{what}_{runs}": w for what, left in LEFT.items() for runs, w in zip((1, 3, 10), left, strict=True)},
    stacks=("megatron_lm",), chips=(("megatron_lm", "a100_80g"),), parameters=1e11, gpus=1024, seq_length=2048, c=1,
)  # fmt: skip


def point(**changes: object) -> Point:
    found = measured().point
    assert found is not None
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def outside(name: str) -> Point:
    base = point()
    return {
        "stack": point(stack=dataclasses.replace(base.stack, name="mine")),
        "chip": point(cluster=dataclasses.replace(base.cluster, chip="new")),
        "moe": point(model=dataclasses.replace(base.model, moe=Moe(experts=8, top_k=2, ffn=16384))),
        "fp8": point(training=dataclasses.replace(base.training, precision="fp8")),
        "size": point(cluster=dataclasses.replace(base.cluster, gpus=2048)),
        "sequence": point(training=dataclasses.replace(base.training, seq_length=4096)),
    }[name]


def test_terms_join_as_the_root_of_their_squares() -> None:
    found = intervals.interval(point(), 10.0, 4e9, KNOWN)
    assert found is not None
    assert found.step_time_hi_s == pytest.approx(10 * math.exp(0.5))
    assert found.step_time_lo_s == pytest.approx(10 * math.exp(-0.5))
    assert found.memory_hi_bytes == pytest.approx(4e9 * math.exp(0.25))
    assert found.note == ""


@pytest.mark.parametrize("reason", intervals.REASONS)
def test_every_reason_widens_the_interval_and_is_named(reason: str) -> None:
    asked = outside(reason)
    assert intervals.reasons(asked, KNOWN) == (reason,)
    found = intervals.interval(asked, 10.0, 4e9, KNOWN)
    assert found is not None
    assert found.step_time_hi_s == pytest.approx(10 * math.exp(math.hypot(0.3, 0.4, TERMS[reason])))
    assert found.note.startswith("Extrapolates: ")
    for packaged_terms in (intervals.packaged().step_time, intervals.packaged().memory):
        assert intervals.half_width(packaged_terms, (reason,)) > 1.1 * intervals.half_width(packaged_terms, ())


def test_a_sequence_cut_over_more_ranks_than_were_measured_widens_the_interval() -> None:
    layout = dataclasses.replace(point().layout, d=2, c=2)
    assert intervals.reasons(point(layout=layout), KNOWN) == ("sequence",)


def test_a_stack_that_is_based_on_a_known_one_is_known() -> None:
    base = point()
    mine = point(stack=dataclasses.replace(base.stack, name="mine", based_on="megatron_lm"))
    assert intervals.reasons(mine, KNOWN) == ()


def fitted(runs: int, *reasons: str, **changes: object) -> Point:
    """The base point with the constants of runs of one's own on its chip."""
    base = point(**changes)
    stack = dataclasses.replace(
        base.stack, name="mine", based_on="megatron_lm", own_runs={"a100_80g": runs}, own_reasons=reasons
    )
    return dataclasses.replace(base, stack=stack)


@pytest.mark.parametrize(("runs", "left"), [(1, 0.3), (2, 0.3), (3, 0.1), (9, 0.1), (10, 0.03), (500, 0.03)])
def test_what_runs_of_ones_own_leave_takes_the_place_of_the_study(runs: int, left: float) -> None:
    assert intervals.step_time_width(fitted(runs), KNOWN) == pytest.approx(math.hypot(0.3, left))


def test_runs_of_ones_own_answer_for_their_chip_alone() -> None:
    elsewhere = dataclasses.replace(point().cluster, chip="new")
    assert intervals.step_time_width(fitted(3, cluster=elsewhere), KNOWN) == pytest.approx(math.hypot(0.3, 0.4, 0.1))
    asked = fitted(3, cluster=elsewhere)
    there = dataclasses.replace(asked, stack=dataclasses.replace(asked.stack, own_runs={"new": 3}))
    found = intervals.interval(there, 10.0, 4e9, KNOWN)
    assert found is not None
    assert found.step_time_hi_s == pytest.approx(10 * math.exp(math.hypot(0.3, 0.117)))
    assert found.note == "Memory extrapolates: new has not been measured with mine. Its interval is wider for it."
    assert "显存外推" in words.extrapolates_zh(found.note)


def test_a_reason_that_the_own_runs_did_not_have_still_widens() -> None:
    moe = dataclasses.replace(point().model, moe=Moe(experts=8, top_k=2, ffn=16384))
    assert intervals.step_time_width(fitted(1, model=moe), KNOWN) == pytest.approx(math.hypot(0.3, 0.3, 0.2))
    assert intervals.step_time_width(fitted(1, "moe", model=moe), KNOWN) == pytest.approx(math.hypot(0.3, 0.9))


@pytest.mark.parametrize("reason", [None, "stack", "chip"])
def test_more_runs_of_ones_own_never_widen_and_the_first_narrows(reason: str | None) -> None:
    known = intervals.packaged()
    before = intervals.half_width(known.step_time, [reason] if reason else [])
    for runs in intervals.OWN_RUNS:
        after = intervals.half_width(known.step_time, [], shift=known.after[f"{reason or 'study'}_{runs}"])
        assert after < before or (runs > 1 and after == before)
        before = after


def test_runs_of_ones_own_take_their_source_s_shift_away() -> None:
    rests = [Rest("a", 0.5 + 0.01 * (-1) ** k) for k in range(40)] + [Rest("alone", 9.0)]
    assert residuals.quantile(residuals.without_own(rests, 10)) <= 0.021
    assert not residuals.without_own(rests[-1:], 1)


def test_a_stack_whose_own_runs_scatter_more_has_the_wider_interval_and_one_that_is_calmer_the_same() -> None:
    for own, scatter in ((0.5, 0.5), (0.1, 0.3)):
        known = dataclasses.replace(KNOWN, step_time_own={"megatron_lm": own}, memory_own={"nanotron": 9.0})
        found = intervals.interval(point(), 10.0, 4e9, known)
        assert found is not None
        assert found.step_time_hi_s == pytest.approx(10 * math.exp(math.hypot(scatter, 0.4)))
        assert found.memory_hi_bytes == pytest.approx(4e9 * math.exp(0.25))


def test_the_shift_of_a_study_is_that_of_models_and_sources_alike() -> None:
    rows = [measured(source_group="a", model="x")] * 30 + [
        measured(source_group="a", model="y"),
        measured(source_group="b"),
    ]
    rests = [Rest("a", 0.1)] * 29 + [Rest("a", 9.0), Rest("a", -0.3), Rest("b", 0.2)]
    assert residuals._shift(rows, rests) == pytest.approx(math.sqrt(((0.1**2 + 0.3**2) / 2 + 0.2**2) / 2))


def test_arrays_have_an_interval_for_each_value() -> None:
    steps = np.array([1.0, 2.0])
    found = intervals.interval(point(), steps, steps * 1e9, KNOWN)
    assert found is not None
    assert (found.step_time_lo_s < steps).all()
    assert found.memory_hi_bytes[1] == pytest.approx(2 * found.memory_hi_bytes[0])


def test_idealised_costs_have_no_interval() -> None:
    asked = point(costs=dataclasses.replace(point().costs, kind="lecture"))
    assert intervals.interval(asked, 1.0, 1.0, KNOWN) is None


def test_what_is_written_is_read_again() -> None:
    assert intervals.parse(intervals.dump(KNOWN)) == KNOWN


def test_a_quantile_counts_one_row_more_than_it_has() -> None:
    # 20 rows of one source: the conformal rank is ceil(0.9 * 21) = 19
    rests = [Rest("a", k / 100) for k in range(1, 21)]
    assert residuals.quantile(rests) == pytest.approx(0.19)
    assert residuals.quantile([Rest("a", -each.log) for each in rests]) == pytest.approx(0.19)


def test_a_large_source_does_not_outweigh_a_small_one() -> None:
    many = [Rest("many", 0.01)] * 10_000
    few = [Rest("few", 0.5)] * 50
    assert residuals.quantile([*many, *few]) == 0.5


def test_too_few_rows_have_no_quantile() -> None:
    assert math.isnan(residuals.quantile([Rest("a", 0.1)] * (residuals.FEWEST - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("quantity", ["step_time", "memory"])
def test_nine_of_ten_dev_rows_lie_in_their_intervals(quantity: str) -> None:
    found = packaged()
    scored = found.timed if quantity == "step_time" else summary.scored_memory(found)
    most = 0.96 if quantity == "step_time" else 0.95  # of 209 step times 10 lie outside, where 11 were wanted
    assert 0.85 <= summary.covered(found, scored & found.of_role("dev"), quantity) <= most


@pytest.mark.slow
def test_nine_of_ten_rows_that_memory_was_measured_on_lie_in_their_intervals_with_stalls_or_without() -> None:
    found = packaged()
    scored = summary.scored_memory(found) & found.of_role("calibration")
    assert 0.85 <= summary.covered(found, scored, "memory") <= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("runs", intervals.OWN_RUNS)
def test_nine_of_ten_other_dev_rows_lie_in_the_interval_after_a_fit_to_some_of_their_source(runs: int) -> None:
    """Of each source are fitted ``runs`` rows, evenly spaced, as ``calibrate`` does."""
    inside: list[bool] = []
    for rows in dev_sources(least=runs + 3):
        own = [round(k) for k in np.linspace(0, len(rows) - 1, runs + 2)[1:-1]]
        others = [i for i in range(len(rows)) if i not in own]
        points = [each.point for each in rows if each.point is not None]
        chosen = constants.fitted([points[i] for i in own], is_measured=True)
        steps = [c.steps for c in fit([points[i] for i in own], seconds(rows, own), chosen).constants]
        off = np.log(seconds(rows, others) / predict(moved([points[i] for i in others], chosen, steps)).step_time_s)
        width = [intervals.step_time_width(with_own_runs(points[i], runs)) for i in others]
        inside += (np.abs(off) <= width).tolist()
    assert len(inside) > 100
    assert 0.85 <= np.mean(inside) <= 0.97


def dev_sources(least: int) -> list[list[Measurement]]:
    """The scored rows of every dev source with at least so many."""
    found = packaged()
    by_source: dict[str, list[Measurement]] = {}
    for each, scored in zip(found.measurements, found.timed & found.of_role("dev"), strict=True):
        if scored:
            by_source.setdefault(each.source, []).append(each)
    return [rows for rows in by_source.values() if len(rows) >= least]


def seconds(rows: Sequence[Measurement], which: Sequence[int]) -> FloatArray:
    return np.array([rows[i].step_time_s for i in which], np.float64)


def with_own_runs(asked: Point, runs: int) -> Point:
    stack = dataclasses.replace(
        asked.stack, based_on=asked.stack.based_on or asked.stack.name, own_runs={asked.cluster.chip: runs}
    )
    return dataclasses.replace(asked, stack=stack)


@pytest.mark.slow
def test_the_packaged_terms_are_those_of_this_versions_constants() -> None:
    """Otherwise run ``benchmarks/residuals.py``."""
    known = catalog()
    fresh = residuals.measured(tables.packaged("calibration", known), known.stacks)
    kept = intervals.packaged()
    assert kept.stacks == fresh.stacks
    assert kept.chips == fresh.chips
    assert (kept.parameters, kept.gpus, kept.seq_length, kept.c) == (
        fresh.parameters, fresh.gpus, fresh.seq_length, fresh.c,
    )  # fmt: skip
    for part in ("step_time", "memory", "after", "step_time_own", "memory_own"):
        assert getattr(kept, part) == pytest.approx(getattr(fresh, part), abs=2e-3)
