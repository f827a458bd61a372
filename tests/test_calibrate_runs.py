"""A user's own table of runs: what is read from it, and how everything that is wrong with it is told."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from points import composed

from pipesim import compose, config, legality
from pipesim.calibrate import agreement, lint
from pipesim.calibrate.fit import Fit
from pipesim.calibrate.predict import predict
from pipesim.calibrate.read_runs import read_runs
from pipesim.calibrate.runs import Run
from pipesim.checks import Invalid
from pipesim.tasks.calibrate.files import left

HEAD = "id,t,p,d,micro_batch,global_batch,step_time_s"
GOOD = "bloom,4,12,8,2,2048,104.7"


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    """BLOOM on 384 A100s: t4 p12, what no column says."""
    with compose.composer() as (make, _):
        return config.plain(make([]))


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Writes a table of these lines."""

    def write(*lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
        path = tmp_path / "runs.csv"
        path.write_bytes((end.join(lines) + end).encode(encoding))
        return path

    return write


def problems(path: Path, base: dict[str, Any]) -> list[str]:
    """What is wrong with the table, without its name in front."""
    with pytest.raises(Invalid) as error:
        read_runs(path, base)
    found = error.value.problems
    assert all(f"measurements={path}" in problem for problem in found)
    return [problem.removeprefix(f"measurements={path}").lstrip(": ") for problem in found]


def test_a_row_is_the_config_with_its_cells(table: Any, base: dict[str, Any]) -> None:
    read = read_runs(table(f"{HEAD},memory_gb,recompute", f"{GOOD},60,selective"), base)
    (run,) = read.runs
    asked = composed("parallel.t=4", "parallel.p=12", "training.recompute=selective")
    assert (run.point.model, run.point.training, run.point.stack) == (asked.model, asked.training, asked.stack)
    assert (run.point.layout.t, run.point.layout.p, run.point.layout.d) == (4, 12, 8)
    assert (run.id, run.step_time_s, run.memory_bytes, run.gpus) == ("bloom", 104.7, 60e9, 384)
    assert run.tokens == 2048 * 2048
    assert read.warnings == ()


def test_what_no_column_says_is_told(table: Any, base: dict[str, Any]) -> None:
    assumed = read_runs(table(HEAD, GOOD), base).assumed
    assert "training.recompute=full" in assumed
    assert not any(each.startswith("cluster.gpus") for each in assumed)


def test_without_d_the_gpus_make_it(table: Any, base: dict[str, Any]) -> None:
    path = table("gpus,t,p,micro_batch,global_batch,step_time_s", "96,4,12,2,2048,400", "192,4,12,2,2048,200")
    assert [run.point.layout.d for run in read_runs(path, base).runs] == [2, 4]


def test_an_empty_cell_is_as_the_config_has_it(table: Any, base: dict[str, Any]) -> None:
    (run,) = read_runs(table(f"{HEAD},recompute,memory_gb", f"{GOOD},,"), base).runs
    assert (run.point.training.recompute, run.memory_bytes) == (base["training"]["recompute"], None)


def test_a_column_names_the_model(table: Any, base: dict[str, Any]) -> None:
    path = table(f"{HEAD},model", "one,8,8,2,1,512,20,llama3_70b", "two,8,8,2,1,512,50,gpt3_175b")
    assert [run.point.model.name for run in read_runs(path, base).runs] == ["llama3_70b", "gpt3_175b"]


def test_columns_give_the_shape_of_a_model_that_has_no_file(table: Any, base: dict[str, Any]) -> None:
    path = table(f"{HEAD},layers,hidden,heads,vocab", "own,8,4,2,1,512,20,32,4096,32,51200")
    model = read_runs(path, base).runs[0].point.model
    assert (model.layers, model.hidden, model.heads, model.ffn, model.kv_heads) == (32, 4096, 32, 16384, 32)


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"], ids=["plain", "marked"])
def test_spreadsheets_line_ends_and_marks_are_read(table: Any, base: dict[str, Any], end: str, encoding: str) -> None:
    (run,) = read_runs(table(HEAD, GOOD, "", ",,,,,,", end=end, encoding=encoding), base).runs
    assert (run.id, run.step_time_s) == ("bloom", 104.7)


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_than_commas_is_named(table: Any, base: dict[str, Any], mark: str, name: str) -> None:
    path = table(HEAD.replace(",", mark), GOOD.replace(",", mark).replace(".", ","))
    with pytest.raises(Invalid, match=f"columns are separated by {name}. Nearest: commas"):
        read_runs(path, base)


def test_spaces_around_cells_do_not_matter(table: Any, base: dict[str, Any]) -> None:
    (run,) = read_runs(table(HEAD.replace(",", " , "), GOOD.replace(",", " , ")), base).runs
    assert run.step_time_s == 104.7


def test_an_unknown_column_is_named_with_the_nearest(table: Any, base: dict[str, Any]) -> None:
    assert problems(table(HEAD.replace("micro_batch", "microbatch"), GOOD), base) == [
        "column 'microbatch' is unknown. Nearest: micro_batch.",
        "columns micro_batch are missing.",
    ]


def test_an_unknown_column_like_no_other_lists_all(table: Any, base: dict[str, Any]) -> None:
    (problem,) = problems(table(f"{HEAD},%%%", f"{GOOD},1"), base)
    assert problem.startswith("column '%%%' is unknown. Known: id, ")


def test_missing_columns_are_named_together(table: Any, base: dict[str, Any]) -> None:
    assert problems(table("t,p", "4,12"), base) == ["columns micro_batch, global_batch, step_time_s are missing."]


def test_a_column_that_stands_twice_is_refused(table: Any, base: dict[str, Any]) -> None:
    (problem,) = problems(table(f"{HEAD},t", f"{GOOD},8"), base)
    assert "column 't' stands there 2 times" in problem


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        ("step_time_s", "fast", "step_time_s='fast' must be a number from 1e-06 to 1e+07."),
        ("step_time_s", "-3", "step_time_s='-3' must be a number from 1e-06 to 1e+07."),
        ("step_time_s", "nan", "step_time_s='nan' must be a number from 1e-06 to 1e+07."),
        ("step_time_s", "inf", "step_time_s='inf' must be a number from 1e-06 to 1e+07."),
        ("step_time_s", "", "step_time_s= is empty and must be given."),
        ("t", "four", "t='four' must be a whole number."),
        ("t", "inf", "t='inf' must be a whole number."),
        ("t", "4.4", "t=4.4 must be a whole number of at least 1. Nearest: t=4."),
        ("p", "0", "p=0 must be a whole number of at least 1. Nearest: p=1."),
        ("global_batch", "1e30", "Nearest: global_batch=1000000000000."),
    ],
)
def test_a_cell_that_is_no_number_is_named(table: Any, base: dict[str, Any], column: str, text: str, told: str) -> None:
    cells = dict(zip(HEAD.split(","), GOOD.split(","), strict=True)) | {column: text}
    found = problems(table(HEAD, ",".join(cells.values())), base)
    assert found[0].startswith("row 1 (bloom): ")
    assert found[0].endswith(told)


def test_a_flag_is_true_or_false(table: Any, base: dict[str, Any]) -> None:
    for text, flag in (("TRUE", True), ("0", False)):
        (run,) = read_runs(table(f"{HEAD},sequence_parallel", f"{GOOD},{text}"), base).runs
        assert run.point.layout.sequence_parallel is flag
    (problem,) = problems(table(f"{HEAD},sequence_parallel", f"{GOOD},perhaps"), base)
    assert problem.endswith("sequence_parallel='perhaps' must be true or false.")


def test_bigsciences_row_of_twice_the_gpus_gets_the_d_that_fits(table: Any, base: dict[str, Any]) -> None:
    """chronicles-prequel.md lists dp 8, tp 8, pp 10 on 40 nodes of 8 GPUs."""
    path = table("gpus,t,p,d,micro_batch,global_batch,step_time_s", "320,8,10,8,2,2048,100")
    assert problems(path, base)[0] == "row 1: gpus=320 is not t=8 x p=10 x d=8 = 640. Nearest: d=4, or gpus=640."


def test_gpus_that_the_cut_does_not_divide_get_the_nearest_that_it_does(table: Any, base: dict[str, Any]) -> None:
    path = table("gpus,t,p,micro_batch,global_batch,step_time_s", "100,4,12,2,2048,100")
    assert problems(path, base)[0] == "row 1: gpus=100 is no multiple of t=4 x p=12 = 48. Nearest: gpus=96."


@pytest.mark.parametrize(
    ("micro_batch", "m", "d", "asked", "right"), [(4, 256, 1, 1536, 1024), (4, 256, 1, 2048, 1024), (1, 4, 4, 4, 16)]
)
def test_bigsciences_batches_are_not_what_their_parts_make(
    micro_batch: int, m: int, d: int, asked: int, right: int
) -> None:
    """experiments/gpt2.md of the workshop: mbs 4, gas 256, dp 1 with gbs 1536 and 2048; gas 4, dp 4 with gbs 4."""
    cells = {"micro_batch": micro_batch, "m": m, "d": d, "global_batch": asked}
    (finding,) = lint.lint({name: str(value) for name, value in cells.items()}, ())
    assert (finding.column, finding.value) == ("global_batch", str(asked))
    assert f"= {right}" in finding.rule
    assert f"global_batch={right}" in finding.nearest


def test_a_wrong_batch_makes_the_printed_flops_wrong_and_says_how_much() -> None:
    """Printed 1.5 TFLOP/s are 6 with the batch of 16 that was meant."""
    cells = {"micro_batch": "1", "m": "4", "d": "4", "global_batch": "4", "tflops_per_gpu": "1.55"}
    (finding,) = lint.lint(cells, ())
    assert "1.55 TFLOP/s, if reckoned with that batch, are 6.2" in str(finding)


def test_a_batch_that_does_not_divide_gets_its_neighbours(table: Any, base: dict[str, Any]) -> None:
    (problem,) = problems(table(HEAD, "odd,4,12,8,3,2048,100"), base)
    assert (
        "global_batch=2048 is no multiple of micro_batch=3 x d=8 = 24. Nearest: global_batch=2040 or 2064." in problem
    )


def test_exchanged_columns_are_recognised(table: Any, base: dict[str, Any]) -> None:
    found = problems(table(HEAD, "swapped,4,12,8,2048,2,104.7"), base)
    assert found[-1].endswith("With micro_batch=2 and global_batch=2048 it would work: are these two columns swapped?")


def test_t_and_p_exchanged_are_recognised_by_the_heads_that_do_not_divide(table: Any, base: dict[str, Any]) -> None:
    """BLOOM's 112 heads make no 12 shares."""
    found = problems(table(HEAD, "swapped,12,4,8,2,2048,104.7"), base)
    assert "parallel.t=12 does not divide model.heads=112" in found[0]
    assert found[-1].endswith("With t=4 and p=12 it would work: are these two columns swapped?")


def test_an_unknown_model_is_named_with_the_nearest(table: Any, base: dict[str, Any]) -> None:
    (problem,) = problems(table(f"{HEAD},model", f"{GOOD},lama3_70b"), base)
    assert problem == "row 1 (bloom): model='lama3_70b' is no file of conf/model. Nearest: llama3_70b."


def test_all_wrong_rows_are_told_at_once(table: Any, base: dict[str, Any]) -> None:
    found = problems(table(HEAD, "a,4,12,8,2,2048,x", GOOD, "b,0,12,8,2,2048,1"), base)
    assert [each.split(":")[0] for each in found] == ["row 1 (a)", "row 3 (b)"]


def test_a_decimal_comma_makes_one_cell_too_many_and_is_told(table: Any, base: dict[str, Any]) -> None:
    (problem,) = problems(table(HEAD, GOOD, "b,4,12,8,2,2048,104,7"), base)
    assert problem.startswith("row 2 has 8 cells, and the first line names 7 columns")


@pytest.mark.parametrize("content", [b"", b"\n\n", HEAD.encode() + b"\n"], ids=["empty", "blank", "head alone"])
def test_a_table_without_rows_is_refused(tmp_path: Path, base: dict[str, Any], content: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    (problem,) = problems(path, base)
    assert problem.startswith("has no rows")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00t", b"t,p\n\x80\x81,2\n"], ids=["other encoding", "junk"])
def test_what_is_no_text_is_refused(tmp_path: Path, base: dict[str, Any], content: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    (problem,) = problems(path, base)
    assert "cannot be read" in problem


@pytest.mark.parametrize("name", ["missing.csv", ".", "missing.csv.gz"])
def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path, base: dict[str, Any], name: str) -> None:
    (problem,) = problems(tmp_path / name, base)
    assert "cannot be read" in problem


def test_rows_of_other_machines_are_left_out_and_counted(table: Any, base: dict[str, Any]) -> None:
    read = read_runs(table(f"{HEAD},stack", f"{GOOD},bigscience", f"{GOOD},nemo"), base)
    assert len(read.runs) == 1
    assert read.warnings[0].startswith("1 of 2 rows are not of cluster=jean_zay_a100 and stack=bigscience")
    (problem,) = problems(table(f"{HEAD},stack", f"{GOOD},nemo"), base)
    assert "There are cluster=jean_zay_a100 stack=nemo (1)" in problem


def agreeing(*seconds_and_tflops: tuple[float, float | None]) -> list[Run]:
    at = legality.resolve(composed())
    return [
        Run(row=n, id=str(n), source="own", point=at, step_time_s=seconds, tflops_per_gpu=tflops)
        for n, (seconds, tflops) in enumerate(seconds_and_tflops, start=1)
    ]


def warned(runs: list[Run]) -> list[str]:
    return agreement.warnings(runs, predict([run.point for run in runs]))


def test_flops_a_token_that_agree_are_no_matter() -> None:
    """BLOOM's log: 104.7 s and about 150 TFLOP/s; half as fast makes half as many."""
    assert warned(agreeing((104.7, 150.0), (106.0, 148.2), (105.0, 149.6))) == []


def test_a_run_whose_flops_a_token_differ_is_named_with_the_ratio() -> None:
    (told,) = [each for each in warned(agreeing((104.7, 150.0), (106.0, 148.2), (105.0, 75.0))) if "0.50" in each]
    assert told.startswith("row 3: step_time_s x tflops_per_gpu x GPUs / tokens is 0.50 of the other rows'")


def test_one_configuration_with_other_times_is_named() -> None:
    (told,) = warned(agreeing((100.0, None), (101.0, None), (120.0, None)))
    assert told.startswith("row 1 and row 3 are one configuration, but take 100 and 120 s")


def test_a_step_faster_than_the_peak_is_refused() -> None:
    runs = agreeing((0.1047, None))
    with pytest.raises(Invalid, match=r"row 1: step_time_s=0.1047 is less than the .* at peak"):
        agreement.refuse_impossible(runs, predict([run.point for run in runs]))


def test_milliseconds_are_recognised() -> None:
    (told,) = warned(agreeing((104700.0, None)))
    assert "is it in milliseconds? Nearest: step_time_s=104.7." in told


def test_the_run_that_lies_far_from_the_others_is_the_outlier() -> None:
    runs = agreeing(*[(100.0, None)] * 5)
    (told,) = agreement.outliers(runs, np.array([0.01, -0.01, 0.0, 0.02, 0.4]))
    assert told.startswith("row 5 is predicted +49 % off")
    assert agreement.outliers(runs, np.array([0.02, -0.02, 0.0, 0.02, -0.01])) == []


def test_a_run_that_was_copied_counts_once_whatever_its_ids(table: Any, base: dict[str, Any]) -> None:
    copies = [GOOD.replace("bloom", name) for name in ("bloom", "bloom", "other")]
    read = read_runs(table(HEAD, *copies, GOOD.replace("104.7", "104.8")), base)
    assert [(run.row, run.step_time_s) for run in read.runs] == [(1, 104.7), (4, 104.8)]
    assert read.warnings == ("row 1 (bloom) stands there 3 times, to the last digit of its time, and counts once.",)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("seq", "seq_length or sequence_parallel"),
        ("step", "step_time_s"),
        ("batch", "micro_batch or global_batch"),
        ("tp", "t"),
    ],
)
def test_a_part_of_a_column_names_it(table: Any, base: dict[str, Any], name: str, near: str) -> None:
    found = problems(table(f"{HEAD},{name}", f"{GOOD},1"), base)
    assert found == [f"column {name!r} is unknown. Nearest: {near}."]


def test_one_configurations_scatter_is_doubted_however_many_runs_are_met() -> None:
    torn = agreeing((100.0, None), (200.0, None))
    training = torn[0].point.training
    others = [
        replace(run, point=replace(run.point, training=replace(training, global_batch=48 * n)))
        for n, run in enumerate(agreeing(*[(100.0, None)] * 98), start=1)
    ]
    error = np.array([0.35, -0.35] + [0.0] * 98)
    fitted = Fit(constants=(), correlation=np.zeros((0, 0)), error_before=error, error_after=error)
    assert left([*torn, *others], fitted) == pytest.approx(math.log(2) / math.sqrt(2))
    assert left(others, replace(fitted, error_after=np.full(98, 0.1))) == pytest.approx(math.expm1(0.1))
