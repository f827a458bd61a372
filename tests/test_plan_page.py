"""What a plan says, and that it is the same however often it was stopped."""

import json
from pathlib import Path

import pytest

import pipesim
from pipesim import compose, config, errors, study, sweep_part, sweeping
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Space, total, with_values
from pipesim.plan.search import layouts as search
from pipesim.report import command
from pipesim.results import store

REAL = sweep_part.make
WORDS = ["experiment=plan", "task.plan.best=3", "task.plan.t=[2,4,8]"]


@pytest.fixture(scope="module")
def asked():
    with compose.composer() as (make, _):
        return config.plain(make(WORDS))


def run(asked, folder, **keys):
    place = {"study.dir": None if "resume" in keys else str(folder)}
    return study.run([Space(base=with_values(asked, place | keys))], WORDS, swept=False)


@pytest.mark.slow
def test_a_plan_answers_in_one_sentence_and_its_overrides_give_its_layouts(asked, tmp_path, capsys):
    folder = run(asked, tmp_path / "study")
    said = " ".join(capsys.readouterr().out.split())
    assert "Run t2 p24 d8 b1 ZeRO-1 1f1b recompute=full: 101.80 s a step" in said
    assert "The config's own layout, t4 p12 d8 b2 ZeRO-1 1f1b recompute=full, takes 105.95 s" in said
    assert "place 4 by step time." in said
    first = min(store.read(folder), key=lambda row: row["step_time_s"] if row["fits"] else float("inf"))
    assert pipesim.estimate(overrides=command.changes(first, asked)).step_time_s == first["step_time_s"]


@pytest.mark.slow
def test_a_stopped_plan_goes_on_to_the_same_bytes(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "PLAN_PART", 200)
    whole, made = run(asked, tmp_path / "whole"), []

    def stops(part):
        if made:
            raise KeyboardInterrupt
        made.append(part.number)
        return REAL(part)

    monkeypatch.setattr(sweeping, "make", stops)
    with pytest.raises(errors.Stopped, match="1 of"):
        run(asked, tmp_path / "stopped")
    monkeypatch.setattr(sweeping, "make", REAL)
    again = run(asked, tmp_path, resume=str(tmp_path / "stopped"))
    for name in ("results.parquet", "results.csv", "report.md", "report.html"):
        assert (again / name).read_bytes() == (whole / name).read_bytes(), name
    assert json.loads((Path(again) / "manifest.json").read_text())["searched"]


@pytest.mark.slow
def test_plan_from_python_gives_the_best_first():
    frame = pipesim.plan(best=3, t=[2, 4, 8])
    assert frame[["t", "p", "d"]].iloc[0].tolist() == [2, 24, 8]
    assert frame["step_time_s"].is_monotonic_increasing


@pytest.mark.slow
def test_a_dry_run_of_a_plan_counts_what_it_would_search(asked, capsys):
    assert study.run([Space(base=with_values(asked, {"study.dry_run": True}))], WORDS, swept=False) is None
    assert f"{total(search.spaces(asked)):,}" in capsys.readouterr().out


def test_a_cluster_that_cannot_be_is_told_before_anything_is_searched(asked):
    with pytest.raises(Invalid, match=r"cluster\.between_gb_per_s=50"):
        search.spaces(with_values(asked, {"cluster.between_gb_per_s": 50.0}))
