"""Sweeps in parts: the same bytes however often they were stopped and wherever they were made, and nothing done twice."""

import functools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from points import plain

from pipesim import engines, errors, study, sweep_part, sweeping
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Axis, Space
from pipesim.results import folder as folders
from pipesim.results import kept_rows, store
from pipesim.results.folder import StudyFolderError

RUN = Path(__file__).parents[1] / "experiments" / "run.py"
REAL = sweep_part.make


@pytest.fixture(scope="module")
def default():
    return plain()


def make_small(patch):
    patch.setattr(sweeping, "PART", 4)
    patch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    make_small(monkeypatch)


def sweep_in(top, default, name="study", t=(1, 2, 4, 8), overrides=("parallel.t=1,2,4,8",), **keys):
    place = {"dir": None if "resume" in keys else str(top / name)} | keys.pop("study", {})
    base = default | {"study": default["study"] | place} | keys
    axes = (
        Axis(keys=("parallel.t",), values=tuple((each,) for each in t)),
        Axis(keys=("parallel.p",), values=((6,), (12,), (24,))),
    )
    return study.run([Space(base=base, axes=axes)], overrides, swept=True)


@pytest.fixture
def sweep(default, tmp_path):
    """``sweep(resume=…, t=(1, 2, 4, 8), …)``: 12 points, three parts, bound for ``tmp_path/study``."""
    return functools.partial(sweep_in, tmp_path, default)


@pytest.fixture(scope="module")
def whole(default, tmp_path_factory):
    """The content of the study of a sweep that nothing stopped."""
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return content(sweep_in(tmp_path_factory.mktemp("whole"), default))


def content(folder):
    """Every file; of the manifest what is neither time nor place."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    for key in ("written", "machine"):
        del manifest[key]
    for key in ("study", "engine"):
        del manifest["first_point"][key]
    return files, manifest


@pytest.fixture
def stops_after(monkeypatch):
    """``stops_after(n)``: Ctrl-C while the part after the n-th is made; ``None``: never. Gives the list of parts made."""

    def stop(count):
        made = []

        def make(part):
            if len(made) == count:
                raise KeyboardInterrupt
            made.append(part.number)
            return REAL(part)

        monkeypatch.setattr(sweeping, "make", make)
        return made

    return stop


@pytest.mark.slow
def test_a_sweep_stopped_after_any_part_goes_on_to_the_same_bytes(whole, sweep, stops_after, tmp_path):
    for count in (1, 2):
        stops_after(count)
        with pytest.raises(errors.Stopped, match=f"{count} of 3 parts are kept") as stopped:
            sweep(f"stopped-{count}")
        assert stopped.value.folder == tmp_path / f"stopped-{count}"
        made = stops_after(None)
        folder = sweep(resume=str(stopped.value.folder))
        assert made == [0, 1, 2][count:]
        assert content(folder) == whole
        assert not (folder / folders.UNFINISHED).exists()


def test_a_sweep_stopped_before_anything_is_kept_leaves_nothing(sweep, stops_after, tmp_path):
    stops_after(0)
    with pytest.raises(KeyboardInterrupt):
        sweep()
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_of_one_part_is_whole_or_not_there(sweep, stops_after, tmp_path):
    stops_after(0)
    with pytest.raises(KeyboardInterrupt):
        sweep(t=(1,))
    assert list(tmp_path.iterdir()) == []
    stops_after(None)
    assert sweep(t=(1,), resume=str(tmp_path / "study")) == tmp_path / "study"


def spoil(path, how):
    content = path.read_bytes()
    path.write_bytes({"truncated": content[:-9], "empty": b"", "one bit": content[:99] + bytes([content[99] ^ 1]) + content[100:],
                      "text": b"PAR1"}[how])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["truncated", "empty", "one bit", "text", "missing", "of another part", "no word of it"]
)
def test_only_a_damaged_or_foreign_part_is_made_anew(whole, sweep, stops_after, tmp_path, how):
    stops_after(2)
    with pytest.raises(errors.Stopped):
        sweep()
    parts = tmp_path / "study" / folders.UNFINISHED / "parts"
    first, second = parts / "000000000.parquet", parts / "000000001.parquet"
    if how == "missing":
        first.unlink()
    elif how == "of another part":
        for ending in (".parquet", ".json"):
            first.with_suffix(ending).write_bytes(second.with_suffix(ending).read_bytes())
    elif how == "no word of it":
        first.with_suffix(".json").write_text("{")
    else:
        spoil(first, how)
    made = stops_after(None)
    assert content(sweep(resume=str(tmp_path / "study"))) == whole
    assert made == [0, 2]


def test_another_question_is_refused_with_what_differs_unless_said_otherwise(sweep, stops_after, tmp_path):
    stops_after(2)
    with pytest.raises(errors.Stopped):
        sweep()
    longer = {"t": (1, 2, 4, 8, 16), "overrides": ("parallel.t=1,2,4,8,16",), "resume": str(tmp_path / "study")}
    with pytest.raises(Invalid, match=r"points \(12 there, 15 now\).*parallel\.t=1,2,4,8,16 now.*resume_anyway=true"):
        sweep(**longer)
    stops_after(None)
    assert len(store.read(sweep(**longer, resume_anyway=True))) == 15


def test_another_version_is_refused_and_made_anew_only_if_said(sweep, stops_after, tmp_path, monkeypatch):
    stops_after(2)
    with pytest.raises(errors.Stopped):
        sweep()
    own = sweeping.version()
    monkeypatch.setattr(sweeping, "version", lambda: "another")
    resume = str(tmp_path / "study")
    with pytest.raises(Invalid, match=rf"code of pipesim \({own} there, another now\)"):
        sweep(resume=resume)
    made = stops_after(None)
    folder = sweep(resume=resume, resume_anyway=True)
    assert made == [2]
    assert json.loads((folder / "manifest.json").read_text())["code"] == sorted([own, "another"])


def test_a_whole_study_is_not_made_again_and_another_question_does_not_get_its_answer(sweep, stops_after, capsys):
    folder = sweep()
    before = content(folder)
    made = stops_after(None)
    assert sweep(resume=str(folder)) == folder
    assert made == []
    assert capsys.readouterr().out.splitlines()[-1] == f"study: {folder}"
    with pytest.raises(Invalid, match="another question"):
        sweep(resume=str(folder), t=(1, 2, 4))
    assert content(folder) == before


def test_one_process_at_a_time_writes_a_study(sweep, stops_after, tmp_path):
    stops_after(1)
    with pytest.raises(errors.Stopped):
        sweep()
    resume = str(tmp_path / "study")
    with (
        folders.kept_study(tmp_path, "", None, resume),
        pytest.raises(StudyFolderError, match=rf"process {os.getpid()}"),
    ):
        sweep(resume=resume)
    stops_after(None)
    assert sweep(resume=resume) == tmp_path / "study"


def test_a_folder_that_was_begun_is_not_begun_again(sweep, stops_after, tmp_path):
    stops_after(1)
    with pytest.raises(errors.Stopped):
        sweep()
    with pytest.raises(StudyFolderError, match=r"begun: resume=PATH goes on"):
        sweep()


def test_what_holds_something_else_is_not_resumed(sweep, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(StudyFolderError, match="no study that was begun"):
        sweep(resume=str(tmp_path / "mine"))


def test_only_sweeps_are_resumed(default, tmp_path):
    with pytest.raises(Invalid, match="only a sweep is gone on with"):
        study.run([Space(base=default | {"resume": str(tmp_path)})], [], False)


@pytest.fixture
def t2_fails(monkeypatch):
    """The rows of t = 2 are failed ones, as those of points that raise."""
    real = sweep_part.grid.evaluate

    def evaluate(slices, details):
        table = real(slices, details)
        rows = table.to_pylist()
        for row in rows:
            if row["t"] == 2:
                try:
                    raise ZeroDivisionError("too thin")
                except ZeroDivisionError:
                    logging.getLogger("pipesim.plan.grid").exception("point %s failed", row["point_id"])
                row |= {"status": "failed", "reason": "ZeroDivisionError: too thin"}
        return table.from_pylist(rows, table.schema)

    monkeypatch.setattr(sweep_part, "grid", SimpleNamespace(evaluate=evaluate))


@pytest.mark.usefixtures("t2_fails")
def test_failures_are_rows_with_tracebacks_in_a_file_and_a_sweep_says_so(sweep, tmp_path):
    with pytest.raises(
        errors.FailedPoints, match=r"3 of 12 points failed; .*results\.csv, tracebacks in .*failures\.log"
    ):
        sweep()
    rows = store.read(tmp_path / "study")
    assert [row["status"] == "failed" for row in rows] == [row["t"] == 2 for row in rows]
    log = (tmp_path / "study" / "failures.log").read_text()
    assert log.count("Traceback") == 3
    assert log.count("ZeroDivisionError: too thin") == 3
    assert json.loads((tmp_path / "study" / "manifest.json").read_text())["counts"]["failed"] == 3
    with pytest.raises(errors.FailedPoints):
        sweep(resume=str(tmp_path / "study"))


@pytest.mark.usefixtures("t2_fails")
def test_fail_fast_stops_at_the_first_failed_part_and_keeps_those_before(sweep, stops_after, tmp_path):
    made = stops_after(None)
    with pytest.raises(errors.Stopped, match=r"point .* failed: ZeroDivisionError: too thin") as stopped:
        sweep(fail_fast=True)
    assert stopped.value.code == errors.FAILED
    assert made == [0]
    (row,) = store.read(tmp_path / "study" / folders.UNFINISHED / "failed")
    assert (row["t"], row["p"], row["status"]) == (2, 6, "failed")
    log = (tmp_path / "study" / folders.UNFINISHED / "failed" / "failures.log").read_text()
    assert log.count("Traceback") == 1
    with pytest.raises(errors.Stopped):
        sweep("other", t=(1, 16, 2), fail_fast=True)
    made.clear()
    with pytest.raises(errors.Stopped):
        sweep(t=(1, 16, 2), fail_fast=True, resume=str(tmp_path / "other"))
    assert made == [1]


@pytest.mark.usefixtures("t2_fails")
def test_fail_fast_keeps_the_row_of_a_sweep_of_one_part_too_and_is_gone_on_with(sweep, tmp_path):
    with pytest.raises(errors.Stopped, match="Its row and traceback: ") as stopped:
        sweep(t=(2,), fail_fast=True)
    folder = tmp_path / "study"
    assert (stopped.value.code, stopped.value.folder) == (errors.FAILED, folder)
    assert len(store.read(folder / folders.UNFINISHED / "failed")) == 1
    with pytest.raises(errors.FailedPoints, match="3 of 3 points failed"):
        sweep(t=(2,), resume=str(folder))
    assert len(store.read(folder)) == 3


@pytest.mark.slow
def test_where_nothing_fails_fail_fast_changes_no_row(whole, sweep):
    assert content(sweep(fail_fast=True))[0] == whole[0]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "asked"), [("MOST_WITH_DETAILS", "details"), ("MOST_IN_CSV", "csv")])
def test_a_large_sweep_leaves_out_what_is_large_and_says_how_to_have_it(sweep, monkeypatch, capsys, limit, asked):
    monkeypatch.setattr(sweeping, limit, 11)
    folder = sweep()
    assert f"study.{asked}=true" in capsys.readouterr().out
    assert json.loads((folder / "manifest.json").read_text())[asked] is False
    wanted = sweep("wanted", study={asked: True})
    assert f"study.{asked}" not in capsys.readouterr().out
    assert (folder / "results.csv").exists() == (asked == "details")
    assert (wanted / "results.csv").exists()
    assert {row["stage_units"] is None for row in store.read(wanted)} == {False}


def test_the_report_of_a_large_sweep_is_made_from_its_best_rows_and_again_from_its_table(sweep, monkeypatch):
    monkeypatch.setattr(kept_rows, "MOST", 5)
    monkeypatch.setattr(kept_rows, "MOST_REFUSED", 1)
    folder = sweep()
    before = content(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "12 layouts of" in text
    best = max((row for row in store.read(folder) if row["fits"]), key=lambda row: row["tokens_per_s"])
    assert f"The fastest layout that fits is t{best['t']} p{best['p']}" in text
    (folder / "report.md").unlink()
    study.render_again(folder)
    assert content(folder) == before


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes", "ray", "dask", "submitit"])
def test_every_engine_gives_the_same_bytes(whole, sweep, default, name):
    for package in engines.ENGINES[name]:
        pytest.importorskip(package)
    engine = default["engine"] | {"name": name, "workers": 2, "cluster": "local"}
    assert content(sweep("there", engine=engine)) == whole


COMMAND = """
import sys, runpy
from pipesim import sweeping
from pipesim.report import figures
sweeping.PART = 8
figures.draw = lambda view, language: "<svg/>"
sys.argv = ["run.py", *sys.argv[1:]]
runpy.run_path({run!r}, run_name="__main__")
"""
GRID = (
    "-m",
    "parallel.t=1,2,4,8",
    "parallel.p=2,4,6,8,12,24",
    "training.micro_batch=1,2,4,8",
    "training.recompute=full,selective",
)


def started(*arguments):
    """A command in a group of its own, as a terminal starts it."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(run=str(RUN)), *GRID, *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | {"HYDRA_FULL_ERROR": "0"},
        start_new_session=True,
    )  # fmt: skip


def wait_for_parts(folder, count):
    deadline = time.monotonic() + 120
    while len([*(folder / folders.UNFINISHED / "parts").glob("*.json")]) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "how"),
    [
        ("inline", "SIGKILL"), ("inline", "SIGINT"), ("processes", "SIGKILL"), ("processes", "SIGTERM"), ("ray", "SIGINT"),
        ("dask", "SIGINT"),
    ],
)  # fmt: skip
def test_a_command_ended_by_a_signal_goes_on_to_the_same_bytes(tmp_path, how, engine):
    for package in engines.ENGINES[engine]:
        pytest.importorskip(package)
    stopped = started(f"study.dir={tmp_path / 'study'}", f"engine={engine}")
    wait_for_parts(tmp_path / "study", 2)
    start = time.monotonic()
    if how == "SIGINT":
        os.killpg(stopped.pid, signal.SIGINT)  # Ctrl-C goes to the workers as well
    else:
        stopped.send_signal(getattr(signal, how))
    _, err = stopped.communicate()
    if how == "SIGKILL":
        assert stopped.returncode == -signal.SIGKILL
    else:
        assert stopped.returncode == errors.STOPPED, err
        within_s = 5 if engine in ("ray", "dask") else 2  # one or two on a machine that does nothing else
        assert time.monotonic() - start < within_s
        assert f"resume={tmp_path / 'study'}" in err.splitlines()[-1]
        assert "Traceback" not in err
    assert not (tmp_path / "study" / "manifest.json").exists()
    for place in (f"resume={tmp_path / 'study'}", f"study.dir={tmp_path / 'whole'}"):
        done = started(place)
        done.communicate()
        assert done.returncode == 0
    assert content(tmp_path / "study")[0] == content(tmp_path / "whole")[0]
