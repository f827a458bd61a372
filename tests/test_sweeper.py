"""Sweeps: configs that equal Hydra's own, composed as rarely as possible, and what a sweep refuses."""

import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from points import configs

from pipesim import compose, config, errors
from pipesim.checks import Invalid
from pipesim.plan.asked.space import Space
from pipesim.results import store

RUN = Path(__file__).parents[1] / "experiments" / "run.py"


@pytest.fixture(scope="module")
def hydra():
    with compose.composer() as (make, loader):
        yield make, loader


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("pipesim_runner", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def command(runner, monkeypatch, capsys, tmp_path):
    """Runs the runner in this process, without figures: exit code, standard output and error, the study's folder."""

    def run(*arguments):
        study_dir = tmp_path / "study"
        if not any(each.startswith("study.dir=") for each in arguments):
            arguments = (*arguments, f"study.dir={study_dir}")
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setenv(compose.JOBS_VARIABLE, "unset")
        monkeypatch.setattr(GlobalHydra.instance(), "hydra", None)
        monkeypatch.setattr("pipesim.report.figures.draw", lambda view, language: "<svg/>")
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        code = errors.guarded(runner.main)
        out, err = capsys.readouterr()
        return code, out, err, study_dir

    return run


AXES = {
    "group choices": (["model=toy", "parallel.p=3"], {"schedule": ["gpipe", "naive"], "parallel.t": ["1", "2"]}),
    "lists, null, booleans, keys that a choice brought": (
        ["model=mixtral_8x7b", "parallel.p=2", "parallel.d=3"],
        {"parallel.partition": ["even", "[17, 17]"], "parallel.d": ["8", "null"], "parallel.sequence_parallel": ["true", "FALSE"],
         "model.moe.top_k": ["1", "8"], "model.ffn": ["5", "null"]},
    ),
    "text and numbers in any spelling": (
        [],
        {"model.name": ["two words", "'a, b'"], "cluster.name": ['"it\'s"', r"a\,b"], "study.name": ["'null'", "'试验'"],
         "cluster.memory_gb": ["1e2", "8"], "model.source": ["12", "1e3"], "stack.dp_overlap": ["0.5", "1"],
         "cluster.peak_tflops.bf16": ["1_000", "7"], "training.seq_length": ["null", "1024"]},
    ),
    "references": ([], {"model.name": ["a", "${cluster.name}"], "cluster.name": ["b", "c"]}),
    "mappings": ([], {"cluster.peak_tflops": ["{bf16: 1}", "{fp16: 2}"]}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fixed", "axes"), AXES.values(), ids=AXES)
def test_swept_configs_are_those_that_hydra_composes(hydra, fixed, axes):
    """Jobs of a sweep share a composition; the last one shows whether anything is left of those before it."""
    found = configs(compose.expand(*hydra, fixed, axes))
    assert len(found) == math.prod(len(values) for values in axes.values())
    last = [f"{key}={values[-1]}" for key, values in axes.items()]
    assert found[-1] == config.plain(hydra[0]([*fixed, *last]))


def test_a_sweep_composes_once_for_each_combination_of_group_choices(hydra):
    composed = []

    def counting(overrides):
        composed.append(overrides)
        return hydra[0](overrides)

    axes = {
        "parallel.t": [str(t) for t in range(1, 11)],
        "schedule": ["gpipe", "1f1b"],
        "parallel.p": [str(p) for p in range(1, 16)],
    }
    spaces = compose.expand(counting, hydra[1], ["parallel.d=1"], axes)
    assert composed == [["parallel.d=1", "schedule=gpipe"], ["parallel.d=1", "schedule=1f1b"]]
    assert [[axis.keys for axis in space.axes] for space in spaces] == [[("parallel.t",), ("parallel.p",)]] * 2
    asked = [(each["schedule"]["name"], each["parallel"]["t"], each["parallel"]["p"]) for each in configs(spaces)]
    assert sorted(asked) == sorted(itertools.product(["gpipe", "1f1b"], range(1, 11), range(1, 16)))
    assert len(asked) == 300


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))


@given(st.one_of(VALUES, st.lists(VALUES), st.lists(st.lists(st.integers()))))
@example([1, [2.5, None], True])
@example("gpipe")
def test_a_value_typed_out_is_read_back_by_hydra(value):
    assert OverridesParser.create().parse_override(f"key={compose.typed(value)}").value() == value


@pytest.mark.parametrize("text", ["two words", "a,b", "it's", "试验"])
def test_any_text_in_a_grid_is_typed_so_that_hydra_reads_it_back(text):
    assert OverridesParser.create().parse_override(f"model.name={compose.typed(text)}").value() == text


def test_group_choices_are_swept_as_values_are(command):
    code, out, _, folder = command("-m", "model=llama3_70b,gpt3_175b", "schedule=gpipe,1f1b")
    rows = store.read(folder)
    assert code == errors.OK
    assert {(row["model"], row["schedule"]) for row in rows} == set(
        itertools.product(["llama3_70b", "gpt3_175b"], ["gpipe", "1f1b"])
    )
    assert len(rows) == 4
    assert out.splitlines()[-1] == f"study: {folder}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["grid=bloom_384"], ["grid", "without -m"]),
        (["lang=en,zh"], ["lang cannot be swept"]),
        (["study.name=a,b"], ["study cannot be swept"]),
        (["parallel.t=interval(1,4)"], ["parallel.t", "interval", "range"]),
        (["model=toy,gpt3_157b"], ["model=gpt3_157b", "Nearest: gpt3_175b"]),
        (["hydra/sweeper=basic", "parallel.t=1,abc"], ["parallel.t", "abc", "must be a whole number"]),
    ],
)
def test_what_cannot_be_swept_is_refused_with_a_word_and_leaves_nothing(command, tmp_path, arguments, words):
    code, out, err, _ = command("-m", *arguments)
    assert code == errors.MISTAKE
    assert all(word in err for word in words)
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_place_of_a_study_cannot_be_swept(command, tmp_path):
    code, _, err, _ = command("-m", f"study.dir={tmp_path / 'a'},{tmp_path / 'b'}")
    assert code == errors.MISTAKE
    assert "study cannot be swept" in err
    assert list(tmp_path.iterdir()) == []


def test_of_several_values_for_one_key_the_last_counts(command):
    _, _, _, folder = command("-m", "parallel.t=5,7", "parallel.t=7", "parallel.p=5,7")
    assert [(row["t"], row["p"]) for row in store.read(folder)] == [(7, 5), (7, 7)]


def test_jobs_of_another_sweeper_are_put_together_in_their_order(tmp_path):
    for number, t in ((11, 4), (2, 1)):
        space = {"base": {"t": t}, "axes": [], "where": []}
        job = {"spaces": [space], "overrides": [f"parallel.t={t}", "lang=en"], "swept": True}
        (tmp_path / f"{number:09d}.json").write_text(json.dumps(job))
    spaces = [Space(base={"t": 1}), Space(base={"t": 4})]
    assert compose.recorded(tmp_path) == (spaces, ["parallel.t=1,4", "lang=en"], True)


def test_a_mistake_in_any_job_is_said_once_and_stops_them_all(tmp_path):
    (tmp_path / "0.json").write_text('{"spaces": [], "overrides": [], "swept": true}')
    for number in (1, 2):
        (tmp_path / f"{number}.json").write_text('{"problems": ["no such thing"]}')
    with pytest.raises(Invalid) as caught:
        compose.recorded(tmp_path)
    assert caught.value.problems == ["no such thing"]


def test_without_jobs_nothing_was_asked(tmp_path):
    assert compose.recorded(tmp_path) is None
