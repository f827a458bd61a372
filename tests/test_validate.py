"""Validation: every row is predicted or says why not, and the report and its files hold what they promise."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_rows import CELLS, catalog, measured, packaged, table

from pipesim import compose, config, study
from pipesim.calibrate import bands, classes, goals, peers, predictions, regret, rows, summary
from pipesim.calibrate.validate import validate
from pipesim.checks import Invalid
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.plan.asked.space import Space
from pipesim.report import markdown
from pipesim.tasks.validate import goal_tables
from pipesim.tasks.validate.page import page

ODD = {
    "an unknown GPU": {"gpu": "TPU v9"},
    "a blank number": {"tp": ""},
    "words for a number": {"hidden": "big"},
    "a fraction for a count": {"layers": "3.5"},
    "nothing at all": dict.fromkeys(CELLS, ""),
    "no GPUs": {"n_gpus": "0"},
    "degrees of none": {"tp": "0"},
    "a degree below none": {"pp": "-2"},
    "no heads": {"heads": "0"},
    "infinity": {"global_batch": "inf"},
    "not a number": {"micro_batch": "nan"},
    "more than a float holds": {"hidden": "1e999"},
    "a batch that does not divide": {"global_batch": "63"},
    "GPUs that do not divide": {"n_gpus": "30"},
    "more layers than any model": {"layers": "1e12"},
    "more stages than units": {"pp": "64", "n_gpus": "1024"},
    "more micro-batches than can be simulated": {"global_batch": "4e12"},
}


@pytest.mark.parametrize("cells", ODD.values(), ids=ODD.keys())
def test_a_row_that_cannot_be_predicted_says_why_and_stops_no_other(cells: dict[str, str]) -> None:
    found = validate([("own", [measured(**cells), measured(id="good")])])
    odd, good = predictions.rows(found)
    assert odd["status"] == "invalid"
    assert odd["reason"]
    assert odd["step_time_s"] is None
    assert good["status"] == "ok"
    assert good["step_time_s"] > 0


TEXT = st.one_of(
    st.sampled_from(["", "0", "-1", "nan", "inf", "1e999", "n/a", "true", "8", "2.5", "\x00", "①"]),
    st.text(max_size=12),
    st.integers(-5, 64).map(str),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cells=st.dictionaries(st.sampled_from(sorted(CELLS)), TEXT, min_size=1, max_size=4))
def test_no_cell_whatever_it_holds_crashes_a_validation(cells: dict[str, str]) -> None:
    found = validate([("own", [measured(**cells)])])
    (row,) = predictions.rows(found)
    assert (row["status"] == "invalid") == (row["step_time_s"] is None)
    assert set(row) <= set(predictions.COLUMNS)
    predictions.parquet([row])


WRONG = {
    "micro_batch": "1.5", "stack": "weird", "precision": "fp4", "tp": "eight", "n_gpus": "-8", "measured_step_time_s": "1e-9",
    "derived_step_time_s": "soon", "mem_gb_per_gpu": "1e9", "sp": "yes", "recompute": "some", "schedule": "mine", "cp": "0",
    "zero_stage_or_fsdp": "zero1", "kv_heads": "2.5",
}  # fmt: skip


@pytest.mark.parametrize(("column", "value"), WRONG.items(), ids=WRONG.keys())
def test_a_cell_that_would_be_taken_for_another_is_told_by_its_column_and_value(column: str, value: str) -> None:
    row = measured(**{column: value})
    assert row.point is None
    assert re.match(rf"{column}='?{re.escape(value)}'? (must|is)", row.problem)


@pytest.mark.parametrize("measured_s", ["0", "-3", "nan", "inf", "soon"])
def test_a_time_that_nobody_can_have_measured_is_told(measured_s: str) -> None:
    row = measured(measured_step_time_s=measured_s)
    assert row.problem == f"measured_step_time_s={measured_s!r} must be a number from 1e-06 to 1e+07."


def test_a_row_without_a_time_is_predicted_and_not_scored() -> None:
    found = validate([("own", [measured(measured_step_time_s="")])])
    assert not found.timed.any()
    assert found.known.all()


def test_all_that_is_wrong_with_a_row_is_told_at_once() -> None:
    problem = measured(micro_batch="1.5", n_gpus="-8", precision="fp4").problem
    assert all(each in problem for each in ("n_gpus=-8 ", "micro_batch=1.5 ", "precision='fp4' "))


def test_the_second_row_of_an_id_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(table({}, {"id": "b"}, {"tp": "2"}), encoding="utf-8")
    assert [each.problem for each in rows.read(path, catalog())] == ["", "", "id=a stands in row 1 already."]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("bigscience", "bigscience"), ("megatron_lm", "megatron_lm"), ("Megatron-LM 0.9", "megatron_lm"), ("", "megatron_lm"),
        ("mine_nemo", "mine_nemo"), ("DeepSpeed", "megatron_deepspeed"),
    ],
)  # fmt: skip
def test_a_stack_is_ours_by_name_or_by_what_sources_call_it(words: str, name: str) -> None:
    known = catalog()
    mine = {"mine_nemo": replace(known.stacks["nemo"], name="mine_nemo")}
    point = rows.measurement(CELLS | {"stack": words}, replace(known, stacks={**known.stacks, **mine})).point
    assert point is not None
    assert point.stack.name == name


@pytest.mark.parametrize("schedule", ["v_half", "interleaved_zb", "gpipe"])
def test_a_schedule_may_be_ours_by_name(schedule: str) -> None:
    row = measured(schedule=schedule)
    assert row.point is not None, row.problem
    assert row.point.schedule == schedule


def test_items_sum_to_the_prediction() -> None:
    (row,) = predictions.rows(validate([("own", [measured()])]))
    assert sum(row[f"{item}_s"] for item in TIME_ITEMS) == pytest.approx(row["step_time_s"], rel=1e-12)
    assert sum(row[f"{item}_bytes"] for item in MEMORY_ITEMS) == pytest.approx(row["memory_bytes"], rel=1e-12)
    assert row["step_time_error"] == pytest.approx(row["step_time_s"] / 5.0 - 1)
    assert row["memory_error"] == pytest.approx(row["memory_bytes"] / 40e9 - 1)
    assert row["step_time_lo_s"] < row["step_time_s"] < row["step_time_hi_s"]
    assert row["memory_lo_bytes"] < row["memory_bytes"] < row["memory_hi_bytes"]


def test_a_source_that_prints_the_first_rank_is_compared_with_it_and_fits_by_the_heaviest() -> None:
    # one micro-batch and a large vocabulary: the last of two stages holds most
    last_heavy = {"stack": "nanotron", "vocab": "512000", "tp": "1", "n_gpus": "8", "global_batch": "32", "micro_batch": "8",
                  "recompute": "full"}  # fmt: skip
    found = validate([("own", [measured(**last_heavy, source_group=name) for name in ("nanotron-playbook", "other")])])
    first, heaviest = predictions.rows(found)
    assert (first["memory_rank"], heaviest["memory_rank"]) == ("first", "heaviest")
    assert first["memory_bytes"] < 0.9 * heaviest["memory_bytes"]
    assert found.predicted.most_bytes.tolist() == [pytest.approx(heaviest["memory_bytes"])] * 2
    assert first["fits"] == heaviest["fits"]
    assert first["step_time_s"] == heaviest["step_time_s"]
    for row in (first, heaviest):
        assert sum(row[f"{item}_bytes"] for item in MEMORY_ITEMS) == pytest.approx(row["memory_bytes"], rel=1e-12)


def test_a_row_is_predicted_the_same_alone_and_among_others() -> None:
    many = [measured(id=str(t), tp=str(t), n_gpus=str(8 * t)) for t in (1, 2, 4, 8)]
    together = validate([("own", many)]).predicted.step_time_s
    alone = [validate([("own", [each])]).predicted.step_time_s[0] for each in many]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("cells", "scored"),
    [
        ({}, True), ({"complete": "B:recompute"}, True), ({"complete": "C:micro_batch"}, False), ({"complete": "X"}, False),
        ({"precision": "fp8"}, False), ({"moe_experts": "8"}, False), ({"notes": "LoRA"}, False), ({"outcome": "OOM"}, False),
    ],
)  # fmt: skip
def test_only_rows_that_state_everything_are_scored(cells: dict[str, str], scored: bool) -> None:
    assert validate([("own", [measured(**cells)])]).timed.tolist() == [scored]


@pytest.mark.parametrize(
    ("cells", "cut"),
    [
        ({"tp": "1", "pp": "1"}, "with neither"), ({"pp": "1"}, "with tensor"), ({"tp": "1"}, "with pipeline"),
        ({}, "with both"),
    ],
)  # fmt: skip
def test_rows_are_classed_by_how_they_are_cut(cells: dict[str, str], cut: str) -> None:
    assert classes.classes(measured(**cells))["cut"] == cut


def test_rows_are_classed_by_nodes_size_and_recomputation() -> None:
    found = classes.classes(measured())
    assert found["nodes"] == "2-8"
    assert found["model_size"] == "1-10B"
    assert found["recompute"] == "full"
    assert found["schedule"] == "1f1b"


def test_comparable_runs_differ_in_their_layout_alone() -> None:
    runs = [
        measured(id="a"), measured(id="b", tp="2"), measured(id="c", micro_batch="1"), measured(id="d", global_batch="128"),
        measured(id="e", layers="16"), measured(id="f", n_gpus="64"), measured(id="g", notes="kernel = torch; trial 7"),
        measured(id="h", notes="kernel = torch; trial 8", recompute="none"), measured(id="i", source_group="other"),
    ]  # fmt: skip
    assert regret.comparable(runs) == [[0, 1, 2], [6, 7]]


@pytest.mark.parametrize(
    ("source", "notes", "kind"),
    [
        ("x", "peak allocated 12604 MiB", "allocated (torch)"), ("torchtitan-2024", "memory 84.2 GiB", "reserved (torch)"),
        ("x", "GB as printed (README says GiB)", "as the driver reports"), ("x", "", "as printed, kind not stated"),
    ],
)  # fmt: skip
def test_the_kind_of_a_memory_figure_is_what_its_source_says(source: str, notes: str, kind: str) -> None:
    assert classes.memory_kind(measured(source_group=source, notes=notes)) == kind


def test_the_rule_against_stalls_sees_no_measurement() -> None:
    stalls = classes.STALLING
    for cells in ({"pp": "1", "n_gpus": "16"}, {"pp": "4"}, {"n_gpus": "512", "pp": "1", "global_batch": "512"}):
        kept = {
            classes.kept(
                measured(source_group=stalls, stack="nanotron", measured_step_time_s=s, mem_gb_per_gpu=gb, **cells)
            )
            for s, gb in (("1", "10"), ("1000", "79"))
        }
        assert len(kept) == 1
    assert classes.kept(measured(pp="4"))


def test_a_table_may_be_gzipped(tmp_path: Path) -> None:
    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    plain.write_text(table({}, {"id": "b"}), encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [each.id for each in rows.read(packed, catalog())] == [each.id for each in rows.read(plain, catalog())]


@pytest.mark.parametrize("content", [b"", b"id,layers\n", b"\xff\xfe\x00", b"id,layers\n1,2\n"])
def test_a_file_that_is_no_table_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(Invalid, match=r"measurements="):
        rows.read(path, catalog())


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"measurements=.*none\.csv"):
        rows.read(tmp_path / "none.csv", catalog())


def asked(*overrides: str) -> dict[str, Any]:
    with compose.composer() as (make, _):
        return config.plain(make(["experiment=validate", *overrides]))


def studied(tmp_path: Path, text: str, *overrides: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    asks = asked(f"measurements={path}", f"study.dir={tmp_path / 'study'}", *overrides)
    return study.run([Space(base=asks)], ["experiment=validate"], False)


@pytest.mark.slow
def test_a_table_of_ones_own_becomes_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = table({}, {"id": "b", "tp": "2", "measured_step_time_s": "4.5"}, {"id": "c", "gpu": "abacus"})
    folder = studied(tmp_path, text)
    found = pq.read_table(folder / predictions.FILE).to_pylist()
    assert [row["id"] for row in found] == ["a", "b", "c"]
    assert [row["status"] for row in found] == ["ok", "ok", "invalid"]
    assert list(found[0]) == list(predictions.COLUMNS)
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "abacus" in report
    assert "Choosing a layout" in report
    assert json.loads((folder / "figures.json").read_text(encoding="utf-8"))["one source"]["step_time"] > 0
    assert "study: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{"gpu": "abacus"}] * 7 + [{"tp": ""}], ["none of 8 rows can", "7 x gpu=abacus .*: a, a, a, a, a, …", "1 x tp not given"]),
        ([{"measured_step_time_s": "", "mem_gb_per_gpu": ""}], ["none of the table's one row", "1 x neither measured_step"]),
        ([{"gpu": f"abacus {k}"} for k in range(12)], ["none of 12 rows", "2 rows for 2 other reasons"]),
    ],
)  # fmt: skip
def test_a_table_without_a_usable_row_is_refused_with_every_reason_counted(
    tmp_path: Path, changes: list[dict[str, str]], said: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        studied(tmp_path, table(*changes))
    for each in said:
        assert re.search(each, str(refused.value))
    assert not (tmp_path / "study" / "report.md").exists()


def test_a_run_out_of_memory_alone_is_a_usable_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = table({"measured_step_time_s": "", "mem_gb_per_gpu": "", "outcome": "OOM"})
    assert (studied(tmp_path, text) / "report.md").exists()
    assert capsys.readouterr().out


@pytest.mark.slow
def test_markup_in_a_table_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "<script>alert(1)</script>"
    text = table({"source_group": bad, "model": bad, "notes": bad}, {"id": bad, "gpu": bad})
    folder = studied(tmp_path, text)
    assert bad not in (folder / "report.html").read_text(encoding="utf-8")
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_stack_that_is_asked_for_stands_for_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def step_s(name: str, *overrides: str) -> float:
        (tmp_path / name).mkdir()
        folder = studied(tmp_path / name, table({}), *overrides)
        return float(pq.read_table(folder / predictions.FILE)["step_time_s"][0].as_py())

    given = step_s("given", "stack=megatron_lm", "stack.forward_launch_us=50000")
    assert given > 1.5 * step_s("plain")
    assert capsys.readouterr().out


def test_nothing_but_odd_rows_still_makes_a_report() -> None:
    found = validate([("own", [measured(gpu="abacus"), measured(tp="")])])
    document = page(found, peers.llm_analysis(found.measurements, [False, False]), [], summary.figures(found), 10)
    assert "2 measured runs" in markdown.to_markdown(document)


def test_the_peer_says_when_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda: None)
    found = peers.llm_analysis([measured()], [False])
    assert np.isnan(found.step_time_s).all()
    assert "not installed" in found.note


@pytest.mark.slow
def test_every_figure_of_the_peer_belongs_to_a_packaged_row() -> None:
    found = peers.llm_analysis(packaged().measurements, [True] * len(packaged().measurements))
    usable = np.isfinite(found.step_time_s)
    assert usable.sum() > 4000
    assert (found.step_time_s[usable] > 0).all()
    assert "0.2.2" in found.note


@pytest.mark.slow
def test_every_packaged_row_is_predicted_or_says_why() -> None:
    found = packaged()
    assert len(found.measurements) == 6199 + 494
    table_ = pq.read_table(io.BytesIO(predictions.parquet(predictions.rows(found))))
    for row in table_.to_pylist():
        assert (row["status"] == "invalid") == bool(row["reason"])
        if row["status"] != "invalid":
            assert row["step_time_s"] > 0
            assert row["memory_bytes"] > 0
            assert sum(row[f"{item}_s"] for item in TIME_ITEMS) == pytest.approx(row["step_time_s"], rel=1e-9)
    assert found.known.mean() > 0.975
    assert len({each.id for each in found.measurements}) == len(found.measurements)


@pytest.mark.slow
def test_the_report_of_the_packaged_rows_holds_all_it_should() -> None:
    found = packaged()
    peer = peers.llm_analysis(found.measurements, [True] * len(found.measurements))
    document = page(found, peer, bands.bands(found, catalog()), summary.figures(found), 6)
    text = markdown.to_markdown(document)
    for word in (
        "constant MFU", "llm-analysis", "regret", "rank correlation", "balanced accuracy", "mixture of experts", "fp8",
        "grade C", "HFU", "GiB", "bubble overhead", "covered", *classes.CLASSES["cut"], classes.STALL_RULE,
        "README 2022-01", "legal values", "goals are reached",
    ):  # fmt: skip
        assert word in text
    assert [section.title for section in document.sections] == [
        "What was compared", "Goals", "Step time", "With runs of one's own", "Choosing a layout", "For whom", "The worst",
        "Memory", "Set apart", "Intervals",
        "Definitions",
    ]  # fmt: skip


@pytest.mark.slow
def test_every_goal_is_told_and_holds_only_if_it_is_reached() -> None:
    found = packaged()
    known = goals.reached(found, summary.figures(found))
    assert [goal for goal, _ in known] == list(goals.GOALS)
    assert all(0 <= value < 1 for _, value in known)
    said, table = goal_tables.goals_of(found, summary.figures(found))
    holds = [row[-1] for row in table.rows]
    assert said.title.startswith(f"{sum(holds)} of {len(goals.GOALS)} goals")
    assert len(said.claims) == holds.count(False)
    figures = {(goal.what, goal.of): value for goal, value in known}
    assert figures[goals.BY_RELEASE, "NeMo-A100"] < figures[goals.SCALED, "NeMo-A100"] / 2


@pytest.mark.slow
def test_sources_are_the_packaged_ones() -> None:
    found = packaged()
    names = {source for source, role in found.sources() if role == "calibration"}
    assert {"AlephAlpha-layouts", "nanotron-playbook", "ZeroBubble-2024"} <= names
    assert all(math.isfinite(value) for each in summary.figures(found).values() for value in each.values())
