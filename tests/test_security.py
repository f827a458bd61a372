"""Hostile words, config files, names and studies: none runs code, reads the environment, or writes elsewhere."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from pipesim import compose, config, errors, inputs, safe_config, study
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Space
from pipesim.report import figures, html, markdown, terminal
from pipesim.report.sweep.page import sweep_page
from pipesim.results import folder as folders
from pipesim.results import manifest, schema, store
from pipesim.results.folder import StudyFolderError

ROOT = Path(__file__).parents[1]
PICKLES = {"execute/launch.py", "execute/workers.py", "execute/child.py"}
"""They send work to processes of their own through pipes, and read no file."""

HOSTILE_WORDS = [
    "hydra.launcher._target_=os.system",
    "hydra.sweeper._target_=os.system",
    "+hydra.callbacks.mine._target_=os.system",
    "+hydra.callbacks.mine={_target_:os.system}",
    "hydra/launcher=joblib",
    "hydra/sweeper=optuna",
    "+hydra/callbacks=mine",
    "hydra/job_logging=mine",
    "+hydra.job_logging.handlers.mine={'()':os.system}",
    "hydra.job_logging.root=null",
    "hydra.hydra_logging.version=1",
    "+hydra.job.env_set.LD_PRELOAD=/tmp/mine.so",
    "hydra.job.env_copy=[HOME]",
    "hydra.searchpath=[file:///tmp/mine]",
    "hydra.run.dir=/tmp/elsewhere",
    "hydra.sweep.dir=/tmp/elsewhere",
    "hydra.output_subdir=mine",
    "hydra.job.chdir=true",
    "+model@hydra.launcher=toy",
    "~hydra.callbacks",
    "hydra.sweeper.params={x:{_target_:os.system}}",
    "hydra.sweeper.params.x={_target_:os.system}",
    "+model._target_=os.system",
    "parallel.partition={_target_:os.system,_args_:[true]}",
    "model.name=${oc.env:HOME}",
    "study.name='${oc.env:SECRET,none}'",
    "model.name=${hydra:runtime.cwd}",
    "model.name=${now:%Y}",
    "model.name=${oc.decode:'1'}",
    "model.name=${${lang}:HOME}",
    "model.name=${oc.${lang}:HOME}",
    "model.name=a${lang}${oc.env:HOME}",
    "model.name=${oc.env:HOME",
    "model.name=\udc80",
    "model.name=" + "x" * 200_000,
    "model.name=" + "[" * 900,
]


@pytest.mark.parametrize("word", HOSTILE_WORDS, ids=lambda word: ascii(word[:50]))
def test_a_word_that_could_do_more_than_choose_a_value_is_refused(word):
    with pytest.raises(Invalid) as refused:
        safe_config.refuse_unsafe(["-m", "parallel.t=1,2", word])
    assert len(str(refused.value)) < 1000
    assert errors.explain(refused.value) == str(refused.value)


@pytest.mark.parametrize(
    "flags", [["--experimental-rerun", "x.pickle"], ["--experimental-r=x.pickle"], ["-cp", "x"], ["--config-name", "x"]]
)
def test_flags_that_load_pickles_or_another_config_are_refused(flags):
    with pytest.raises(Invalid):
        safe_config.refuse_unsafe(flags)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-m", "parallel.t=1,2", "model=toy"],
        ["-m", "hydra/sweeper=basic", "parallel.t=1,2"],
        ["hydra.mode=MULTIRUN", "+hydra.sweeper.params={parallel.t:'1,2'}"],
        ["+hydra.sweeper.params.parallel.t=1,2", "hydra.verbose=true"],
        ["model.name=${cluster.name}", "model.name='${model.layers}: ${parallel.t}'", "study.dir=C:/here"],
        ["--cfg", "job"],
    ],
)
def test_words_that_choose_values_pass(words):
    safe_config.refuse_unsafe(words)


HOSTILE_FILES = {
    "an object": "_target_: os.system\nname: mine\n",
    "an object inside": "moe: {_target_: os.system}\n",
    "an object in a list": "partition: [{_target_: os.system}]\n",
    "an escaped key": '"\\x5ftarget_": os.system\n',
    "the environment": "name: ${oc.env:HOME}\n",
    "a launcher": "# @package _global_\nhydra: {launcher: {n_jobs: 2}}\n",
    "a callback": "# @package _global_\nhydra:\n  callbacks:\n    mine: {a: 1}\n",
    "an environment": "# @package _global_\nhydra: {job: {env_set: {LD_PRELOAD: mine.so}}}\n",
    "a package of Hydra's": "# @package hydra.job.env_set\nLD_PRELOAD: mine.so\n",
    "a choice of Hydra's": "defaults:\n  - override /hydra/launcher: joblib\n",
    "a choice in a package of Hydra's": "defaults:\n  - /model@hydra.job: toy\n",
    "a choice from the environment": "defaults:\n  - /model: ${oc.env:HOME}\n",
    "a choice with a long name": "defaults:\n  - {override hydra/job_logging: mine}\n",
    "python": "!!python/object/apply:os.system ['true']\n",
    "no YAML": "a: [\n",
    "aliases of aliases": "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "deep": "a: " + "[" * 5000 + "]" * 5000 + "\n",
}


@pytest.mark.parametrize("content", HOSTILE_FILES.values(), ids=HOSTILE_FILES)
def test_a_file_of_a_users_folder_that_could_do_more_is_refused_by_its_name(tmp_path, content):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(Invalid, match=r"mine\.yaml"):
        safe_config.refuse_unsafe(["--config-dir", str(tmp_path), "experiment=mine"])


def test_a_folder_of_hydras_own_choices_is_refused(tmp_path):
    (tmp_path / "hydra" / "launcher").mkdir(parents=True)
    with pytest.raises(Invalid, match="hydra"):
        safe_config.refuse_unsafe([f"--config-d={tmp_path}"])


def test_our_own_experiments_would_pass_as_a_users():
    for group in (ROOT / "conf").iterdir():
        if group.is_dir():
            safe_config.refuse_unsafe_files(group)


@pytest.mark.slow
def test_the_runner_runs_nothing_of_a_hostile_config(tmp_path):
    folder, evidence = tmp_path / "conf", tmp_path / "ran"
    (folder / "experiment").mkdir(parents=True)
    text = (
        f"# @package _global_\nhydra:\n  callbacks:\n    mine: {{_target_: os.system, command: 'touch {evidence}'}}\n"
    )
    (folder / "experiment" / "mine.yaml").write_text(text, encoding="utf-8")
    for words in (
        ["--config-dir", str(folder), "experiment=mine"],
        [f"+hydra.callbacks.x={{_target_:os.mkdir,path:{evidence}}}"],
    ):
        done = subprocess.run(
            [sys.executable, ROOT / "experiments" / "run.py", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == errors.MISTAKE, done.stderr
        assert "_target_" in done.stderr
        assert "Traceback" not in done.stderr
        assert not evidence.exists()


@pytest.mark.parametrize(
    "hostile",
    [
        ["+parallel.partition={_target_:os.system}"],
        ["model.name=${oc.env:HOME}"],
        ["parallel.partition=[1,'${oc.env:HOME}']"],
        ["training.recompute_layers={a:${oc.env:HOME}}"],
    ],
)
def test_what_a_composed_config_holds_is_checked_before_it_is_resolved(hostile, monkeypatch):
    monkeypatch.setenv("HOME", "/a/secret/home")
    with compose.composer() as (make, _), pytest.raises(ValueError, match=r"_target_|not resolved") as refused:
        config.plain(make(hostile))
    assert "secret" not in str(refused.value)


def test_only_resolvers_that_hydra_and_omegaconf_bring_are_known():
    config.register_schema()
    assert {name for name in ("eval", "python", "shell", "pipesim") if OmegaConf.has_resolver(name)} == set()


NASTY = "\x1b[31m<script>alert(1)</script>\x07\x00\x9b2J\u202e|`x` [a](javascript:b) ${c} {{ 1 }} ]]> &amp; \"'"


@pytest.fixture(scope="module")
def hostile_row():
    with compose.composer() as (make, _):
        asked = [config.plain(make(["parallel.t=4", "parallel.p=12"]))]
    (row,) = study.evaluate([Space(base=each) for each in asked])
    texts = dict.fromkeys(("model", "cluster", "stack", "settings", "warning", "extrapolates"), NASTY)
    return row | texts, row | {"status": "invalid", "reason": NASTY, "model": NASTY, "t": 8}


def pages(rows):
    document = sweep_page(
        rows, {"kind": "sweep", "overrides": [NASTY], "versions": {"pipesim": NASTY}, "first_point": {}}
    )
    drawn = figures.figures(document)
    out = io.StringIO()
    terminal.print_document(document, Console(file=out, force_terminal=True, no_color=True, width=200))
    return html.to_html(document, drawn), markdown.to_markdown(document), drawn, out.getvalue()


@pytest.mark.slow
def test_no_page_obeys_a_name(hostile_row):
    page, text, drawn, shown = pages(list(hostile_row))
    for each in (page, text, *drawn.values()):
        assert not set(each) & {"\x1b", "\x07", "\x00", "\x9b", "\u202e"}
    assert not {"\x07", "\x00", "\x9b"} & set(shown)
    assert "\x1b[31m" not in shown
    assert "<script>alert" not in page
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert not re.search(r"(?<!\\)\]\(javascript", text)
    for svg in drawn.values():
        ElementTree.fromstring(svg)
        assert "<script" not in svg


def test_an_error_message_is_shown_without_what_a_terminal_obeys(capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def failing():
        raise Invalid([f"model.name={NASTY}\r is wrong."])

    assert errors.guarded(failing) == errors.MISTAKE
    assert not {"\x1b", "\x07", "\x00", "\x9b", "\r"} & set(capsys.readouterr().err)


@pytest.fixture(scope="module")
def real_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies") / "real"
    folder.mkdir()
    with compose.composer() as (make, _):
        asked = [config.plain(make(["parallel.p=12", f"parallel.t={t}"])) for t in (4, 8)]
    store.write(schema.table(study.evaluate([Space(base=each) for each in asked])), folder)
    about = manifest.about("sweep", [], asked[0])
    (folder / "manifest.json").write_text(manifest.complete(about, folder), encoding="utf-8")
    return folder


@pytest.fixture
def a_study(real_study, tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    for name in ("results.parquet", "results.csv", "manifest.json"):
        (folder / name).write_bytes((real_study / name).read_bytes())
    return folder


def test_a_study_with_links_is_not_written_through_them(a_study, tmp_path, monkeypatch):
    outside = tmp_path / "outside.txt"
    outside.write_text("mine", encoding="utf-8")
    for name in ("report.md", "report.html", ".report.md.fresh", ".report.html.fresh"):
        (a_study / name).symlink_to(outside)
    monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
    study.render_again(a_study)
    assert outside.read_text(encoding="utf-8") == "mine"
    assert not (a_study / "report.md").is_symlink()
    assert (a_study / "report.md").read_text(encoding="utf-8").startswith("# ")


def test_a_study_whose_figures_lie_elsewhere_is_not_written_there(a_study, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (a_study / "figures").symlink_to(outside)
    monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
    with pytest.raises(StudyFolderError, match="does not lie in"):
        study.render_again(a_study)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "figures/../../evil", "..", "a/../../b"])
def test_no_name_leads_out_of_a_study(tmp_path, name):
    folder = tmp_path / "study"
    folder.mkdir()
    with pytest.raises(StudyFolderError):
        folders.inside(folder, name)
    with pytest.raises(StudyFolderError):
        folders.Staging(folder).write(name, "evil")


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "null", "{}", '"kind"', "[" * 100_000, '{"kind": ["a"]}', '{"kind": "demo"}', '{"kind": "demo", "config": {}}',
        '{"kind": "sweep"}', '{"kind": "../../evil"}', '{"kind": "layout", "config": {"_target_": "os.system"}}', '{"kind": NaN}',
    ],
)  # fmt: skip
def test_a_hostile_manifest_gives_a_sentence(a_study, content):
    (a_study / "manifest.json").write_text(content, encoding="utf-8")
    before = sorted(path.name for path in a_study.parent.iterdir())
    with pytest.raises(ValueError, match=r"study") as refused:
        study.render_again(a_study)
    assert errors.explain(refused.value)
    assert sorted(path.name for path in a_study.parent.iterdir()) == before


def test_a_table_of_rows_that_make_no_sense_gives_a_sentence(a_study):
    store.write(schema.table([{"status": "ok", "model": NASTY}]), a_study)
    with pytest.raises(StudyFolderError, match="no report can be made"):
        study.render_again(a_study)


@pytest.mark.parametrize("special", ["/dev/zero", "fifo", "folder", "sparse"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path, special):
    path = Path(special) if special.startswith("/") else tmp_path / special
    if special == "fifo":
        os.mkfifo(path)
    elif special == "folder":
        path.mkdir()
    elif special == "sparse":
        with path.open("wb") as file:
            file.truncate(2**40)
    with pytest.raises((inputs.Unreadable, OSError)):
        inputs.read_text(path)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    import gzip

    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(80):
            file.write(bytes(2**20))
    with pytest.raises(inputs.Unreadable, match="more than the"):
        inputs.read_text(path)


FILES = sorted([*(ROOT / "pipesim").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")])


def _unsafe(path):
    """What a file imports or calls that loads pickles or runs text."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    if path.as_posix().rpartition("pipesim/")[2] in PICKLES:
        imported = set()
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {each.id for each in calls if isinstance(each, ast.Name)}
    methods = {each.attr for each in calls if isinstance(each, ast.Attribute)}
    return (
        imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
        | called & {"eval", "exec", "compile", "__import__", "instantiate"}
        | methods & {"unsafe_load", "full_load", "read_pickle", "register_new_resolver", "register_resolver"}
    )


def test_our_code_unpickles_no_file_and_evaluates_no_text():
    assert {str(path.relative_to(ROOT)): found for path in FILES if (found := _unsafe(path))} == {}


def test_a_manifest_holds_nothing_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PIPESIM_SECRET", "s3cr3t-value")
    with compose.composer() as (make, _):
        about = manifest.about("layout", [], config.plain(make([])))
    assert "s3cr3t-value" not in manifest.complete(about, tmp_path)
    assert json.loads(manifest.complete(about, tmp_path))["kind"] == "layout"


def test_own_files_are_those_chosen_and_those_of_their_group_that_they_name(tmp_path):
    for name, text in {
        "model/mine": "name: mine", "model/other": "name: other", "cluster/both": "parts: [{cluster: ours, nodes: 2}]",
        "cluster/ours": "defaults: [base, _self_]", "cluster/base": "name: base", "stack/base": "name: base",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    words = ["model=mine", "cluster=both", "model.layers=2", "stack=../model/other", "costs=full"]
    found = safe_config.own_files(["--config-dir", str(tmp_path), *words], words)
    assert sorted(found) == [
        f"conf/{name}.yaml" for name in ("cluster/base", "cluster/both", "cluster/ours", "model/mine")
    ]
    assert found["conf/model/mine.yaml"] == b"name: mine"
    assert safe_config.own_files(words, words) == {}
