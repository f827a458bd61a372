"""The one way through: every asked point is a row, a study is written whole, and a failure is said after it is written."""

import copy
import errno
import itertools
import json
import re

import pytest

from pipesim import compose, config, errors, study
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Space
from pipesim.point_id import point_id
from pipesim.results import store
from pipesim.results.folder import Staging, StudyFolderError
from pipesim.results.schema import COLUMNS


@pytest.fixture(scope="module")
def default():
    with compose.composer() as (make, _):
        return config.plain(make([]))


@pytest.fixture
def asked(default, tmp_path):
    """``asked(study={...}, parallel={...}, …)``: the default with other values, bound for ``tmp_path/study``."""

    def change(**groups):
        changed = copy.deepcopy(default) | {"study": default["study"] | {"dir": str(tmp_path / "study")}}
        for group, values in groups.items():
            changed[group] = changed[group] | values if isinstance(values, dict) else values
        return changed

    return change


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")


def run(configs, overrides, swept):
    return study.run([Space(base=each) for each in configs], overrides, swept)


def evaluate(configs):
    return study.evaluate([Space(base=each) for each in configs])


def content(folder):
    """Every file of a study; of the manifest what is neither time nor place."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    assert {"written", "machine"} <= set(manifest)
    return files, {key: value for key, value in manifest.items() if key not in ("written", "machine")}


def test_a_layout_writes_its_files_and_says_where_last(asked, tmp_path, capsys):
    folder = run([asked()], ["parallel.t=4"], False)
    files, manifest = content(folder)
    assert folder == tmp_path / "study"
    assert sorted(files) == [
        "bytes.svg", "report.html", "report.md", "results.csv", "results.parquet", "schedule.csv", "seconds.svg",
        "timeline.html", "timeline.svg",
        "trace.json",
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines()[-1] == f"study: {folder}"
    assert manifest["kind"] == "layout"
    assert manifest["overrides"] == ["parallel.t=4"]
    told = asked()
    told["study"] = {key: value for key, value in told["study"].items() if not key.startswith("tracker")}
    assert manifest["config"] == told
    assert list(tmp_path.iterdir()) == [folder]


def test_the_row_of_the_default_is_what_bloom_was_trained_with(asked):
    """Le Scao et al., "BLOOM", 2022, section 3.4: t 4, p 12, d 8 on 384 A100; 2048 sequences of 2048 tokens."""
    (row,) = evaluate([asked()])
    assert list(row) == list(COLUMNS)
    assert row["status"] == "ok"
    assert row["reason"] is None
    assert (row["t"], row["p"], row["d"], row["gpus"]) == (4, 12, 8, 384)
    assert row["num_microbatches"] == 2048 // (2 * 8)
    assert row["tokens_per_s"] * row["step_time_s"] == pytest.approx(2048 * 2048)
    assert row["memory_limit_bytes"] == 80e9
    assert row["point_id"] == point_id(asked())


def test_the_same_question_gives_the_same_bytes(asked, tmp_path):
    one = run([asked()], [], False).rename(tmp_path / "one")
    two = run([asked()], [], False)
    assert content(one) == content(two)


def test_every_sweep_derives_d_and_sorts_its_rows(asked):
    layouts = list(itertools.product((8, 4, 2, 1), (24, 6, 12)))
    rows = evaluate([asked(parallel={"t": t, "p": p}) for t, p in layouts])
    assert [(row["t"], row["p"], row["d"]) for row in rows] == [(t, p, 384 // (t * p)) for t, p in sorted(layouts)]
    assert all(row["gpus"] == 384 for row in rows)
    assert {row["status"] for row in rows} == {"ok", "infeasible"}


def test_a_point_has_the_same_row_alone_and_among_others(asked):
    points = [asked(parallel={"t": t, "p": p}) for t, p in itertools.product((1, 2, 4, 8), (6, 12))]
    together = evaluate([*points, asked(parallel={"t": 7})])
    alone = [row for point in points for row in evaluate([point])]
    assert [row for row in together if row["status"] != "invalid"] == sorted(
        alone, key=lambda row: (row["t"], row["p"])
    )


def test_an_invalid_point_is_a_row_with_every_broken_rule(asked, tmp_path):
    folder = run([asked(parallel={"t": 5}), asked(parallel={"p": 7})], [], True)
    by_p, by_t = store.read(folder)
    assert (by_p["status"], by_t["status"]) == ("invalid", "invalid")
    assert "parallel.t=4 x parallel.p=7 = 28 does not divide cluster.gpus=384" in by_p["reason"]
    assert "Nearest: parallel.p=6 or 8" in by_p["reason"]
    for rule in ("= 60 does not divide cluster.gpus=384", "parallel.t=5 does not divide model.heads=112",
                 "parallel.t=5 does not divide model.ffn=57344"):  # fmt: skip
        assert rule in by_t["reason"]
    assert (by_t["t"], by_t["p"], by_t["model"], by_t["step_time_s"], by_t["fits"]) == (5, 12, "bloom_176b", None, None)
    assert by_t["reason"] in (folder / "report.md").read_text(encoding="utf-8")


def test_values_out_of_range_in_a_sweep_are_rows_too(asked):
    rows = evaluate([asked(parallel={"t": 0}), asked(training={"micro_batch": 10**30}), asked()])
    assert [row["status"] for row in rows] == ["invalid", "invalid", "ok"]
    assert "parallel.t=0 must lie between 1" in rows[0]["reason"]
    assert f"training.micro_batch={10**30}" in rows[1]["reason"]
    assert rows[1]["micro_batch"] is None


def test_a_layout_that_does_not_fit_says_by_how_many_gb(asked):
    (row,) = evaluate([asked(parallel={"t": 1, "p": 6})])
    assert row["status"] == "infeasible"
    assert row["fits"] is False
    assert row["verdict"] == "memory"
    more = row["memory_bytes"] - 80e9
    assert more > 0
    (said,) = re.findall(r"([\d.e+]+) GB more than cluster\.memory_gb=80", row["reason"])
    assert float(said) == pytest.approx(more / 1e9, rel=5e-3)
    assert f"rank {row['heaviest_rank']} needs {row['memory_bytes'] / 1e9:.1f} GB" in row["reason"]


def test_what_a_layout_needs_to_the_byte_fits_and_a_little_less_does_not(asked):
    (row,) = evaluate([asked()])
    needed_gb = row["memory_bytes"] / 1e9
    just, less = (
        evaluate([asked(cluster={"memory_gb": gb})])[0] for gb in (needed_gb * (1 + 1e-12), needed_gb * (1 - 1e-6))
    )
    assert (just["status"], less["status"]) == ("ok", "infeasible")


@pytest.fixture
def t2_breaks(monkeypatch):
    """Evaluating anything with t = 2 raises, alone or in a batch with others."""
    from pipesim.plan import grid

    real = grid.evaluate_columns

    def breaks(points, details):
        if (points.cut.t == 2).any():
            raise ZeroDivisionError("too thin")
        return real(points, details)

    monkeypatch.setattr(grid, "evaluate_columns", breaks)


@pytest.mark.usefixtures("t2_breaks", "no_figures")
def test_a_point_that_breaks_costs_its_own_row_and_is_said_once_all_is_written(asked, tmp_path, capsys):
    points = [asked(parallel={"t": t}) for t in (1, 2, 4)]
    with pytest.raises(errors.FailedPoints, match=r"1 of 3 points failed; .*results\.csv"):
        run(points, [], True)
    one, two, four = store.read(tmp_path / "study")
    assert (one["status"], two["status"], four["status"]) == ("infeasible", "failed", "ok")
    assert two["reason"] == "ZeroDivisionError: too thin"
    assert (two["t"], two["p"], two["step_time_s"]) == (2, 12, None)
    assert [four] == evaluate([asked()])
    assert {"manifest.json", "report.html", "report.md", "results.csv"} <= {
        path.name for path in (tmp_path / "study").iterdir()
    }
    assert "too thin" in (tmp_path / "study" / "report.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.splitlines()[-1] == f"study: {tmp_path / 'study'}"


@pytest.mark.usefixtures("t2_breaks")
def test_a_single_layout_that_breaks_is_a_failed_row_and_exit_code_1(asked, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert errors.guarded(lambda: run([asked(parallel={"t": 2})], [], False)) == errors.FAILED
    assert "error: 1 of 1 points failed" in capsys.readouterr().err
    (row,) = store.read(tmp_path / "study")
    assert row["status"] == "failed"


@pytest.mark.slow
def test_rendering_again_gives_the_same_bytes(asked, capsys):
    folder = run([asked()], [], False)
    before = content(folder)
    names = (
        "report.md",
        "report.html",
        "seconds.svg",
        "bytes.svg",
        "timeline.svg",
        "timeline.html",
        "trace.json",
        "schedule.csv",
    )
    for name in names:
        (folder / name).unlink()
    capsys.readouterr()
    study.render_again(folder)
    assert content(folder) == before
    assert capsys.readouterr().out.split() == [str(folder / name) for name in names]


@pytest.mark.usefixtures("t2_breaks")
def test_a_study_of_a_failed_layout_is_rendered_again_as_well(asked, tmp_path):
    with pytest.raises(errors.FailedPoints):
        run([asked(parallel={"t": 2})], [], False)
    before = content(tmp_path / "study")
    (tmp_path / "study" / "report.md").unlink()
    study.render_again(tmp_path / "study")
    assert content(tmp_path / "study") == before


def test_a_report_does_not_depend_on_where_its_study_lies(asked, tmp_path):
    one = run([asked()], [f"study.dir={tmp_path / 'study'}", "parallel.t=4"], False)
    elsewhere = asked(study={"dir": str(tmp_path / "elsewhere")})
    two = run([elsewhere], [f"study.dir={tmp_path / 'elsewhere'}", "parallel.t=4"], False)
    assert content(one)[0] == content(two)[0]
    assert "run.py parallel.t=4" in (one / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", ["store", "staging"])
def test_a_full_disk_leaves_nothing_and_is_the_users_to_solve(asked, tmp_path, monkeypatch, capsys, where):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setattr(*((store.Writer, "add") if where == "store" else (Staging, "write")), full)
    assert errors.guarded(lambda: run([asked(parallel={"t": 7})], [], True)) == errors.MISTAKE
    out, err = capsys.readouterr()
    assert "No space left on device" in err
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_single_layout_that_breaks_rules_leaves_nothing(asked, tmp_path):
    with pytest.raises(Invalid, match=r"parallel\.t=7"):
        run([asked(parallel={"t": 7})], [], False)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_folder_is_refused_and_what_it_holds_stays(asked, tmp_path):
    folder = run([asked(parallel={"t": 7})], [], True)
    before = content(folder)
    with pytest.raises(StudyFolderError, match=r"study\.dir=.* is not an empty folder"):
        run([asked(parallel={"t": 5})], [], True)
    assert content(folder) == before
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.slow
def test_without_a_folder_a_study_is_named_after_what_was_asked_and_numbered(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "_root", lambda: tmp_path / "outputs")
    unnamed, named = {"dir": None}, {"dir": None, "name": "Häuser & 试验/../x"}
    seven = asked(parallel={"t": 7}, study=unnamed)
    toy = asked(parallel={"t": 7}, study=unnamed, model={"name": "toy"})
    names = [run(configs, [], True).name for configs in ([seven], [seven], [seven, toy])]
    assert names == ["bloom_176b-sweep", "bloom_176b-sweep-2", "bloom_176b-toy-sweep"]
    assert run([asked(parallel={"t": 7}, study=named)], [], True).name == "Häuser-试验-..-x"
    assert run([asked(study=unnamed)], [], False).name == "bloom_176b-t4-p12"
    assert all(path.is_dir() and (path / "manifest.json").exists() for path in (tmp_path / "outputs").iterdir())


def test_studies_go_to_outputs_of_the_checkout_wherever_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert study._root() == config.CONF_DIR.parent / "outputs"


@pytest.mark.parametrize("key", ["lang", "study", "demo"])
def test_what_makes_a_study_one_cannot_be_swept(asked, tmp_path, key):
    other = asked(**{key: {"lang": "zh", "study": {"name": "b"}, "demo": None}[key]})
    first = asked() | ({"demo": {"timelines": None}} if key == "demo" else {})
    with pytest.raises(Invalid, match=f"{key} cannot be swept"):
        run([first, other], [], True)
    assert list(tmp_path.iterdir()) == []


def test_an_axis_without_values_asks_nothing():
    with pytest.raises(Invalid, match="no values"):
        run([], [], True)


@pytest.mark.slow
def test_pictures_for_papers_come_on_request_and_again(asked):
    folder = run([asked(study={"figures": ["svg", "png"]})], [], False)
    before = content(folder)
    assert before[0]["timeline.png"].startswith(b"\x89PNG")
    (folder / "timeline.png").unlink()
    study.render_again(folder)
    assert content(folder) == before


def test_an_unknown_format_of_pictures_is_refused(asked):
    with pytest.raises(Invalid, match=r"study\.figures='gif' must be one of svg, png, pdf"):
        run([asked(study={"figures": ["gif"]})], [], False)
