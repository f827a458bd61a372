"""What a run says at its end, the help, and the completion of words: what they tell to type works."""

import doctest
import shlex
import sys

import pytest
from hydra._internal.utils import get_args_parser
from points import plain
from test_errors import main_of

from pipesim import checks, compose, config, errors, helping, legality, next_steps
from pipesim.point_id import ASKED
from pipesim.report.say import english

ROW = {
    "t": 2, "p": 24, "d": 8, "c": 1, "e": 1, "v": None, "zero": 1, "sequence_parallel": False, "micro_batch": 2,
    "global_batch": 2048, "seq_length": 2048, "recompute": "full", "precision": "bf16", "attention": "unfused",
    "model": "bloom_176b", "cluster": "jean_zay_a100", "stack": "bigscience", "schedule": "1f1b", "costs": "full", "settings": "",
}  # fmt: skip


def told(kind, *overrides, best=ROW):
    about = {"kind": kind, "overrides": list(overrides)}
    if kind in ("plan", "task"):
        about["config"] = plain(*overrides)
    return [command for _, command in next_steps.commands(about, best, config.CONF_DIR, english)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("layout", []),
        (
            "layout",
            ["model=llama3_70b", "cluster=dgx_h100", "parallel.p=4", "parallel.t=8", "parallel.d=2", "cluster.gpus=64"],
        ),
        ("sweep", ["parallel.t=1,2,4,8", "parallel.p=6,12,24", "study.dir=/x", "training.micro_batch=range(1,3)"]),
        ("sweep", ["schedule=1f1b,vpp", "parallel.sequence_parallel=true,false", "training.dropout=true"]),
        ("plan", ["experiment=plan", "stack=megatron_lm", "study.dir=/x", "task.plan.best=3"]),
        ("plan", ["experiment=plan", "stack=ideal"]),
        ("demo", ["demo=timelines"]),
        ("task", ["experiment=validate"]),
        ("task", ["experiment=explain", "parallel.t=2", "study.dir=/x"]),
        ("task", ["experiment=explain", "stack=ideal", "parallel=one_gpu", "model=toy"]),
        ("task", ["task=partition", "task.partition.recompute=true"]),
        (
            "task",
            [
                "experiment=launch",
                "task.launch.to=megatron_lm",
                "cluster=dgx_h100",
                "model=llama3_8b",
                "parallel=megatron",
                "training=megatron",
            ],
        ),
        ("task", ["experiment=goodput"]),
        ("task", ["experiment=jitter", "task.jitter.samples=8"]),
    ],
)
def test_every_command_that_is_told_composes(kind, words):
    commands = told(kind, *words)
    assert 2 <= len(commands) <= 3
    for command in commands:
        python, script, *typed = shlex.split(command)
        assert (python, script.split("/")[0]) == ("python", "experiments")
        if script.endswith("report.py") or typed == ["--help"]:
            continue
        first = [word.split(",")[0] for word in compose.with_canonical_schedules(typed) if word != "-m"]
        assert not any("study." in word for word in first)
        asked = plain(*first)
        if asked["demo"] is None and "-m" not in typed:
            legality.resolve(config.build(asked))


def test_a_layout_is_explained_and_the_best_of_a_plan_is_started():
    assert told("layout", "parallel.t=8", "lang=zh")[0] == "python experiments/run.py experiment=explain parallel.t=8"
    assert not any("explain" in command for command in told("layout", "experiment=bloom_layouts"))
    explain, launch, compare = told("plan", "experiment=plan", "stack=megatron_lm", "task.plan.best=3")
    assert explain.startswith(
        "python experiments/run.py experiment=explain stack=megatron_lm parallel.t=2 parallel.p=24"
    )
    assert launch == explain.replace("=explain", "=launch")
    assert "report.py" in compare
    assert not any("launch" in command for command in told("plan", "experiment=plan", "stack=ideal"))


def test_tasks_lead_to_each_other_with_the_same_words():
    run = "python experiments/run.py experiment="
    assert told("task", "experiment=explain", "parallel.t=8")[:2] == [
        f"{run}launch parallel.t=8",
        f"{run}partition parallel.t=8",
    ]
    assert told("task", "experiment=goodput", "study.dir=/x")[0] == f"{run}jitter"
    assert told("task", "experiment=jitter")[0] == told("task", "experiment=launch", "task.launch.to=nanotron")[0]
    assert not any("launch" in command for command in told("task", "experiment=goodput", "stack=ideal"))
    assert not any("demo=" in command for command in told("task", "experiment=validate"))


def test_groups_that_are_still_blooms_are_told_to_who_asks_for_another_model():
    def told_first(*words, kind="layout"):
        about = {"kind": kind, "overrides": list(words)}
        return next_steps.lines(about, ROW, config.CONF_DIR, "en")[0]

    said = told_first("model=llama3_70b", "training=megatron", kind="sweep")
    assert "parallel=bloom, stack=bigscience." in said
    assert said.endswith("parallel=megatron stack=megatron_lm.")
    for words in ([], ["parallel.t=8"], ["model=llama3_70b", "parallel=megatron", "training=megatron", "stack=nemo"]):
        assert "BLOOM" not in told_first(*words)
    for group, name in next_steps.BLOOMS.items():
        default = (config.CONF_DIR / "config.yaml").read_text()
        assert f"- {group}: {name}\n" in default


def test_the_best_of_a_sweep_is_asked_alone():
    assert (
        told("sweep", "parallel.t=1,2", "parallel.p=6,24")[0] == "python experiments/run.py parallel.t=2 parallel.p=24"
    )
    assert "run.py parallel" not in told("sweep", "grid=bloom_384")[0]
    assert "run.py stack" not in told("sweep", "stack.slack=0.1,0.2")[0]


def test_files_that_are_there_are_named(tmp_path):
    (tmp_path / "report.html").touch()
    text = "\n".join(next_steps.lines({"kind": "demo", "overrides": []}, None, tmp_path, "zh"))
    assert "report.html  用浏览器打开" in text
    assert "report.md" not in text
    assert "lang=zh" in text


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(*words, **environment):
        for name, value in {"HYDRA_FULL_ERROR": "0", compose.JOBS_VARIABLE: "unset", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        try:
            code = errors.guarded(main_of("run"))
        except SystemExit as left:
            code = left.code
        assert not code
        return capsys.readouterr().out

    return run


def test_the_help_fits_80_columns_and_names_every_group_and_choice(printed):
    text = printed("--help", COLUMNS="80")
    assert max(map(len, text.splitlines())) <= 80
    for group in [path for path in config.CONF_DIR.iterdir() if path.is_dir() and not path.name.startswith("_")]:
        assert f"\n  {group.name}" in text or f", {group.name}" in text or group.name == "task", group.name
        for choice in group.glob("*.yaml"):
            assert choice.stem in text
    assert set(ASKED) <= set(text.replace(":", " ").split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python run.py mod", {"model.", "model="}),
        ("python run.py model=blo", {"model=bloom_176b"}),
        ("python run.py training.re", {"training.recompute=", "training.recompute_layers="}),
        ("python run.py -m parallel.t=1,2 schedule=zb_", {"schedule=zb_h1", "schedule=zb_h2"}),
    ],
)
def test_words_complete_in_bash(printed, line, words):
    assert set(printed("-sc", "query=bash", COMP_LINE=line, COMP_POINT=str(len(line))).split()) == words


def test_the_completion_can_be_installed(printed):
    assert "complete -o nospace" in printed("-sc", "install=bash")


def test_examples_of_small_functions_hold():
    for module in (helping, checks, compose):
        assert doctest.testmod(module).failed == 0


def asked_after(about):
    return [command for _, command in next_steps.commands(about, ROW, config.CONF_DIR, english)]


def test_printed_commands_find_the_users_own_configs():
    about = {
        "kind": "layout", "overrides": ["stack=mine"], "config": {"task": None}, "own_configs": ["--config-dir", "my configs"],
    }  # fmt: skip
    asked = asked_after(about)
    assert all("run.py --config-dir 'my configs' " in command for command in asked[:-1])
    assert "config-dir" not in asked_after({**about, "own_configs": []})[0]


def test_after_a_calibration_the_next_command_asks_with_what_was_fitted(tmp_path):
    for group in ("stack", "cluster"):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").touch()
    (tmp_path / "conf" / "cluster" / "ours.yaml").touch()  # a copy, which was chosen and not fitted
    words = ["experiment=calibrate", "measurements=runs.csv", "model=llama3_8b", "stack=megatron_lm"]
    conf = {"task": {"calibrate": {"name": "mine"}}, "stack": {"framework": None}, "parallel": {"p": 1}}
    about = {"kind": "task", "overrides": words, "config": conf}
    found = [command for _, command in next_steps.commands(about, None, tmp_path, english)]
    run, chosen = f"python experiments/run.py --config-dir {tmp_path}/conf", "model=llama3_8b cluster=mine stack=mine"
    assert found == [f"{run} {chosen}", f"{run} experiment=plan {chosen}", f"{run} experiment=explain {chosen}"]


@pytest.mark.parametrize(
    "words",
    [
        ["model=toy", "--config-dir", "a=b", "parallel.t=2"],
        ["--config-dir", "a=b", "model=toy", "parallel.t=2"],
        ["model=toy", "-m", "parallel.t=2", "-cd", "a=b", "--info"],
        ["--info", "model=toy", "-cd", "a=b", "parallel.t=2"],
        ["--info", "all", "model=toy", "~grid", "-cd=a=b", "-c", "job", "parallel.t=2"],
    ],
)
def test_flags_may_stand_anywhere_among_overrides(words):
    found = get_args_parser().parse_args(compose.with_flags_last(words))
    assert [word for word in found.overrides if word != "~grid"] == ["model=toy", "parallel.t=2"]
    assert found.config_dir == "a=b"
    assert found.multirun == ("-m" in words)
    assert found.info == ("all" if "--info" in words else None)


def test_the_runner_takes_flags_anywhere(printed, tmp_path):
    assert "dgx_h100" in printed(
        "cluster=dgx_h100", "--config-dir", str(tmp_path), "model=toy", "--cfg", "job", "parallel.p=2"
    )
