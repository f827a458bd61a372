"""What a user reads when something is wrong: one short message that names the key and what works, and exit code 2."""

import copy
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from points import plain

from pipesim import checks, compose, errors, study
from pipesim.plan.asked.space import Space

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture(autouse=True)
def fresh_environment(monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv(compose.JOBS_VARIABLE, "unset")


@pytest.fixture(scope="module")
def default():
    return plain()


def main_of(name):
    spec = importlib.util.spec_from_file_location(f"pipesim_{name}", EXPERIMENTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture(scope="module")
def run_main():
    return main_of("run")


def short(message):
    """At most a few lines, each said by us."""
    lines = message.splitlines()
    return 1 <= len(lines) <= 4 and all(line.startswith("error: ") and len(line) < 600 for line in lines)


COMMANDS = {
    "an unknown key": (["foo=1"], ["foo is no key", "parallel", "training"]),
    "an added key": (["+foo=1"], ["foo is no key", "parallel", "training"]),
    "a misspelt key": (["training.micro_bach=1"], ["training.micro_bach", "Nearest: micro_batch"]),
    "a key without its group": (["seq_length=32768"], ["seq_length is no key", "Nearest: training.seq_length."]),
    "a misspelt group": (["modle=bloom_176b"], ["modle", "cluster", "Nearest: model"]),
    "a misspelt choice": (["model=blom_176b"], ["model=blom_176b", "toy", "Nearest: bloom_176b"]),
    "a word for a number": (["parallel.t=abc"], ["parallel.t", "'abc'", "must be a whole number."]),
    "one value for a list": (
        ["experiment=plan", "task.plan.t=8"],
        ["task.plan.t=8 must be a list", "Nearest: task.plan.t=[8]"],
    ),
    "nothing for a number": (["headroom=null"], ["headroom=null cannot be null"]),
    "no share of memory": (["headroom=1.2"], ["headroom=1.2 must be a share", "Nearest: 0.1"]),
    "no word at all": (["foo"], ["foo is no override", "KEY=VALUE"]),
    "a flag that is none": (
        ["parallel.sequence_parallel=perhaps"],
        ["parallel.sequence_parallel='perhaps' must be true or false."],
    ),
    "a word for a size": (["cluster.memory_gb=big"], ["cluster.memory_gb='big' must be a number."]),
    "half a GPU": (["parallel.t=1.5"], ["parallel.t", "1.5", "must be a whole number."]),
    "not a number of sequences": (
        ["training.micro_batch=nan"],
        ["training.micro_batch", "nan", "must be a whole number."],
    ),
    "no value": (["training.micro_batch=???"], ["training.micro_batch is missing"]),
    "no choice": (["grid=null"], ["grid"]),
    "no model": (["model=null"], ["model"]),
    "a reference to nothing": (["model.hidden=${nope}"], ["model.hidden", "nope"]),
    "a key inside nothing": (["model.moe.experts=4"], ["model.moe", "choose that first"]),
    "several values": (["parallel.t=1,2"], ["parallel.t=1,2 holds several values: add -m", "parallel.t=[1,2]"]),
    "a range of values": (["parallel.t=range(1,4)"], ["parallel.t=range(1,4)", "add -m"]),
    "a mapping for nothing": (["model.moe={experts: 4, top_k: 1, ffn: 8, foo: 2}"], ["model.moe"]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_config_that_cannot_be_composed_is_a_mistake(run_main, monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.setattr(sys, "argv", ["run.py", f"study.dir={tmp_path / 'study'}", *arguments])
    assert errors.guarded(run_main) == errors.MISTAKE
    out, err = capsys.readouterr()
    assert short(err), err
    assert [word for word in words if word not in err] == []
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hiden: 64", ["model/mine.yaml: model.hiden is no key", "Nearest: hidden"]),
        ("layers: forty", ["model/mine.yaml: model.layers", "'forty'"]),
    ],
)
@pytest.mark.parametrize("swept", [(), ("parallel.t=1,2", "-m")], ids=["alone", "swept"])
def test_a_mistake_in_ones_own_file_names_file_and_key(run_main, monkeypatch, capsys, tmp_path, line, words, swept):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(f"name: mine\n{line}\n")
    monkeypatch.setattr(sys, "argv", ["run.py", "--config-dir", str(tmp_path), "model=mine", *swept])
    assert errors.guarded(run_main) == errors.MISTAKE
    err = capsys.readouterr().err
    assert short(err), err
    assert [word for word in words if word not in err] == []


VALUES = [
    ({"parallel.t": 0}, ["parallel.t=0 must lie between 1", "Nearest: 1"]),
    ({"parallel.p": -3}, ["parallel.p=-3 must lie between 1", "Nearest: 1"]),
    ({"parallel.d": 0}, ["parallel.d=0"]),
    ({"parallel.zero": 4}, ["parallel.zero=4 must be 0, 1, 2 or 3"]),
    ({"training.recompute": "ful"}, ["training.recompute='ful'", "selective", "Nearest: full"]),
    ({"training.micro_batch": 10**30}, [f"training.micro_batch={10**30}", f"Nearest: {checks.MAX_INT}"]),
    ({"parallel.t": 10**30}, [f"parallel.t={10**30}"]),
    ({"model.layers": 10**30}, [f"model.layers={10**30}"]),
    ({"model.layers": 10**12}, ["model.layers=1000000000000"]),
    ({"training.global_batch": 10**12}, ["1500000000000 actions", "Nearest: num_microbatches=833333"]),
    ({"cluster.gpus": 0}, ["cluster.gpus=0"]),
    ({"cluster.memory_gb": math.nan}, ["cluster.memory_gb=nan must be a finite number above 0"]),
    ({"cluster.memory_gb": math.inf}, ["cluster.memory_gb=inf must be a finite number above 0"]),
    ({"cluster.inter_node_gb_per_s": 0.0}, ["cluster.inter_node_gb_per_s=0.0"]),
    ({"cluster.inter_node_latency_us": -1.0}, ["cluster.inter_node_latency_us=-1.0", "at least 0"]),
    ({"cluster.peak_tflops": {"bf16": -312.0}}, ["cluster.peak_tflops.bf16=-312.0"]),
    ({"costs.hbm_efficiency": 1.5}, ["costs.hbm_efficiency=1.5 must lie between 0 and 1"]),
    ({"stack.dp_overlap": math.nan}, ["stack.dp_overlap=nan"]),
    ({"model.heads": 0}, ["model.heads=0"]),
    ({"model.heads": 13}, ["model.heads=13 does not divide model.hidden=14336", "8 or 14"]),
    ({"model.kv_heads": 3}, ["model.kv_heads=3", "Nearest: 2 or 4"]),
    ({"training.precision": "int8"}, ["training.precision='int8'", "bf16, fp16, fp8"]),
    ({"training.precision": "fp8"}, ["training.precision=fp8", "bf16"]),
    ({"schedule.name": "2f2b"}, ["schedule.name='2f2b'", "1f1b"]),
    ({"lang": "fr"}, ["lang='fr'", "en, zh"]),
    ({"training.global_batch": 2047}, ["training.global_batch=2047", "Nearest: training.global_batch=2032 or 2048"]),
    ({"parallel.d": 9}, ["= 432 needs more than cluster.gpus=384", "Nearest: parallel.d=8"]),
    ({"parallel.t": 512}, ["cluster.gpus=384"]),
    ({"parallel.p": 73, "cluster.gpus": 584}, ["73 stages", "72 units", "Nearest: parallel.p=72"]),
    ({"parallel.p": 5, "costs.kind": "lecture"}, ["parallel.p=5", "72 units", "parallel.p=4 or 6", "lecture"]),
    ({"parallel.partition": [36, 35], "parallel.p": 2}, ["places 71 units", "Nearest: [36, 36]"]),
    ({"parallel.partition": 1.5}, ["parallel.partition=1.5"]),
    ({"parallel.e": 2}, ["parallel.e=2", "mixture of experts", "parallel.e=1"]),
    ({"study.dir": "{file}/study"}, ["{file}", "study.dir=PATH"]),
    ({"study.dir": "{file}"}, ["study.dir={file} exists"]),
    ({"study.dir": "{full}"}, ["study.dir={full} exists and is not an empty folder"]),
    ({"study.dir": "{file}-" + 400 * "x"}, ["{file}-xxx", "too long"]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), VALUES, ids=lambda value: str(value)[:60])
def test_a_value_that_cannot_work_is_a_mistake(default, capsys, tmp_path, settings, words):
    there = tmp_path / "there"
    there.mkdir()
    places = {"file": there / "file", "full": there}
    places["file"].write_text("mine")
    asked = copy.deepcopy(default) | {"study": default["study"] | {"dir": str(tmp_path / "study")}}
    for key, value in settings.items():
        *groups, last = key.split(".")
        inner = asked[groups[0]] if groups else asked
        inner[last] = value.format(**places) if isinstance(value, str) else value
    assert errors.guarded(lambda: study.run([Space(base=asked)], [], False)) == errors.MISTAKE
    out, err = capsys.readouterr()
    assert short(err), err
    assert [word for word in words if word.format(**places) not in err] == []
    assert out == ""
    assert sorted(tmp_path.rglob("*")) == [there, there / "file"]
    assert places["file"].read_text() == "mine"


@pytest.mark.slow
def test_the_command_says_a_mistake_in_one_line_and_exits_with_2(tmp_path):
    here = tmp_path / "empty"
    here.mkdir()
    done = subprocess.run(
        [sys.executable, EXPERIMENTS / "run.py", "model=blom", f"study.dir={tmp_path / 'study'}"],
        cwd=here, capture_output=True, text=True, check=False, env=os.environ | {"HYDRA_FULL_ERROR": "0"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert short(done.stderr)
    assert "model=blom is no choice" in done.stderr
    assert list(tmp_path.rglob("*")) == [here]


@pytest.mark.parametrize("manifest", [None, "", "[]", '{"kind"', "{}"])
def test_report_says_that_a_folder_holds_no_study(monkeypatch, capsys, tmp_path, manifest):
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path)])
    assert errors.guarded(main_of("report")) == errors.MISTAKE
    err = capsys.readouterr().err
    assert short(err)
    assert str(tmp_path) in err
    assert "study" in err
    assert sorted(tmp_path.iterdir()) == before


def test_report_says_that_there_is_no_such_folder(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path / "nowhere")])
    assert errors.guarded(main_of("report")) == errors.MISTAKE
    assert f"{tmp_path / 'nowhere'} holds no study" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def failing(error):
    def main():
        raise error

    return main


def test_exit_codes_tell_success_from_failure_from_a_mistake(capsys):
    assert errors.guarded(lambda: None) == 0
    os.environ["HYDRA_FULL_ERROR"] = "0"
    assert errors.guarded(failing(errors.FailedPoints("1 of 2 points failed"))) == 1
    os.environ["HYDRA_FULL_ERROR"] = "0"
    assert errors.guarded(failing(checks.Invalid(["a is wrong.", "b is wrong."]))) == 2
    os.environ["HYDRA_FULL_ERROR"] = "0"
    assert errors.guarded(failing(KeyboardInterrupt())) == 130
    err = capsys.readouterr().err
    assert err.splitlines() == [
        "error: 1 of 2 points failed",
        "error: a is wrong.",
        "error: b is wrong.",
        "stopped; nothing was written.",
    ]


@pytest.mark.parametrize("fault", [ValueError("from a library"), KeyError("t"), AssertionError("ours"), RuntimeError()])
def test_a_fault_of_ours_is_never_called_the_users_mistake(fault):
    assert errors.explain(fault) is None
    with pytest.raises(type(fault)):
        errors.guarded(failing(fault))


def test_everything_is_raised_when_hydra_is_asked_for_full_errors(monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(checks.Invalid):
        errors.guarded(failing(checks.Invalid(["a is wrong."])))


def test_what_was_meant_is_suggested_first_and_nothing_if_nothing_is_like_it():
    options = ["bloom_176b", "gpt3_175b", "llama3_70b", "toy"]
    assert checks.suggest("blom_176b", options).startswith(" Nearest: bloom_176b")
    assert checks.suggest("gpt3_157b", options).startswith(" Nearest: gpt3_175b")
    assert checks.suggest("qqq", options) == ""


@given(st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=5), st.data())
def test_an_option_itself_is_always_the_nearest(options, data):
    wanted = data.draw(st.sampled_from(sorted(options)))
    assert checks.suggest(wanted, sorted(options)).startswith(f" Nearest: {wanted}")
