"""Studies compared: what is joined, what changed and why, how sure, and what is said of folders that hold no study."""

import copy
import json
import shutil
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import plain
from test_errors import main_of

from pipesim import comparing, errors, study
from pipesim.plan.asked.space import Space
from pipesim.report.compare.joined import changes, join, reads
from pipesim.report.compare.page import compare_page
from pipesim.report.document import Chart, Table
from pipesim.report.words import TIME_WORDS
from pipesim.results import measured, schema, store
from pipesim.results.folder import StudyFolderError


@pytest.fixture(scope="module")
def default():
    return plain()


@pytest.fixture(scope="module")
def studies(default, tmp_path_factory):
    """Folders: ``a``, ``b`` of other constants and with another layout, ``more`` on twice the GPUs, ``old`` of version 1."""
    top = tmp_path_factory.mktemp("studies")

    def make(name, layouts, **groups):
        points = []
        for t, p in layouts:
            point = copy.deepcopy(default)
            for group, values in {"study": {"dir": str(top / name)}, "parallel": {"t": t, "p": p}, **groups}.items():
                point[group] = point[group] | values
            points.append(Space(base=point))
        study.run(points, [f"parallel.t={','.join(str(t) for t, _ in layouts)}", "parallel.p=12,24"], True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
        make("a", [(2, 12), (4, 12), (4, 24), (5, 12)])
        make("b", [(2, 12), (4, 12), (4, 24), (8, 12)], stack={"backward_launch_us": 100.0, "device_context_gb": 1.0})
        make("more", [(2, 12), (4, 12), (4, 24)], cluster={"gpus": 768})
    shutil.copytree(top / "a", top / "old")
    table = pq.read_table(top / "old" / store.PARQUET).drop_columns(["communication", "fixes", "flop_convention"])
    pq.write_table(table.replace_schema_metadata(None), top / "old" / store.PARQUET)
    return top


def page(top, *names):
    return compare_page([comparing.read(top / name, name) for name in names], comparing.KEYS)


def tables(document):
    return {b.title: b for section in document.sections for b in section.blocks if isinstance(b, Table)}


def texts(document):
    return "\n".join(b for section in document.sections for b in section.blocks if isinstance(b, str))


def joined(top, one, other):
    return join(comparing.read(top / one, one).rows, comparing.read(top / other, other).rows, comparing.KEYS)


def test_a_study_compared_with_itself_has_not_changed(studies):
    both = joined(studies, "a", "a")
    assert len(both.before) == 4
    assert (both.apart, len(both.new), len(both.gone)) == ({}, 0, 0)
    assert not changes(both)["changed"].any()
    assert "4 layouts are in both, 4 the same and 0 changed; 0 new, 0 gone." in texts(page(studies, "a", "a"))


def test_what_only_one_study_asked_is_new_or_gone(studies):
    both = joined(studies, "a", "b")
    assert [(row.t, row.p) for row in both.new.itertuples()] == [(8, 12)]
    assert [(row.t, row.p) for row in both.gone.itertuples()] == [(5, 12)]
    assert both.before["t"].tolist() == both.after["t"].tolist() == [2, 4, 4]


def test_the_cause_is_the_item_that_moved_most_and_items_add_up_to_the_change(studies):
    both = joined(studies, "a", "b")
    moved = changes(both)
    assert moved["changed"].all()
    for before, after, told in zip(
        both.before.to_dict("records"), both.after.to_dict("records"), moved.itertuples(), strict=True
    ):
        by_item = {item: after[f"{item}_s"] - before[f"{item}_s"] for item in TIME_WORDS}
        change = after["step_time_s"] - before["step_time_s"]
        assert sum(by_item.values()) == pytest.approx(change)
        assert change < 0
        assert told.time_item == min(by_item, key=by_item.get)
        assert told.time_item_s == by_item[told.time_item]
        assert (told.memory_item, told.memory_item_bytes) == ("context", pytest.approx(-11e9))
        assert told.speed_up == pytest.approx(before["step_time_s"] / after["step_time_s"])


def test_on_twice_the_gpus_layouts_are_joined_without_the_d_that_follows(studies):
    both = joined(studies, "a", "more")
    assert "d" not in both.keys
    assert len(both.before) == 3
    assert (both.after["d"] == 2 * both.before["d"]).all()
    assert "Only in a: 1 layout" in tables(page(studies, "a", "more"))


def test_rows_asked_twice_are_joined_in_their_order():
    rows = pd.DataFrame({"t": [1, 1, 2], "step_s": [1.0, 2.0, 3.0]})
    both = join(rows, rows, ["t"])
    assert both.before["step_s"].tolist() == both.after["step_s"].tolist() == [1.0, 2.0, 3.0]


def test_what_is_missing_in_both_is_equal():
    rows = pd.DataFrame({"t": [1, 2], "v": pd.array([None, 2], pd.Int64Dtype())})
    assert len(join(rows, rows, ["t", "v"]).before) == 2


POSITIVE = st.floats(0.01, 100.0)


@given(POSITIVE, POSITIVE, st.floats(1.001, 2.0), st.floats(1.001, 2.0))
def test_a_speed_up_is_told_exactly_where_the_intervals_do_not_overlap(one, other, wide, wider):
    side = pd.DataFrame({"status": ["ok"], "step_s": [one], "lo_s": [one / wide], "hi_s": [one * wide]})
    after = pd.DataFrame({"status": ["ok"], "step_s": [other], "lo_s": [other / wider], "hi_s": [other * wider]})
    told = changes(join(side, after, [])).iloc[0]
    overlap = side.lo_s[0] <= after.hi_s[0] and after.lo_s[0] <= side.hi_s[0]
    if abs(one / other - 1) > 1e-6 and abs(told.lo - 1) > 1e-9 and abs(told.hi - 1) > 1e-9:
        assert (told.reads == "not distinguishable") == overlap
        assert overlap or told.reads == ("faster" if other < one else "slower")


def test_without_an_interval_nothing_is_called_distinguishable():
    assert reads([2.0, 1.0, np.nan], [np.nan] * 3, [np.nan] * 3).tolist() == ["no interval", "same", ""]


def test_the_page_says_winners_ranks_config_and_command(studies):
    told = page(studies, "a", "b")
    found = tables(told)
    assert [row[2] for row in found["The fastest that fits, of each model and cluster"].rows] == ["a", "b"]
    keys = {row[0]: row[1:] for row in found["Config keys that differ"].rows}
    assert keys["stack.backward_launch_us"] == ("2460.0", "100.0")
    assert keys["parallel.t"] == ("2,4,4,5", "2,4,4,8")
    assert "stack has one name and different values" in texts(told)
    (chart,) = (block for section in told.sections for block in section.blocks if isinstance(block, Chart))
    assert len(chart.marks) == 3
    ranks = found["Ranks of what runs in both and is among the first 10 in either"]
    assert {row[1] for row in ranks.rows} <= {1, 2, 3}


def test_definitions_that_differ_and_changed_tables_are_said(studies, tmp_path):
    top = tmp_path / "top"
    shutil.copytree(studies, top)
    about = json.loads((top / "b" / "manifest.json").read_text())
    about |= {"versions": about["versions"] | {"pipesim": "9.9"}, "kept": "Kept: the best 3."}
    (top / "b" / "manifest.json").write_text(json.dumps(about))
    table = store.read_table(top / "b" / store.PARQUET)
    at = table.schema.get_field_index("flop_convention")
    table = table.set_column(at, "flop_convention", pa.array(["kaplan"] * len(table)))
    pq.write_table(table, top / "b" / store.PARQUET)
    said = texts(page(top, "a", "b"))
    assert "pipesim 0.1.0, 9.9 made them" in said
    assert "different conventions (a: palm; b: kaplan)" in said
    assert "the table of b is not the one that its manifest lists" in said
    assert "b holds only some of its points" in said
    assert "Kept: the best 3." in said


def test_a_table_of_an_older_version_is_compared_and_it_is_said(studies):
    said = texts(page(studies, "old", "a"))
    assert "4 layouts are in both, 4 the same" in said
    assert f"the table of old has version 1 of the schema ({schema.VERSION} is today's)" in said


def test_several_runs_give_their_median_and_spread(studies, tmp_path):
    ran = {"x": 2.0, "y": 3.0, "z": 2.2}
    for name, seconds in ran.items():
        shutil.copytree(studies / "a", tmp_path / name)
        (row, *_) = store.read(tmp_path / name)
        took = dict.fromkeys(measured.COLUMNS, 0.0) | {
            "point_id": row["point_id"], "agrees": True, "measured_makespan_s": seconds,
            "measured_makespan_lo_s": 0.9 * seconds, "measured_makespan_hi_s": 1.1 * seconds,
        }  # fmt: skip
        measured.write([took], tmp_path / name)
    (row,) = tables(page(tmp_path, *ran))["Measured steps, over the studies that ran them"].rows
    assert row[1:] == (3, 2.2, 2.0, 3.0, pytest.approx(1.0 / 2.2), 2.0, 3.0, 2.2)


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
        monkeypatch.setattr(sys, "argv", ["report.py", *map(str, arguments)])
        return errors.guarded(main_of("report")), *capsys.readouterr()

    return run


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_comparison_lies_beside_the_first_study_and_is_the_same_again(studies, tmp_path, command):
    top = tmp_path / "top"
    shutil.copytree(studies, top)
    code, out, err = command(top / "a", top / "b")
    assert (code, err) == (0, "")
    folder = top / "compare-a-b"
    assert out.splitlines()[-1] == f"comparison: {folder}"
    before = content(folder)
    assert {"report.html", "report.md", "comparison.json", "figures/before-and-after-1.svg"} == set(before)
    command(top / "a", top / "b")
    assert content(folder) == before
    assert str(tmp_path) not in "".join(text.decode() for text in before.values())
    (folder / "comparison.json").write_text("mine")
    command(top / "a", top / "b")
    assert (folder / "comparison.json").read_text() == "mine"
    assert content(top / "compare-a-b-2") == before
    assert command(top / "a", top / "b", "--out", folder)[0] == errors.MISTAKE
    assert command(top / "a", top / "b", "--out", tmp_path / "x" / "y")[0] == 0
    assert content(tmp_path / "x" / "y") == before


def test_names_that_obey_nobody_show_as_text(studies, tmp_path, command):
    hostile = tmp_path / "<script>alert(1)<‮b>[31m"
    shutil.copytree(studies / "a", hostile)
    assert command(hostile, hostile, "--out", tmp_path / "out")[0] == 0
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert "‮" not in html


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda f: (f / "results.parquet").write_bytes(b"PAR1"), "results.parquet cannot be read"),
        (lambda f: (f / "results.parquet").unlink(), "results.parquet cannot be read"),
        (lambda f: (f / "manifest.json").write_text('{"kind": "sweep"}'), "see its overrides, versions"),
        (lambda f: (f / "manifest.json").write_text("{"), "holds no study"),
        (
            lambda f: (f / "manifest.json").write_text('{"kind": [], "overrides": 3, "versions": {}, "config": 1}'),
            "see its kind",
        ),
        (lambda f: (f / "measured.parquet").write_bytes(b"x"), "measured.parquet cannot be read"),
        (lambda f: pq.write_table(pa.table({"point_id": ["x"]}), f / "measured.parquet"), "has other columns"),
        (lambda f: pq.write_table(pa.table({"a": [1]}), f / "results.parquet"), "results.parquet cannot be read"),
    ],
)
def test_a_damaged_study_is_the_users_mistake_in_one_sentence(studies, tmp_path, command, spoil, word):
    shutil.copytree(studies / "a", tmp_path / "a")
    spoil(tmp_path / "a")
    code, out, err = command(studies / "b", tmp_path / "a", "--out", tmp_path / "out")
    assert (code, out) == (errors.MISTAKE, "")
    assert word in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_nearest_study_is_named(studies):
    for wrong, word in (
        (studies / "moer", f"there is no such folder. Nearest: {studies / 'more'}"),
        (studies / "a" / "report.html", f"it is a file. Nearest: {studies / 'a'}"),
        (studies, f"Nearest: {studies / 'a'} or {studies / 'b'} or {studies / 'more'}"),
    ):
        with pytest.raises(StudyFolderError, match="holds no study") as error:
            comparing.found(wrong)
        assert word in str(error.value)


def test_a_study_that_was_stopped_says_how_to_go_on(tmp_path):
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(StudyFolderError, match="resume="):
        comparing.found(tmp_path)
