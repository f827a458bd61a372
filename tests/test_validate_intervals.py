"""Intervals: how wide, why, and whether nine of ten measurements lie inside."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from measured_rows import catalog, measured, packaged

from pipesim.calibrate import intervals, residuals, summary, tables
from pipesim.calibrate.intervals import Residuals
from pipesim.calibrate.residuals import Rest
from pipesim.specs import Moe, Point

TERMS = {"scatter": 0.3, "study": 0.4, "stack": 1.2, "chip": 0.1, "moe": 0.2, "fp8": 0.5, "size": 0.6}
KNOWN = Residuals(
    step_time=TERMS, memory={name: term / 2 for name, term in TERMS.items()}, step_time_own={}, memory_own={},
    stacks=("megatron_lm",), chips=(("megatron_lm", "a100_80g"),), parameters=1e11, gpus=1024,
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


def test_a_stack_that_is_based_on_a_known_one_is_known() -> None:
    base = point()
    mine = point(stack=dataclasses.replace(base.stack, name="mine", based_on="megatron_lm"))
    assert intervals.reasons(mine, KNOWN) == ()


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
    assert 0.85 <= summary.covered(found, scored & found.of_role("dev"), quantity) <= 0.95


@pytest.mark.slow
def test_the_packaged_terms_are_those_of_this_versions_constants() -> None:
    """Otherwise run ``benchmarks/residuals.py``."""
    known = catalog()
    fresh = residuals.measured(tables.packaged("calibration", known), known.stacks)
    kept = intervals.packaged()
    assert kept.stacks == fresh.stacks
    assert kept.chips == fresh.chips
    for part in ("step_time", "memory", "step_time_own", "memory_own"):
        assert getattr(kept, part) == pytest.approx(getattr(fresh, part), abs=2e-3)
