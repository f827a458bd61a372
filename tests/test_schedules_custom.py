"""A schedule of one's own, from a file, is priced as any other."""

import pytest

from pipesim import compose, make_schedule, schedules, study
from pipesim.checks import Invalid


def asked(*overrides):
    with compose.composer() as (make, loader):
        fixed = ["parallel.p=4", "parallel.d=1", "training.global_batch=16", *overrides]
        return compose.expand(make, loader, fixed, {})


def test_a_family_written_and_read_is_priced_the_same(tmp_path):
    path = tmp_path / "own 试验.csv"
    path.write_text(make_schedule("zbv", p=4, m=8).to_csv(), encoding="utf-8")
    (own,) = study.evaluate(asked("schedule=custom", f"schedule.path='{path}'", "parallel.v=2"))
    (family,) = study.evaluate(asked("schedule=zbv"))
    assert own["step_time_s"] > 0
    for column in ("makespan_s", "bubble_fraction", "memory_bytes", "peak_inflight", "pp_bytes_per_gpu"):
        assert own[column] == family[column]


def test_sizes_that_are_not_the_files_are_told_its_own(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(make_schedule("zbv", p=4, m=8).to_csv(), encoding="utf-8")
    assert schedules.problems("custom", 4, 8, 2, path=str(path)) == []
    (ranks,) = schedules.problems("custom", 2, 8, 2, path=str(path))
    assert "parallel.p=2" in ranks
    assert "Nearest: p=4" in ranks
    (batch,) = schedules.problems("custom", 4, 6, 2, path=str(path))
    assert "Nearest: num_microbatches=8" in batch
    (stages,) = schedules.problems("custom", 4, 8, 1, path=str(path))
    assert "Nearest: v=2" in stages


@pytest.mark.parametrize("text", ["", "0F0,1B0", "0F0\n", "not a schedule"])
def test_a_file_that_is_no_schedule_is_the_users_mistake(tmp_path, text):
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    (problem,) = schedules.problems("custom", 1, 1, 1, path=str(path))
    assert problem.startswith(f"schedule.path={path} cannot be used: ")


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "own.csv"
    for m in (4, 8):
        path.write_text(make_schedule("1f1b", p=2, m=m).to_csv(), encoding="utf-8")
        assert make_schedule("custom", p=2, m=m, path=str(path)).m == m


def test_the_memory_of_a_file_is_counted(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(make_schedule("1f1b", p=4, m=8).to_csv(), encoding="utf-8")
    assert schedules.peak_inflight("custom", 4, 8, path=str(path)).tolist() == [4, 3, 2, 1]


def test_a_deadlock_is_told_with_its_cycle(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    crossed = asked("parallel.p=2", "training.global_batch=4", "schedule=custom", f"schedule.path={path}")
    (row,) = study.evaluate(crossed)
    assert row["step_time_s"] > 0
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", encoding="utf-8")
    (row,) = study.evaluate(crossed)
    assert row["status"] == "invalid"
    assert "deadlocks" in row["reason"]
    with pytest.raises(Invalid, match="deadlocks"):
        study.run(crossed, [], swept=False)
