"""Points evaluated as columns are what each is alone: rules, reasons and every number, to the last bit."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import default

from pipesim import compose, config, legality
from pipesim.checks import Invalid
from pipesim.launch import rules
from pipesim.plan import grid
from pipesim.plan.asked.space import Axis, Slice, Space
from pipesim.specs import ParallelLayout, Point

LAW = settings(deadline=None, max_examples=30)
AXES: dict[str, list[Any]] = {
    "training.recompute": ["none", "selective", "full"], "parallel.zero": [0, 1, 3], "parallel.sequence_parallel": [False, True],
    "parallel.t": [1, 2, 3, 4, 8], "parallel.p": [1, 2, 4, 5, 8], "parallel.c": [1, 2], "parallel.d": [None, 1, 2, 6, 16],
    "parallel.e": [1, 2], "parallel.v": [None, 2], "training.micro_batch": [1, 2, 3], "training.global_batch": [64, 96, 768, 5000],
    "training.seq_length": [None, 1024],
}  # fmt: skip
ASKED = {
    "llama3_8b": ("1f1b", "gpipe", "interleaved_1f1b", "zb_h1"), "mixtral_8x7b": ("1f1b", "zbv", "dualpipe"),
    "bloom_176b": ("1f1b", "naive"),
}  # fmt: skip


def space(model: str, schedule: str) -> Space:
    words = [
        f"model={model}",
        f"schedule={schedule}",
        "cluster=dgx_h100",
        "cluster.gpus=64",
        "parallel=megatron",
        "training=megatron",
    ]
    with compose.composer() as (make, _):
        base = config.plain(make(words))
    return Space(
        base=base, axes=tuple(Axis(keys=(key,), values=tuple((v,) for v in axis)) for key, axis in AXES.items())
    )


def together_and_alone(
    asked: Space, count: int, seed: int, details: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of random combinations, evaluated as one and one by one."""
    chosen = sorted(random.Random(seed).sample(range(len(asked)), count))
    configs = [asked.config(index) for index in chosen]
    keyed = Axis(keys=tuple(AXES), values=tuple(tuple(_value(each, key) for key in AXES) for each in configs))
    zipped = Space(base=asked.base, axes=(keyed,))
    key = lambda row: row["point_id"]  # noqa: E731
    one = grid.evaluate([Slice(zipped, 0, count)], details).to_pylist()
    alone = [grid.evaluate([Slice(Space(base=each), 0, 1)], details).to_pylist()[0] for each in configs]
    return sorted(one, key=key), sorted(alone, key=key)


def _value(conf: Any, key: str) -> Any:
    group, name = key.split(".")
    return conf[group][name]


@pytest.mark.parametrize(("model", "schedule"), [(m, s) for m, all_of in ASKED.items() for s in all_of])
def test_points_together_are_each_alone_to_the_last_bit(model: str, schedule: str) -> None:
    together, alone = together_and_alone(space(model, schedule), 40, seed=1, details=True)
    assert together == alone
    assert len({row["status"] for row in together}) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("model", "schedule"), [(m, s) for m, all_of in ASKED.items() for s in all_of])
def test_thousands_of_random_points_are_each_alone_to_the_last_bit(model: str, schedule: str) -> None:
    together, alone = together_and_alone(space(model, schedule), 250, seed=2, details=False)
    assert together == alone


def test_a_row_warns_of_what_its_framework_cannot_run() -> None:
    with compose.composer() as (make, _):
        base = config.plain(make(["model=llama3_8b", "stack=megatron_lm", "parallel.d=2", "training.global_batch=64"]))
    axes = {"parallel.t": [1, 2], "parallel.p": [1, 4], "schedule.name": ["1f1b", "zbv"], "parallel.zero": [1, 3]}
    asked = Space(
        base=base, axes=tuple(Axis(keys=(key,), values=tuple((v,) for v in axis)) for key, axis in axes.items())
    )
    warned = 0
    for row in grid.evaluate([Slice(asked, 0, len(asked))], details=False).to_pylist():
        layout = ParallelLayout(t=row["t"], p=row["p"], d=row["d"], v=row["v"], zero=row["zero"])
        point = dataclasses.replace(config.build(base), layout=layout, schedule=row["schedule"])
        refused = rules.problems(point)
        assert all(problem in (row["warning"] or "") for problem in refused)
        assert bool(refused) == ("stack.framework" in (row["warning"] or ""))
        assert bool(refused) == ((row["zero"] == 3 and row["p"] > 1) or row["schedule"] == "zbv")
        warned += bool(refused)
    assert 0 < warned < len(asked)


def test_rows_are_sorted_and_none_is_lost() -> None:
    asked = space("llama3_8b", "1f1b")
    table = grid.evaluate([Slice(asked, 0, 5_000), Slice(asked, 5_000, 9_000)], details=False)
    assert table.num_rows == 9_000
    assert len(set(table["point_id"].to_pylist())) == 9_000
    keys = table.select(["zero", "recompute", "sequence_parallel", "t", "p", "c"]).to_pylist()
    assert keys == sorted(keys, key=lambda row: list(row.values()))
    assert table.schema.equals(grid.evaluate([Slice(asked, 0, 1)], details=True).schema)


def test_without_details_the_columns_that_hold_a_list_are_empty() -> None:
    table = grid.evaluate([Slice(Space(base=default()), 0, 1)], details=False)
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    assert lists
    assert all(table[name].null_count == 1 for name in [*lists, "communication", "fixes"])


@LAW
@given(
    numbers=st.fixed_dictionaries(
        {
            "t": st.sampled_from([1, 2, 3, 5, 8, 10**6]), "p": st.sampled_from([1, 2, 4, 7, 10**12]),
            "c": st.sampled_from([1, 2, 3]),
            "d": st.sampled_from([0, 1, 2, 7, 10**12]), "e": st.sampled_from([1, 2]), "v": st.sampled_from([0, 1, 2]),
            "micro_batch": st.sampled_from([1, 3, 10**12]), "global_batch": st.sampled_from([1, 64, 96, 10**12]),
            "seq_length": st.sampled_from([0, 1000, 1024]),
        }
    ),
    others=st.integers(0, 5),
    schedule=st.sampled_from(["1f1b", "interleaved_1f1b", "zbv", "dualpipe"]),
)  # fmt: skip
def test_rules_for_many_are_the_rules_for_one(numbers: dict[str, int], others: int, schedule: str) -> None:
    like: Point = config.build({**default(), "schedule": {**default()["schedule"], "name": schedule}})
    layout: Any = {name: numbers[name] or None for name in ("t", "p", "c", "d", "e", "v")}
    training: Any = {name: numbers[name] or None for name in ("micro_batch", "global_batch", "seq_length")}
    one = dataclasses.replace(
        like,
        layout=dataclasses.replace(like.layout, **layout),
        training=dataclasses.replace(like.training, **training),
    )
    try:
        legality.resolve(one)
        problems: tuple[str, ...] = ()
    except Invalid as error:
        problems = tuple(error.problems)
    among = {"t": 1, "p": 1, "c": 1, "d": 1, "e": 1, "v": 0, "micro_batch": 1, "global_batch": 8, "seq_length": 0}
    columns = {name: np.array([among[name]] * others + [value]) for name, value in numbers.items()}
    judged = legality.judge(like, columns)
    assert judged.broken[judged.which[-1]] == problems


def test_a_part_of_which_conditions_leave_nothing_has_no_rows() -> None:
    asked = dataclasses.replace(space("llama3_8b", "1f1b"), where=("t * p == 0",))
    table = grid.evaluate([Slice(asked, 0, 100)], details=False)
    assert (table.num_rows, table.schema) == (0, grid.evaluate([Slice(space("llama3_8b", "1f1b"), 0, 1)], False).schema)
