"""The task ``calibrate``, end to end: runs go in, a stack comes out that the runner takes, and mistakes end with code 2."""

from __future__ import annotations

import gzip
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from pipesim import compose, config, spec_config
from pipesim.checks import Invalid
from pipesim.report import html, markdown
from pipesim.results import store
from pipesim.tasks.calibrate.task import calibrate

RUN = Path(__file__).parents[1] / "experiments" / "run.py"
HEAD = "id,t,p,d,micro_batch,global_batch,step_time_s"
ONE = (HEAD, "bloom,4,12,8,2,2048,120")
SEVERAL = (
    HEAD, "a,4,12,8,2,2048,104.7", "b,4,24,4,2,2048,112", "c,8,12,4,4,2048,118", "d,8,6,8,2,2048,110"
)  # fmt: skip

LLAMA = ("model=llama3_8b", "cluster=dgx_h100", "stack=megatron_lm", "parallel=megatron", "training=megatron")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, check=False, timeout=180)


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """Composes the task for a table of these lines."""

    def ask(lines: tuple[str, ...], *overrides: str, name: str = "runs.csv") -> dict[str, Any]:
        path = tmp_path / name
        path.write_text("\n".join(lines), encoding="utf-8")
        with compose.composer() as (make, _):
            return config.plain(make(["experiment=calibrate", *overrides])) | {"measurements": str(path)}

    return ask


def loaded(schema: Any, text: str | bytes) -> Any:
    return OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(str(text))))


def refused(conf: dict[str, Any]) -> list[str]:
    with pytest.raises(Invalid) as error:
        calibrate(conf)
    return error.value.problems


@pytest.mark.slow
def test_measured_runs_become_a_stack_whose_step_time_moves_towards_theirs(tmp_path: Path) -> None:
    """BLOOM's layout is predicted well under 120 s; a run that took them moves the prediction, and narrows its interval."""
    table, study = tmp_path / "runs.csv", tmp_path / "study"
    table.write_text("\n".join(ONE), encoding="utf-8")
    fitted = command("experiment=calibrate", f"measurements={table}", "task.calibrate.name=mine", f"study.dir={study}")
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert "--config-dir STUDY/conf stack=mine" in fitted.stdout.replace("\n", " ")
    steps, widths = {}, {}
    for stack, more in {"bigscience": (), "mine": ("--config-dir", str(study / "conf"))}.items():
        folder = tmp_path / stack
        used = command(*more, f"stack={stack}", f"study.dir={folder}")
        assert used.returncode == 0, used.stderr
        (row,) = store.read(folder)
        steps[stack], widths[stack] = row["step_time_s"], row["step_time_hi_s"] / row["step_time_s"]
    assert steps["bigscience"] < 110
    assert 1.02 * steps["bigscience"] < steps["mine"] < 120
    assert widths["mine"] < widths["bigscience"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "measurements=null: give a CSV of your runs with at least the columns t, p, micro_batch,"),
        (("measurements=nowhere.csv",), "measurements=nowhere.csv cannot be read"),
        (("task.calibrate.constants=[stack.gem_efficiency]",), "Nearest: stack.gemm_efficiency."),
    ],
)
def test_a_mistake_ends_with_code_2_names_its_key_and_writes_nothing(
    tmp_path: Path, overrides: tuple[str, ...], told: str
) -> None:
    study = tmp_path / "study"
    done = command("experiment=calibrate", *overrides, f"study.dir={study}")
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not study.exists()


def test_the_files_load_as_a_stack_and_a_cluster_with_the_fitted_values(asked: Any) -> None:
    conf = asked(SEVERAL, "task.calibrate.date=2026-01-02")
    done = calibrate(conf)
    assert set(done.files) == {"conf/stack/calibrated.yaml", "conf/cluster/calibrated.yaml", "runs.csv"}
    stack = loaded(spec_config.StackConf, done.files["conf/stack/calibrated.yaml"])
    cluster = loaded(spec_config.ClusterConf, done.files["conf/cluster/calibrated.yaml"])
    assert config.build_stack(stack).based_on == "megatron_deepspeed"
    assert config.build_cluster(cluster).chip == "a100_80g"
    assert stack["gemm_efficiency"]["a100_80g"] != conf["stack"]["gemm_efficiency"]["a100_80g"]
    assert "2026-01-02" in stack["source"]
    assert "4 measured" in stack["source"]
    assert "stack=calibrated cluster=calibrated" in markdown.to_markdown(done.document)


@pytest.mark.parametrize(
    ("name", "field", "unit"),
    [
        ("stack.forward_launch_s", "forward_launch_us", 1e6),
        ("stack.hop_start_s", "hop_start_us", 1e6),
        ("stack.norm_bytes", "norm_bytes", 1.0),
    ],
)
def test_a_fitted_constant_is_written_in_the_unit_of_its_config(asked: Any, name: str, field: str, unit: float) -> None:
    """Runs a tenth slower than expected and one constant to move: it rises, and the file holds what the report says."""
    lines = (HEAD, "a,4,12,8,2,2048,115", "b,4,24,4,2,2048,122", "c,8,12,4,4,2048,135")
    conf = asked(lines, f"task.calibrate.constants=[{name}]")
    done = calibrate(conf)
    stack = loaded(spec_config.StackConf, done.files["conf/stack/calibrated.yaml"])
    assert stack[field] > 1.002 * conf["stack"][field]
    (table,) = [b for s in done.document.sections for b in s.blocks if getattr(b, "title", "") == "Constants"]
    ((_, _, before, after, *_),) = table.rows
    assert (before * unit, after * unit) == pytest.approx((conf["stack"][field], stack[field]), rel=1e-3)
    changed = {key for key, value in stack.items() if value != conf["stack"][key]}
    assert changed <= {field, "name", "based_on", "own_runs", "source"}
    assert stack["own_runs"] == {"a100_80g": 3}


def test_a_fit_that_is_none_narrows_no_interval(asked: Any) -> None:
    wild = (HEAD, "a,4,12,8,2,2048,105", "b,4,24,4,2,2048,400", "c,8,12,4,4,2048,900", "d,4,12,8,1,2048,95")
    done = calibrate(asked(wild))
    assert loaded(spec_config.StackConf, done.files["conf/stack/calibrated.yaml"])["own_runs"] == {}
    text = " ".join(markdown.to_markdown(done.document).split())
    assert "which is no fit, so that no interval is narrower" in text
    before, after = re.search(
        r"lay within ([\d.]+) % of the estimate before the fit, ([\d.]+) % after it", text
    ).groups()
    assert before == after


def test_one_run_fits_the_efficiency_alone_and_needs_no_cluster(asked: Any) -> None:
    done = calibrate(asked(ONE))
    assert set(done.files) == {"conf/stack/calibrated.yaml", "runs.csv"}
    assert "to one run" in done.document.title


def test_the_date_is_the_askers_then_the_tables_own(asked: Any) -> None:
    dated = (HEAD + ",date", ONE[1] + ",2024-05-06")
    assert "2024-05-06" in str(calibrate(asked(dated)).files["conf/stack/calibrated.yaml"])
    own = calibrate(asked(dated, "task.calibrate.date=2025-01-01")).files["conf/stack/calibrated.yaml"]
    assert "2025-01-01" in str(own)


def test_the_same_runs_make_the_same_bytes(asked: Any) -> None:
    conf = asked(SEVERAL, "task.calibrate.date=2026-01-02")
    one, other = calibrate(conf), calibrate(conf)
    assert one.files == other.files
    assert one.document == other.document


def test_memory_is_compared_and_not_fitted(asked: Any) -> None:
    done = calibrate(asked((HEAD + ",memory_gb", ONE[1] + ",60")))
    assert "Memory of the heaviest GPU, which is not fitted" in markdown.to_markdown(done.document)


def test_what_looks_wrong_is_in_the_report(asked: Any) -> None:
    lines = (*SEVERAL, "e,4,12,8,2,2048,320")
    text = markdown.to_markdown(calibrate(asked(lines)).document)
    assert "row 1 (a) and row 5 (e) are one configuration, but take 104.7 and 320 s" in text
    assert "row 5 (e) is predicted -" in text


@pytest.mark.slow
def test_a_table_of_the_published_kind_is_read_too(asked: Any) -> None:
    """One of BigScience's runs, in the columns of the packaged tables."""
    packaged = Path(config.__file__).parent / "calibrate" / "data" / "dev.csv.gz"
    with gzip.open(packaged, "rt", encoding="utf-8") as file:
        head, *rows = file.read().splitlines()
    bloom = [row for row in rows if row.startswith("bigscience-A100-")]
    done = calibrate(asked((head, *bloom)))
    assert "Calibration of bigscience" in done.document.title


def test_cells_cannot_write_html(asked: Any) -> None:
    done = calibrate(asked((HEAD, "<script>x</script>,4,12,8,2,2048,104.7")))
    text = html.to_html(done.document, {})
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("task.calibrate.name='../mine'", "task.calibrate.name='../mine' becomes a file's"),
        ("task.calibrate.constants=[luck]", "task.calibrate.constants=luck is unknown."),
        ("costs=lecture", "costs.kind=lecture has no constants that a run could be fitted by. Nearest: costs=full."),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_its_key(asked: Any, override: str, told: str) -> None:
    (problem,) = refused(asked(ONE, override))
    assert problem.startswith(told)


def test_a_factor_cannot_move_what_is_0(asked: Any) -> None:
    conf = asked(ONE, "task.calibrate.constants=[stack.hop_start_s]", "stack.hop_start_us=0")
    (problem,) = refused(conf)
    assert problem.startswith("task.calibrate.constants=stack.hop_start_s is 0 in stack.name=bigscience")


def test_all_mistakes_are_told_at_once(asked: Any) -> None:
    conf = asked(ONE, "task.calibrate.constants=[luck,pluck]", "costs=lecture") | {"measurements": None}
    assert [problem.split("=")[0] for problem in refused(conf)] == [
        "measurements", "costs.kind", "task.calibrate.constants", "task.calibrate.constants",
    ]  # fmt: skip


EXAMPLE = Path(config.__file__).parent / "calibrate" / "README.md"


def test_the_readmes_example_works(asked: Any) -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    start = lines.index("```csv") + 1
    table = tuple(itertools.takewhile(lambda line: line != "```", lines[start:]))
    done = calibrate(
        asked(
            table, "cluster=dgx_h100", "stack=megatron_lm", "training=megatron", "parallel=megatron", "model=llama3_8b"
        )
    )
    text = markdown.to_markdown(done.document)
    assert f"to {len(table) - 1} runs" in done.document.title
    assert "Warnings" not in text


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("task.calibrate.name=nemo",), "task.calibrate.name=nemo is a file of conf/stack already"),
        (("task.calibrate.name=jean_zay_a100",), "task.calibrate.name=jean_zay_a100 is a file of conf/cluster already"),
        (("task.calibrate.date=yesterday",), "task.calibrate.date='yesterday' must be a date. Nearest: 'YYYY-MM-DD'."),
    ],
)
def test_names_that_mean_something_already_and_dates_that_are_none_are_refused(
    asked: Any, overrides: tuple[str, ...], told: str
) -> None:
    (problem,) = refused(asked(ONE, *overrides))
    assert problem.startswith(told)


def test_a_table_of_any_name_makes_a_config_that_loads_as_it_was_written(asked: Any) -> None:
    done = calibrate(asked(ONE, "task.calibrate.date=2026-01-02", name='my "runs" ${oc.env:HOME}: 😀.csv'))
    stack = loaded(spec_config.StackConf, done.files["conf/stack/calibrated.yaml"])
    assert stack["source"].startswith("fitted to my _runs_")
    assert "$" not in stack["source"]


def test_every_run_stands_in_a_table_with_its_seconds_before_and_after(asked: Any) -> None:
    head, line = str(calibrate(asked(ONE)).files["runs.csv"]).splitlines()
    run = dict(zip(head.split(","), line.split(","), strict=True))
    assert (run["row"], run["id"], float(run["measured_step_time_s"])) == ("1", "bloom", 120)
    before, after = float(run["before_step_time_s"]), float(run["after_step_time_s"])
    assert before < 110
    assert before + 0.2 * (120 - before) < after < before + 0.7 * (120 - before)


def test_one_run_on_a_chip_that_was_never_measured_is_met(asked: Any) -> None:
    head, line = str(calibrate(asked(ONE, "cluster.chip=new")).files["runs.csv"]).splitlines()
    assert float(dict(zip(head.split(","), line.split(","), strict=True))["after_step_time_s"]) == pytest.approx(
        120, rel=0.02
    )


def test_the_report_says_how_much_narrower_the_interval_is(asked: Any) -> None:
    text = markdown.to_markdown(calibrate(asked(SEVERAL)).document)
    before, after = map(
        float, re.search(r"within ([\d.]+) % of the estimate before the fit, ([\d.]+) % after it", text).groups()
    )
    assert after < before


def test_a_path_needs_no_quotes_on_the_command_line() -> None:
    words = compose.with_quoted_texts(["measurements=my runs (June).csv"])
    assert words == ["measurements='my runs (June).csv'"]


def test_of_many_warnings_of_one_kind_ten_are_told_and_the_others_counted(asked: Any) -> None:
    lines = (HEAD, "a,4,12,8,2,2048,104.7", *(f"r{n},4,12,8,2,2048,{130 + n}" for n in range(13)))
    text = markdown.to_markdown(calibrate(asked(lines, "task.calibrate.constants=[stack.gemm_efficiency]")).document)
    assert text.count("are one configuration") == 10
    assert "… and 3 more of this kind." in text


def test_contradictory_runs_are_no_fit_and_narrow_nothing(asked: Any) -> None:
    """One configuration at 3.95 and 7.95 s: the mean error of the four is under the limit, their scatter is not."""
    lines = ("id,gpus,t,p,micro_batch,global_batch,seq_length,step_time_s", "a,32,1,1,1,128,8192,3.95", "b,32,1,1,1,128,8192,7.95",
             "c,32,4,1,1,128,8192,5.08", "d,32,1,4,1,128,8192,5.12")  # fmt: skip
    done = calibrate(asked(lines, *LLAMA))
    assert loaded(spec_config.StackConf, done.files["conf/stack/calibrated.yaml"])["own_runs"] == {}
    assert "which is no fit" in markdown.to_markdown(done.document)


def test_an_overlap_that_the_config_has_at_0_is_named_where_the_runs_touch_it(asked: Any) -> None:
    lines = ("id,gpus,t,p,micro_batch,global_batch,seq_length,step_time_s", "a,32,1,1,1,128,8192,3.95",
             "c,32,4,1,1,128,8192,5.08", "d,32,1,4,1,128,8192,5.12")  # fmt: skip
    text = " ".join(markdown.to_markdown(calibrate(asked(lines, *LLAMA)).document).split()).replace("\\", "")
    assert "stack.tp_overlap is 0 in the config" in text
    assert re.search(r"task.calibrate.constants=\[stack.gemm_efficiency,.*,stack.tp_overlap\]", text)
    text = markdown.to_markdown(
        calibrate(asked((lines[0], lines[1], lines[3], lines[1].replace("1,128", "2,128")), *LLAMA)).document
    )
    assert "tp_overlap" not in text
