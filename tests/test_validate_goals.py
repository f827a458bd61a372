"""What own runs and releases leave of errors, and the goals of a validation."""

from __future__ import annotations

import numpy as np
import pytest
from measured_rows import measured

from pipesim.calibrate import after_runs, classes, summary
from pipesim.calibrate.intervals import OWN_RUNS
from pipesim.calibrate.validate import Validation, validate
from pipesim.tasks.validate import goal_tables

RELEASED = "README 2022-01: total tokens/s"


def shifted(*factors: tuple[str, float]) -> Validation:
    """Rows whose measured time is the predicted one times a factor, with notes."""
    layouts = [{"tp": t, "micro_batch": b} for t in ("1", "2", "4") for b in ("1", "2")]
    rows = [
        measured(id=f"{k}-{i}", notes=notes, **cells)
        for k, (notes, _) in enumerate(factors)
        for i, cells in enumerate(layouts)
    ]
    predicted = validate([("own", rows)]).predicted.step_time_s
    scale = np.repeat([factor for _, factor in factors], len(layouts))
    times = [str(each) for each in predicted * scale]
    again = [
        measured(
            id=row.id,
            notes=row.cells["notes"],
            tp=row.cells["tp"],
            micro_batch=row.cells["micro_batch"],
            measured_step_time_s=time,
        )
        for row, time in zip(rows, times, strict=True)
    ]
    return validate([("own", again)])


@pytest.mark.parametrize(
    ("notes", "release"),
    [
        ("README 2022-04: total 39660 tokens/s", "README 2022-04"), ("v24.11.1; VP 12", "v24.11.1"),
        ("NeMo 24.07, 2024-08-14", "NeMo 24.07"),
        ("version v1.2", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_release_is_what_the_notes_state(notes: str, release: str) -> None:
    assert classes.release(measured(notes=notes)) == release


def test_a_shift_that_all_rows_share_goes_with_the_first_run_taken_at_its_word() -> None:
    found = shifted(("", 1.2))
    after = after_runs.after(found, found.timed)
    assert after.at_its_word == pytest.approx(0.0, abs=1e-9)
    means = [after.weighed[runs][0] for runs in (1, 3)]
    assert 1 - 1 / 1.2 > means[0] > means[1] > 0
    assert tuple(after.weighed) == OWN_RUNS
    assert np.isnan(after.weighed[10][0])  # six rows leave none beside ten


def test_runs_weigh_more_where_the_stack_was_not_measured_on_the_chip() -> None:
    known, new = validate([("own", [measured()])]), validate([("own", [measured(gpu="H100-80G-SXM")])])
    assert after_runs.prior_runs(new, new.timed) < after_runs.prior_runs(known, known.timed)


def test_releases_that_are_off_by_factors_of_their_own_are_right_after_them() -> None:
    *each, together, own = after_runs.releases(shifted((RELEASED, 1.2), (RELEASED.replace("01", "04"), 0.9)))
    assert [release.release for release in each] == ["README 2022-01", "README 2022-04"]
    assert [release.scaled.mean for release in each] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert (together.release, own.release) == (after_runs.TOGETHER, after_runs.EACH_ITS_OWN)
    assert together.plain == own.plain
    assert together.scaled.mean > 0.1
    assert own.scaled.mean == pytest.approx(0.0, abs=1e-9)
    assert own.one_run < together.one_run


def test_a_source_of_one_release_or_none_has_no_table_of_them() -> None:
    assert after_runs.releases(shifted((RELEASED, 1.2))) == []
    assert after_runs.releases(shifted(("", 1.2))) == []
    assert goal_tables.by_release([]) is None


def test_a_table_of_ones_own_has_no_goals() -> None:
    found = validate([("own", [measured(source_group="ZeroBubble-2024")])])
    assert list(goal_tables.goals_of(found, summary.figures(found))) == []
