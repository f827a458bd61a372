"""Declared grids: ranges, divisors, zipped axes, conditions; what a grid refuses; what a dry run says."""

import itertools
import json

import pytest
import yaml
from test_sweeper import command, runner  # noqa: F401

from pipesim import dry_run, errors
from pipesim.checks import Invalid, divisors
from pipesim.plan.asked import axes
from pipesim.plan.asked.space import Axis, Space
from pipesim.results import store


def values(rule):
    (axis,) = axes.read({"parallel.t": rule})
    return [value for (value,) in axis.values]


def test_rules_are_spelt_out_with_both_ends():
    assert values({"range": [3, 7]}) == [3, 4, 5, 6, 7]
    assert values({"range": [1, 9, 4]}) == [1, 5, 9]
    assert values({"log2": [1, 64]}) == [1, 2, 4, 8, 16, 32, 64]
    assert values({"divisors_of": 12}) == [1, 2, 3, 4, 6, 12]
    assert values([4, None, 4]) == [4, None, 4]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"range": [7, 3]}, ["parallel.t", "[7, 3]", "Nearest: [3, 7]"]),
        ({"range": [1]}, ["[first, last, step]"]),
        ({"range": [1, 5, 0]}, ["0 must be a whole number"]),
        ({"range": [1, 2.5]}, ["2.5 must be a whole number"]),
        ({"range": [1, 10**9]}, ["1,000,000,000 values", "at most"]),
        ({"log2": [1, 48]}, ["48 is no power of two", "Nearest: 32 or 64"]),
        ({"log2": [1, 4, 2]}, ["[first, last]"]),
        ({"log": [1, 4]}, ["must be one of", "Nearest: log2"]),
        ({"divisors_of": 0}, ["0 must be a whole number"]),
        ({"range": [1, 2], "log2": [1, 2]}, ["must be one of"]),
        ([], ["has no values"]),
        (4, ["must be a list", "Nearest: [4]"]),
        (None, ["must be a list"]),
    ],
)
def test_what_is_no_axis_is_refused_with_its_key(asked, words):
    with pytest.raises(Invalid) as caught:
        values(asked)
    assert all(word in str(caught.value) for word in ["grid.axes: parallel.t", *words])


def test_zipped_axes_need_a_value_for_each_key_and_no_key_twice():
    (axis,) = axes.read({"training.micro_batch, training.global_batch": [[1, 512], [2, 1024]]})
    assert axis.keys == ("training.micro_batch", "training.global_batch")
    assert axis.values == ((1, 512), (2, 1024))
    with pytest.raises(Invalid) as caught:
        axes.read({"a, b": [[1, 2], [3]], "c, d": 4, "a": [1], "x": [1], "x ,y": [[1, 2]]})
    assert [problem.split(":")[1].strip() for problem in caught.value.problems] == [
        "a, b",
        "c, d",
        "x has more than one axis.",
    ]


@pytest.fixture
def grid(command, tmp_path):  # noqa: F811
    """Runs a grid of one's own: exit code, output, error, and the rows if a study was written."""
    folder = tmp_path / "own" / "grid"
    folder.mkdir(parents=True)

    def run(content, *arguments):
        (folder / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", **content}), encoding="utf-8")
        code, out, err, study = command("--config-dir", str(folder.parent), *arguments, "grid=mine")
        return code, out, err, store.read(study) if study.exists() else None

    return run


def test_a_grid_asks_every_combination_that_its_conditions_keep(grid):
    axes = {
        "model": ["bloom_176b", "gpt3_175b"],
        "parallel.t": {"log2": [1, 16]},
        "parallel.p": {"divisors_of": "model.layers"},
        "training.micro_batch, training.global_batch": [[1, 512], [2, 1024]],
    }
    code, _, err, rows = grid({"axes": axes, "where": ["t <= gpus_per_node", "t * p <= 96"]})
    wanted = {
        (model, t, p, *batch)
        for model, layers in (("bloom_176b", 70), ("gpt3_175b", 96))
        for t, p in itertools.product([1, 2, 4, 8], divisors(layers))
        for batch in ([1, 512], [2, 1024])
        if t * p <= 96
    }
    found = [(row["model"], row["t"], row["p"], row["micro_batch"], row["global_batch"]) for row in rows]
    assert (code, err) == (errors.OK, "")
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_the_divisors_of_an_axis_follow_it(grid):
    axes = {"cluster.gpus": [6, 10], "parallel.p": {"divisors_of": "cluster.gpus"}}
    _, _, _, rows = grid({"axes": axes}, "model=toy", "parallel=one_gpu")
    assert sorted(row["p"] for row in rows) == sorted([1, 2, 3, 6, 1, 2, 5, 10])


def test_a_grid_keeps_what_is_asked_and_tells_how_many_were_evaluated(grid):
    axes = {"parallel.t": {"log2": [1, 8]}, "parallel.p": [6, 12, 24], "training.micro_batch": [1, 2, 4]}
    code, out, err, rows = grid({"axes": axes, "keep": {"top": 2, "by": "-mfu", "pareto": False}})
    assert (code, err) == (errors.OK, "")
    assert [row["fits"] for row in rows] == [True, True]
    assert "Of 36 points that were evaluated" in " ".join(out.split())
    assert "the table keeps 2: the 2 with the largest mfu of each model and cluster that fit." in " ".join(out.split())


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ({"axes": {"parallel.t": [1, 2]}}, ["parallel.t=4"], ["parallel.t=4", "axis of grid.name=mine"]),
        ({"axes": {"a b, parallel.p": [[1, 2]], "schedule": ["gpipe"]}}, ["schedule=1f1b"], ["schedule=1f1b", "axis"]),
        ({"axes": {"parallel.t": [1, 2]}}, ["-m", "parallel.p=1,2"], ["grid", "without -m"]),
        ({"axes": {"parallel.t": [1, 2]}, "where": "t <= gpu_per_node"}, [], ["t <= gpu_per_node", "Nearest: gpus_per_node"]),
        ({"axes": {"parallel.t": [1, 2]}, "where": 7}, [], ["grid.where=7", "condition"]),
        ({"axes": {"parallel.t": {"divisors_of": "cluster.gpu"}}}, [], ["cluster.gpu has no value", "Nearest: cluster.gpus"]),
        ({"axes": {"parallel.t": {"divisors_of": "cluster.name"}}}, [], ["cluster.name", "whole number"]),
        ({"axes": {"parallel.t": ["many"]}}, [], ["parallel.t", "many"]),
        ({"axes": {"parallel.tt": [1]}}, [], ["parallel.tt"]),
        ({"axes": {"parallel.t": [1]}, "keep": {"topp": 3}}, [], ["topp"]),
        ({"axes": {"parallel.t": [1]}, "keep": {"by": "step_time"}}, [], ["grid.keep.by", "Nearest: step_time_s"]),
        ({"axes": {"model": ["gpt3_157b"]}}, [], ["gpt3_157b", "Nearest: gpt3_175b"]),
    ],
)  # fmt: skip
def test_a_grids_mistakes_are_told_and_nothing_is_written(grid, content, arguments, words):
    code, out, err, rows = grid(content, *arguments)
    assert (code, out, rows) == (errors.MISTAKE, "", None), err
    assert all(word in err for word in words), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [["grid=bloom_384"], ["-m", "parallel.t=1,2,4,8", "parallel.p=6,12,24,48", "training.micro_batch=1,2,4,8"]],
)
def test_a_dry_run_counts_what_the_sweep_would_hold_and_writes_nothing(command, tmp_path, arguments):  # noqa: F811
    arguments = [*arguments, "cluster.gpus=192"]
    code, out, _, folder = command(*arguments, "study.dry_run=true")
    assert (code, folder.exists()) == (errors.OK, False)
    assert "Dry run: 64 points" in out
    command(*arguments)
    rows = store.read(folder)
    for status, word in (("ok", "fit"), ("infeasible", "do not fit"), ("invalid", "break rules")):
        count = sum(row["status"] == status for row in rows)
        assert any(
            line.split()[:-3] == word.split() and line.split()[-3] == str(count) for line in out.splitlines()
        ) == bool(count)
    (line,) = [line for line in out.splitlines() if "does not divide cluster.gpus" in line]
    assert line.split()[-3] == str(
        sum("cluster.gpus" in (row["reason"] or "") for row in rows if row["status"] == "invalid")
    )


def test_a_dry_run_of_a_demo_is_refused(command):  # noqa: F811
    code, _, err, _ = command("demo=bubble", "study.dry_run=true")
    assert code == errors.MISTAKE
    assert "study.dry_run" in err


def test_too_many_combinations_are_sampled_the_same_each_time():
    base = {"demo": None, "task": None}
    large = Space(base=base, axes=tuple(Axis(keys=(key,), values=tuple((n,) for n in range(1000))) for key in "abc"))
    seen = []

    def evaluate(part):
        seen.append(part)
        size = sum(each.stop - each.start for each in part)
        return dry_run.pa.table(
            {
                "status": ["ok", "invalid"] * (size // 2),
                "reason": [None, "parallel.t=5 is odd. Nearest: 4."] * (size // 2),
            }
        )

    counts = dry_run.count([large, large], evaluate)
    assert counts.combinations == 2 * 10**9
    assert counts.looked_at == dry_run.PARTS * dry_run.PART
    assert counts.rules == {"parallel.t is odd": counts.looked_at // 2}
    first = seen.copy()
    seen.clear()
    dry_run.count([large, large], evaluate)
    assert seen == first
    pieces = {(id(each.space), each.start) for part in first for each in part}
    assert len(pieces) >= counts.looked_at // dry_run.PIECE
    assert "a sample of 1,048,576" in json.dumps(dry_run.document(counts).sections[0].blocks[0])


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (
            "parallel.t=5 x parallel.p=6 = 30 does not divide cluster.gpus=384, so no whole parallel.d is left. "
            "Nearest: parallel.t=4 or 8. "
            "parallel.e=2 needs a mixture of experts, and model.name=toy has none. Nearest: parallel.e=1.",
            [
                "parallel.t x parallel.p does not divide cluster.gpus, so no whole parallel.d is left",
                "parallel.e needs a mixture of experts, and model.name has none",
            ],
        ),
        (
            "parallel.partition=[1, 2] has 2 entries, but parallel.p=3 makes 3 stages. Nearest: [1, 1, 1].",
            ["parallel.partition has … entries, but parallel.p makes … stages"],
        ),
    ],
)
def test_rules_are_told_without_the_values_that_break_them(reason, found):
    assert dry_run.rules(reason) == found
