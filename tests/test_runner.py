"""The commands themselves: what they write, what they print last, and that one question has one answer."""

import csv
import hashlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipesim import compose, errors
from pipesim.results import store
from pipesim.results.schema import COLUMNS

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
REPORTS = (
    "bytes.svg", "report.html", "report.md", "schedule.csv", "seconds.svg", "timeline.html", "timeline.svg", "trace.json",
)  # fmt: skip


def start(script, *arguments, cwd):
    return subprocess.Popen(
        [sys.executable, EXPERIMENTS / script, *arguments],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"HYDRA_FULL_ERROR": "0"},
    )  # fmt: skip


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SWEEP = ("-m", "parallel.t=1,2,4,8", "parallel.p=6,12,24")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Both commands at once, started in an empty folder: name -> (process, its output, its study)."""
    top = tmp_path_factory.mktemp("runs")
    (top / "empty").mkdir()
    running = {
        name: start("run.py", *arguments, f"study.dir={top / name / 'study'}", cwd=top / "empty")
        for name, arguments in {"layout": (), "sweep": SWEEP}.items()
    }
    yield {name: (process, *process.communicate(), top / name / "study") for name, process in running.items()}
    assert list((top / "empty").iterdir()) == []


def main_of(name):
    spec = importlib.util.spec_from_file_location(f"pipesim_{name}", EXPERIMENTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Runs the runner in this process, without figures: exit code, output, errors and the study's folder."""
    main, numbers = main_of("run"), itertools.count()

    def run(*arguments):
        folder = tmp_path / f"study-{next(numbers)}"
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setenv(compose.JOBS_VARIABLE, "unset")
        monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments, f"study.dir={folder}"])
        code = errors.guarded(main)
        return code, *capsys.readouterr(), folder

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layout", "sweep"])
def test_a_command_ends_well_and_says_last_where_its_study_is(ran, name):
    process, out, err, folder = ran[name]
    assert process.returncode == 0, err
    assert err == ""
    assert out.splitlines()[-1] == f"study: {folder}"
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.slow
def test_a_layout_writes_table_reports_timeline_and_trace(ran):
    folder = ran["layout"][-1]
    assert sorted(content(folder)) == sorted(["results.parquet", "results.csv", "manifest.json", *REPORTS])
    (row,) = store.read(folder)
    assert (row["t"], row["p"], row["d"], row["status"]) == (4, 12, 8, "ok")
    assert json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]


@pytest.mark.slow
def test_a_sweep_is_one_study_with_a_row_for_each_point(ran):
    folder = ran["sweep"][-1]
    rows = store.read(folder)
    layouts = list(itertools.product((1, 2, 4, 8), (6, 12, 24)))
    assert [(row["t"], row["p"], row["d"]) for row in rows] == [(t, p, 384 // (t * p)) for t, p in layouts]
    with (folder / "results.csv").open(encoding="utf-8", newline="") as lines:
        header, *lines_of_rows = csv.reader(lines)
    assert header == list(COLUMNS)
    assert len(lines_of_rows) == 12
    assert {"results.parquet", "results.csv", "manifest.json", "report.md", "report.html"} <= set(content(folder))


@pytest.mark.slow
def test_hydras_own_sweeper_gives_the_same_bytes_and_both_keep_what_is_invalid(command):
    axes = ("-m", "parallel.t=4,5", "parallel.p=24")
    ours, theirs = command(*axes), command(*axes, "hydra/sweeper=basic")
    assert ours[0] == theirs[0] == errors.OK
    assert ours[2] == theirs[2] == ""
    said, theirs_said = (done[1].replace(str(done[-1]), "STUDY") for done in (ours, theirs))
    assert said == theirs_said
    rows = store.read(ours[-1])
    statuses = {(row["t"], row["p"]): row["status"] for row in rows}
    assert statuses == {(4, 24): "ok", (5, 24): "invalid"}
    assert all((row["reason"] is None) == (row["status"] == "ok") for row in rows)
    ours, theirs = content(ours[-1]), content(theirs[-1])
    assert {"results.csv", "results.parquet", "report.md", "report.html"} < set(ours)
    assert ours.pop("manifest.json") != theirs.pop("manifest.json")  # the folders' names
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layout", "sweep"])
def test_a_manifest_says_what_was_asked_and_hashes_what_came_out(ran, name):
    folder = ran[name][-1]
    files = content(folder)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["kind"] == name
    axes = list(SWEEP[1:]) if name == "sweep" else []
    assert manifest["overrides"] == [*axes, f"study.dir={folder}"]
    assert manifest["files"] == {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
    assert manifest["first_point" if name == "sweep" else "config"]["model"]["name"] == "bloom_176b"
    assert {"pipesim", "numpy", "pyarrow"} <= set(manifest["versions"])


@pytest.mark.slow
def test_report_renders_studies_again_to_the_same_bytes(ran, monkeypatch, capsys, tmp_path):
    folders = [ran[name][-1] for name in ("layout", "sweep")]
    before = [content(folder) for folder in folders]
    for folder in folders:
        for file in set(content(folder)) - {"results.parquet", "results.csv", "manifest.json"}:
            (folder / file).unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for folder in folders:
        monkeypatch.setattr(sys, "argv", ["report.py", str(folder)])
        assert errors.guarded(main_of("report")) == errors.OK
    assert [content(folder) for folder in folders] == before
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_named_experiment_asks_what_its_sweep_asks(ran, command):
    code, out, _, folder = command("experiment=bloom_layouts")
    assert code == errors.OK
    assert (folder / "results.csv").read_bytes() == (ran["sweep"][-1] / "results.csv").read_bytes()
    assert out.splitlines()[-1] == f"study: {folder}"


@pytest.mark.slow
def test_a_grid_is_one_study_with_a_row_for_each_combination(command):
    code, out, err, folder = command("grid=bloom_384")
    asked = itertools.product((1, 2, 4, 8), (6, 12, 24, 48), (1, 2, 4, 8))
    rows = store.read(folder)
    assert (code, err) == (errors.OK, "")
    assert [(row["t"], row["p"], row["micro_batch"]) for row in rows] == list(asked)
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["kind"] == "sweep"
    assert out.splitlines()[-1] == f"study: {folder}"
