"""How sure a ranking is: closed forms, laws, and predicted chances against what comparable runs really did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from measured_rows import catalog
from scipy.stats import t as student

from pipesim.calibrate import contrasts, tables
from pipesim.calibrate.contrasts import Contrasts, Question
from pipesim.plan.search import stability

KNOWN = Contrasts(spread=0.05, pairs=1, questions=1, sources=1)
SAME = {
    "model": "m", "cluster": "k", "stack": "s", "costs": "full", "c": 1, "e": 1, "v": None, "micro_batch": 1, "gpus": 64,
    "global_batch": 512, "seq_length": 2048, "schedule": "1f1b", "zero": 1, "recompute": "none", "sequence_parallel": False,
    "precision": "bf16", "attention": "flash", "settings": None, "t": 1, "p": 1,
}  # fmt: skip


def row(step_s: float, **changes: Any) -> dict[str, Any]:
    return {**SAME, "tokens_per_s": 1 / step_s, **changes}


def test_the_closed_form_is_students_t() -> None:
    slower = np.array([-0.3, 0.0, 0.01, 0.2, 2.0])
    assert contrasts.surely(slower, 2.0, 0.04) == pytest.approx(student.cdf(slower / 0.04 / 2**0.5, contrasts.DEGREES))
    assert student.ppf(0.75, contrasts.DEGREES) == pytest.approx(contrasts.MEDIAN, abs=1e-3)


def test_of_one_layout_and_its_copy_nothing_but_the_prediction_decides() -> None:
    assert contrasts.surely(0.0, 0.0, 0.04) == 0.5
    assert contrasts.surely(0.001, 0.0, 0.04) == 1.0
    assert contrasts.surely(np.inf, 1.0, 0.04) == 1.0


def test_distance_counts_doublings_and_changed_words() -> None:
    one, other = row(1.0, t=2, p=8), row(1.0, t=8, p=4, schedule="zbv", v=2)
    assert contrasts.distances([one], [one, other]).tolist() == [[0.0, 2 + 1 + 1 + 1]]


def test_two_layouts_have_the_chance_of_the_closed_form() -> None:
    found = stability.of([row(1.02, t=2), row(1.0)], known=KNOWN)
    assert found is not None
    assert found.order == (1, 0)
    assert found.beaten[1] == pytest.approx(student.cdf(np.log(1.02) / 0.05, 3))
    assert found.best[0] == pytest.approx(found.beaten[1], abs=0.01)
    assert sum(found.best) == pytest.approx(1)
    assert found.alike == (1,)


def test_equal_layouts_share_the_chance_and_many_of_them_leave_little() -> None:
    rows = [row(1.0, t=t, p=p) for t in (1, 2, 4, 8) for p in (1, 2, 4, 8)]
    found = stability.of(rows, known=KNOWN)
    assert found is not None
    assert sum(found.best) == pytest.approx(1)
    assert max(found.best) < 0.25  # corners are the least like the others and so win most
    assert found.loss > 0.05


def test_a_wider_lead_and_a_smaller_difference_are_surer() -> None:
    for closer, farther in ((row(1.05, t=2), row(1.05, t=8)), (row(1.2, t=2), row(1.1, t=2))):
        surer, less = (stability.of([row(1.0), each], known=KNOWN) for each in (closer, farther))
        assert surer is not None
        assert less is not None
        assert surer.best[0] > less.best[0]
        assert surer.beaten[1] > less.beaten[1]
        assert surer.loss <= less.loss


def test_layouts_that_are_far_behind_change_nothing() -> None:
    near = [row(1.0), row(1.01, t=2)]
    two, many = stability.of(near, known=KNOWN), stability.of([*near, row(50.0, t=8)], known=KNOWN)
    assert two is not None
    assert many is not None
    assert many.best[:2] == pytest.approx(two.best, abs=0.01)
    assert many.alike == (1,)


def test_the_same_rows_have_the_same_chances() -> None:
    rows = [row(1.0 + k / 100, t=2**k) for k in range(4)]
    assert stability.of(rows, known=KNOWN) == stability.of(rows, known=KNOWN)


def test_a_thousand_layouts_are_judged_all_and_the_likeliest_drawn() -> None:
    rows = [row(1.0 + k / 1000, micro_batch=1 + k % 7, p=1 + k % 11, t=1 + k % 5) for k in range(1000)]
    found = stability.of(rows, known=KNOWN)
    assert found is not None
    assert len(found.best) == len(found.beaten) == 1000
    assert sum(chance > 0 for chance in found.best) <= stability.MOST


@pytest.mark.parametrize("changes", [{"model": "n"}, {"cluster": "other"}, {"stack": "other"}])
def test_layouts_of_different_questions_have_no_common_errors(changes: dict[str, str]) -> None:
    assert stability.of([row(1.0), row(1.1, **changes)], known=KNOWN) is None


def test_nothing_is_said_of_idealised_costs_and_of_no_rows() -> None:
    assert stability.of([row(1.0, costs="lecture")]) is None
    assert stability.of([]) is None


def test_sources_and_questions_weigh_alike() -> None:
    def pair(source: str, question: int) -> contrasts.Pair:
        return contrasts.Pair(source, question, 1.0, 0.0, 0.0)

    found = [pair("a", 0)] * 3 + [pair("a", 1)] + [pair("b", 2)] * 2
    assert contrasts.weights(found) == pytest.approx([1 / 6] * 3 + [1 / 2] + [1 / 2] * 2)


@pytest.fixture(scope="module")
def asked() -> dict[str, list[Question]]:
    known = catalog()
    return {name: contrasts.questions(tables.packaged(name, known)) for name in tables.TABLES}


@pytest.mark.slow
def test_the_packaged_spread_is_that_of_this_versions_constants(asked: dict[str, list[Question]]) -> None:
    """Otherwise run ``benchmarks/residuals.py``."""
    kept, found = contrasts.packaged(), contrasts.measured(asked["calibration"])
    assert found.spread == pytest.approx(kept.spread, rel=0.02)
    assert (found.pairs, found.questions, found.sources) == (kept.pairs, kept.questions, kept.sources)


@pytest.mark.slow
def test_errors_of_two_layouts_grow_with_the_root_of_their_distance(asked: dict[str, list[Question]]) -> None:
    """The median of |difference| over sqrt(h) of near layouts and of far ones is one spread, within a factor of two."""
    found, typical = contrasts.pairs(asked["calibration"]), []
    for low, high in ((0, 1), (1, 2), (2, 4), (4, 20)):
        own = [pair for pair in found if low < pair.h <= high]
        assert 0.5 < contrasts.spread_of(own) / contrasts.packaged().spread < 2
        typical.append(np.median([abs(pair.measured - pair.predicted) for pair in own]))
    assert typical == sorted(typical)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "off", "all_off"), [("calibration", 0.08, 0.01), ("dev", 0.15, 0.04)])
def test_of_pairs_predicted_so_surely_so_many_come_true(
    name: str, off: float, all_off: float, asked: dict[str, list[Question]]
) -> None:
    """The dev table's pairs are 18 questions of one cluster, mostly; their layouts err together, so that bins jump."""
    found = [pair for pair in contrasts.pairs(asked[name]) if pair.predicted]
    slower, h = (np.array([getattr(pair, each) for pair in found]) for each in ("predicted", "h"))
    said = contrasts.surely(np.abs(slower), h, contrasts.packaged().spread)
    came = np.sign(slower) == np.sign([pair.measured for pair in found])
    assert came.mean() == pytest.approx(said.mean(), abs=all_off)
    for low, high in ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 1.0)):
        own = (said > low) & (said <= high)
        assert came[own].mean() == pytest.approx(said[own].mean(), abs=off)


@pytest.mark.slow
def test_the_predicted_first_is_the_best_as_often_as_is_said(asked: dict[str, list[Question]]) -> None:
    said, came, within = [], [], []
    for each in asked["calibration"]:
        rows = [{**row(np.exp(log)), **columns} for log, columns in zip(each.predicted, each.rows, strict=True)]
        found = stability.of(rows)
        assert found is not None
        lost = each.measured[found.order[0]] - each.measured.min()
        said.append(found.best[0])
        came.append(lost == 0)
        within.append(lost <= np.log1p(found.loss))
    assert len(said) > 200
    assert np.mean(came) == pytest.approx(np.mean(said), abs=0.05)
    assert 0.75 < np.mean(within) < 0.95
