"""Scores of predictions, by hand: errors, confusion, ranks, regret and what simple formulas reach."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipesim.calibrate import baselines, regret, scores

NO_ROWS = np.array([])


def reals(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_errors_are_relative_to_what_was_measured() -> None:
    found = scores.errors(reals(1.1, 1.8, 4.0), reals(1.0, 2.0, 4.0))
    assert found.rows == 3
    assert found.mean == pytest.approx((0.1 + 0.1 + 0) / 3)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0, abs=1e-15)


def test_nine_of_ten_errors_are_below_the_percentile() -> None:
    measured = np.ones(11)
    found = scores.errors(1 + np.arange(11) / 100, measured)
    assert found.p90 == pytest.approx(0.09)


def test_a_bias_below_zero_means_predictions_that_are_too_small() -> None:
    assert scores.errors(reals(0.9), reals(1.0)).bias == pytest.approx(-0.1)


def test_no_rows_have_no_errors() -> None:
    found = scores.errors(NO_ROWS, NO_ROWS)
    assert found.rows == 0
    assert math.isnan(found.mean)
    assert math.isnan(found.p90)
    assert len(scores.scaled(NO_ROWS, NO_ROWS)) == 0


def test_one_factor_removes_what_all_rows_share() -> None:
    measured = reals(1.0, 2.0, 7.0)
    assert scores.scaled(0.5 * measured, measured) == pytest.approx(measured)


def test_the_factor_is_a_median_which_an_outlier_does_not_move() -> None:
    measured = reals(1.0, 2.0, 3.0, 4.0, 5.0)
    predicted = measured.copy()
    predicted[0] *= 100
    assert scores.scaled(predicted, measured)[1:] == pytest.approx(measured[1:])


def test_one_run_sets_the_factor_of_the_others() -> None:
    # ratios 1 and 2: after the first run the second is 100 % too large, after the second the first 50 % too small
    assert scores.after_runs(reals(1.0, 2.0), reals(1.0, 1.0), 1) == pytest.approx([1.0, 0.5])
    assert scores.after_runs(reals(3.0, 6.0, 9.0), reals(1.0, 2.0, 3.0), 1) == pytest.approx(np.zeros(6))


def test_a_run_moves_less_where_the_estimate_weighs_more() -> None:
    # both twice too large: a run that weighs as much as the estimate takes half of that away, in logarithms
    one = scores.after_runs(reals(2.0, 2.0), reals(1.0, 1.0), 1, prior_runs=1)
    assert one == pytest.approx(np.full(2, 2**0.5 - 1))
    assert scores.after_runs(reals(2.0, 2.0), reals(1.0, 1.0), 1, prior_runs=1e12) == pytest.approx(np.ones(2))


def test_more_runs_take_away_a_shift_and_leave_the_scatter() -> None:
    chance = np.random.default_rng(1)
    measured = np.ones(60)
    predicted = np.exp(0.2 + 0.02 * chance.standard_normal(60))
    left = [float(scores.after_runs(predicted, measured, runs, prior_runs=2).mean()) for runs in (1, 3, 10)]
    assert left[0] > left[1] > left[2] > 0.01
    assert scores.after_runs(predicted, measured, 3).tolist() == scores.after_runs(predicted, measured, 3).tolist()


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_without_other_rows_nothing_is_said_of_own_runs(rows: int) -> None:
    assert len(scores.after_runs(np.ones(rows), np.ones(rows), 3)) == 0


def test_balanced_accuracy_is_the_mean_of_both_shares() -> None:
    memory, capacity = reals(70, 90, 90, 70, 95), np.full(5, 80.0)
    ran_out = np.array([False, False, True, True, True])
    found = scores.confusion(memory, capacity, ran_out)
    assert (found.fits_as_predicted, found.fits_despite, found.out_as_predicted, found.out_despite) == (1, 1, 2, 1)
    assert found.balanced_accuracy == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_rows_near_the_capacity_can_be_left_out() -> None:
    memory, capacity = reals(75.9, 84.1, 71.9, 88.1), np.full(4, 80.0)
    found = scores.confusion(memory, capacity, np.array([True, False, False, True]), margin=0.1)
    assert found.balanced_accuracy == 1.0
    assert found.fits_as_predicted + found.out_as_predicted == 2


def test_exactly_full_fits() -> None:
    assert scores.confusion(reals(80), reals(80), np.array([False])).fits_as_predicted == 1


@pytest.mark.parametrize("ran_out", [[True, True], [False, False]])
def test_accuracy_needs_both_outcomes(ran_out: list[bool]) -> None:
    assert math.isnan(scores.confusion(reals(1, 2), reals(80, 80), np.array(ran_out)).balanced_accuracy)


def test_equal_values_share_their_mean_rank() -> None:
    assert scores.ranks(reals(10, 20, 20, 30, 20)).tolist() == [1, 3, 3, 5, 3]


def test_rank_correlation_sees_order_alone() -> None:
    assert scores.rank_correlation(reals(1, 2, 3), reals(1, 10, 1000)) == pytest.approx(1)
    assert scores.rank_correlation(reals(3, 2, 1), reals(1, 10, 1000)) == pytest.approx(-1)
    # Spearman's without ties: 1 - 6 sum(d^2) / (n (n^2 - 1)), d = 0, 1, 1
    assert scores.rank_correlation(reals(1, 2, 3), reals(1, 3, 2)) == pytest.approx(1 - 6 * 2 / (3 * 8))


def test_who_knows_no_order_has_no_rank_correlation() -> None:
    assert math.isnan(scores.rank_correlation(reals(1, 1), reals(1, 2)))
    assert math.isnan(scores.rank_correlation(reals(1), reals(1)))


def test_regret_is_what_the_chosen_run_takes_over_the_best() -> None:
    found = regret.regret([[0, 1], [2, 3]], reals(1, 2, 5, 4), reals(10, 12, 10, 15))
    assert found.groups == 2
    assert found.rows == 4
    assert found.mean == pytest.approx((0.0 + 0.5) / 2)
    assert found.median == pytest.approx(0.25)
    assert found.largest == pytest.approx(0.5)
    assert found.rank_correlation == pytest.approx(0.0)


def test_the_right_choice_costs_nothing_whatever_the_seconds() -> None:
    assert regret.regret([[0, 1, 2]], reals(900, 800, 1000), reals(10, 9, 11)).largest == 0.0


def test_a_tie_costs_the_mean_of_what_it_cannot_tell_apart_whatever_the_order() -> None:
    measured = reals(10, 20, 30)
    for order in ([0, 1, 2], [2, 1, 0]):
        found = regret.regret([order], np.ones(3), measured)
        assert found.mean == pytest.approx(1.0)
        assert math.isnan(found.rank_correlation)


def test_no_groups_have_no_regret() -> None:
    found = regret.regret([], NO_ROWS, NO_ROWS)
    assert found.groups == 0
    assert math.isnan(found.mean)


def test_a_constant_mfu_is_the_median_of_what_was_reached() -> None:
    assert baselines.constant_mfu(reals(1, 1, 1), reals(2, 4, 100)) == pytest.approx(0.25)
    assert math.isnan(baselines.constant_mfu(NO_ROWS, NO_ROWS))


def test_every_source_weighs_alike_in_the_pooled_mfu() -> None:
    peak, measured = np.ones(5), reals(1, 1, 1, 1, 100)
    names = ["many", "many", "many", "many", "one"]
    assert baselines.pooled_mfu(peak, measured, names) == pytest.approx(math.sqrt(1 * 0.01))
    assert math.isnan(baselines.pooled_mfu(NO_ROWS, NO_ROWS, []))
