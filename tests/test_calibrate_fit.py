"""The fit of constants to measured runs: it finds what made them, leaves the rest alone, and knows what it cannot know."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from points import SMALL, point

from pipesim import legality
from pipesim.calibrate import constants
from pipesim.calibrate.constants import BY_NAME, Constant
from pipesim.calibrate.fit import NOISE, TOP_ROWS, Fit, fit, moved, source_weights
from pipesim.calibrate.predict import predict
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point

GEMM, LAUNCH = BY_NAME["stack.gemm_efficiency"], BY_NAME["stack.forward_launch_s"]
NORM, NETWORK = BY_NAME["stack.norm_bytes"], BY_NAME["cluster.network"]
LAYOUTS = tuple(itertools.product((1, 2, 8), (1, 4), (1, 4)))


def run(t: int, p: int, micro_batch: int) -> Point:
    asked = point(*SMALL, gpus=32, t=t, p=p, d=None, micro_batch=micro_batch, global_batch=128, recompute="none")
    return legality.resolve(asked)


@pytest.fixture(scope="module")
def runs() -> list[Point]:
    """Llama-2 7B cut twelve ways over 32 A100s."""
    return [run(*layout) for layout in LAYOUTS]


def made(runs: Sequence[Point], **steps: float) -> FloatArray:
    """Seconds of a machine whose constants lie some prior spreads from those of the config, by their last word."""
    chosen = [constant for constant in constants.CONSTANTS if constant.name.split(".")[1] in steps]
    assert len(chosen) == len(steps)
    each = [steps[constant.name.split(".")[1]] for constant in chosen]
    return predict(moved(runs, chosen, each)).step_time_s


def after(fitted: Fit, constant: Constant) -> float:
    return fitted.values[constant.name]


def test_runs_that_the_model_made_give_their_constants_back(runs: list[Point]) -> None:
    chosen = [GEMM, LAUNCH, NORM]
    fitted = fit(runs, made(runs, gemm_efficiency=-1.0, forward_launch_s=1.0, norm_bytes=1.0), chosen)
    for each, steps in zip(fitted.constants, (-1.0, 1.0, 1.0), strict=True):
        constant = BY_NAME[each.name]
        true = constant.moved(each.before, steps)
        assert each.low <= true <= each.high
        assert each.is_known == (each.name not in fitted.silent)
    assert after(fitted, GEMM) == pytest.approx(GEMM.moved(constants.value(runs[0], GEMM.name), -1.0), rel=0.02)
    assert np.abs(fitted.error_after).max() < 0.02 < 0.1 < np.abs(fitted.error_before).max()


def test_nothing_moves_where_the_model_is_right_already(runs: list[Point]) -> None:
    fitted = fit(runs, made(runs), [GEMM, LAUNCH, NORM, NETWORK])
    assert [each.steps for each in fitted.constants] == pytest.approx([0.0] * 4, abs=1e-6)
    assert fitted.error_after == pytest.approx(0.0, abs=1e-6)


def test_one_run_of_thrice_the_time_hardly_moves_the_fit(runs: list[Point]) -> None:
    seconds = made(runs, gemm_efficiency=-1.0)
    off = seconds.copy()
    off[3] *= 3
    clean, fitted = fit(runs, seconds, [GEMM]), fit(runs, off, [GEMM])
    assert after(fitted, GEMM) == pytest.approx(after(clean, GEMM), rel=0.02)
    assert fitted.error_after[3] == pytest.approx(-np.log(3), abs=0.05)


def test_a_single_run_moves_the_efficiency_alone_and_is_met(runs: list[Point]) -> None:
    one = runs[:1]
    chosen = constants.fitted(one)
    assert [each.name for each in chosen] == ["stack.gemm_efficiency"]
    fitted = fit(one, 1.2 * made(one), chosen)
    assert after(fitted, GEMM) < constants.value(one[0], GEMM.name)
    assert fitted.error_before == pytest.approx([-np.log(1.2)])
    assert abs(fitted.error_after[0]) < 0.02


def test_two_layouts_say_how_fast_and_three_may_say_why(runs: list[Point]) -> None:
    assert len(constants.fitted([runs[0], runs[1], runs[0]])) == 1
    assert len(constants.fitted(runs[:3])) > 1


def test_a_constant_that_the_runs_do_not_speak_of_stays_and_says_so(runs: list[Point]) -> None:
    inside = [each for each in runs if each.layout.p == 1 and each.layout.t == 8]
    chosen = [GEMM, BY_NAME["stack.hop_start_s"]]
    fitted = fit(inside, 1.1 * made(inside), chosen)
    hop = fitted.constants[1]
    assert fitted.silent == ("stack.hop_start_s",)
    assert hop.after == pytest.approx(hop.before, rel=1e-6)
    assert (hop.low, hop.high) == pytest.approx((hop.before / 4, hop.before * 4), rel=0.01)
    assert fitted.constants[0].is_known


def test_constants_that_only_scale_together_are_named_as_a_pair() -> None:
    """One layout, and two constants whose every change is a change of its seconds: their sum is known, neither is."""
    same = [run(8, 1, 1)] * TOP_ROWS
    fitted = fit(same, 1.1 * made(same), [GEMM, NORM._replace(spread=3.0)])
    ((one, other, correlation),) = fitted.alike
    assert {one, other} == {GEMM.name, NORM.name}
    assert 0.9 <= correlation <= 1


def test_constants_that_the_runs_tell_apart_are_no_pair(runs: list[Point]) -> None:
    assert fit(runs, made(runs), [GEMM, BY_NAME["stack.hop_start_s"]]).alike == ()


@pytest.mark.parametrize(("factor", "bound"), [(0.1, "high"), (50.0, "low")])
def test_no_run_takes_a_constant_beyond_its_bounds(runs: list[Point], factor: float, bound: str) -> None:
    wide = GEMM._replace(spread=3.0)
    fitted = fit(runs, factor * made(runs), [wide])
    assert GEMM.low <= after(fitted, GEMM) <= GEMM.high
    assert after(fitted, GEMM) == pytest.approx(getattr(GEMM, bound), rel=1e-3)


def test_a_share_moves_by_differences_and_stays_a_share() -> None:
    overlap = BY_NAME["stack.dp_overlap"]
    assert overlap.moved(0.5, 1.0) == pytest.approx(0.65)
    assert overlap.moved(0.5, 100.0) == 0.99
    assert overlap.moved(0.5, -100.0) == 0.0
    assert overlap.moved(0.0, 1.0) == pytest.approx(0.15)


@pytest.mark.parametrize("constant", constants.CONSTANTS, ids=lambda each: each.name)
@pytest.mark.parametrize("steps", [-1.5, 0.0, 0.7])
def test_steps_and_moved_are_inverse_within_the_bounds(constant: Constant, steps: float) -> None:
    value = 0.5 if constant.is_share else (constant.low * constant.high) ** 0.5
    assert constant.steps(value, constant.moved(value, steps)) == pytest.approx(steps)


@pytest.mark.parametrize("constant", constants.CONSTANTS, ids=lambda each: each.name)
def test_a_changed_constant_is_read_back_and_nothing_else_changes(constant: Constant) -> None:
    here = run(2, 4, 1)
    there = constants.with_values(here, {constant.name: 0.123})
    for other in constants.CONSTANTS:
        expected = 0.123 if other is constant else constants.value(here, other.name)
        assert constants.value(there, other.name) == pytest.approx(expected)


def test_an_unknown_constant_is_refused() -> None:
    with pytest.raises(KeyError):
        constants.with_values(run(1, 1, 1), {"stack.luck": 1.0})


def test_the_order_of_the_runs_does_not_matter(runs: list[Point]) -> None:
    seconds = made(runs, gemm_efficiency=-0.5, norm_bytes=2.0) * np.exp(0.03 * np.cos(np.arange(len(runs))))
    chosen = [GEMM, LAUNCH, NORM]
    straight = fit(runs, seconds, chosen)
    back = fit(runs[::-1], seconds[::-1], chosen)
    for name, value in straight.values.items():
        assert back.values[name] == pytest.approx(value, rel=1e-3)
    assert back.error_after[::-1] == pytest.approx(straight.error_after, abs=1e-3)


def test_every_source_weighs_the_same_whatever_its_rows() -> None:
    weights = source_weights(["many"] * 9 + ["few"] * 3)
    assert weights[:9].sum() == pytest.approx(weights[9:].sum()) == pytest.approx(6)
    assert source_weights(["only"] * 4) == pytest.approx(1.0)
    assert source_weights(["only"] * 10 * TOP_ROWS).sum() == pytest.approx(TOP_ROWS)


def test_two_sources_that_contradict_each_other_meet_in_the_middle(runs: list[Point]) -> None:
    """Nine runs say 4 % slower, three say 4 % faster: as sources they weigh alike, as rows they would not."""
    chosen, sign = [runs[0]] * 12, np.array([1.0] * 9 + [-1.0] * 3)
    seconds = made(chosen) * np.exp(0.8 * NOISE * sign)
    assert fit(chosen, seconds, [GEMM], ["many"] * 9 + ["few"] * 3).constants[0].steps == pytest.approx(0.0, abs=0.02)
    assert fit(chosen, seconds, [GEMM]).constants[0].steps < -0.05


def test_a_run_of_no_weight_says_nothing(runs: list[Point]) -> None:
    seconds = made(runs)
    seconds[0] *= 1.5
    weights = np.ones(len(runs))
    weights[0] = 0.0
    assert fit(runs, seconds, [GEMM], weights=weights).constants[0].steps == pytest.approx(0.0, abs=1e-4)


def test_no_constant_is_a_fit_too_and_shows_the_errors(runs: list[Point]) -> None:
    fitted = fit(runs, made(runs), [])
    assert (fitted.constants, fitted.alike, fitted.silent) == ((), (), ())
    assert fitted.error_after == pytest.approx(fitted.error_before)


@pytest.mark.parametrize("seconds", [[], [0.0], [-1.0], [float("nan")], [float("inf")], [1.0, 2.0]])
def test_times_that_are_none_are_refused(runs: list[Point], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="step times"):
        fit(runs[:1], seconds, [GEMM])


def test_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        fit([], [], [GEMM])
