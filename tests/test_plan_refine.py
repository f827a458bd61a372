"""A plan's best divided anew: never slower, the best of every division where all can be asked, and asked alone the same."""

import itertools

import pytest
from test_plan_search import SMALL, composed, found, layout  # noqa: F401

from pipesim import compose, config, legality
from pipesim.estimate import evaluate
from pipesim.launch import rules
from pipesim.plan import grid
from pipesim.plan.asked.behind import config_behind
from pipesim.plan.asked.space import with_values
from pipesim.plan.search import question, refine
from pipesim.report import command

WORDS = (*SMALL, "model.layers=6", "cluster=dgx_h100", "cluster.gpus=4", "stack=megatron_lm", "task.plan.p=[2,4]",
         "task.plan.t=[1]",
         "task.plan.micro_batch=[1]", "task.plan.recompute=[none]", "task.plan.v=[1]", "task.plan.zero=[1]",
         "task.plan.rank_orders=false")  # fmt: skip


def divisions(units, stages):
    """Every way to put at least one unit on each stage."""
    for borders in itertools.combinations(range(1, units), stages - 1):
        cuts = (0, *borders, units)
        yield tuple(after - before for before, after in itertools.pairwise(cuts))


def test_the_best_division_is_that_of_asking_every_one(composed):  # noqa: F811
    asked = composed(*WORDS)
    even, _ = found(asked)
    rows = question.ranked(asked, refine.refined(even, asked).to_pylist())
    fastest = {}
    for row in even.to_pylist():
        point = legality.resolve(config.build(config_behind(row, asked)))
        for partition in divisions(point.model.units, point.layout.p):
            each = with_values(config_behind(row, asked), {"parallel.partition": list(partition)})
            batch = evaluate([legality.resolve(config.build(each))], wanted=False)
            seconds, held = (float(sum(items.values())[0]) for items in (batch.seconds, batch.bytes))
            if held <= 0.9 * row["memory_limit_bytes"]:
                fastest[layout(row)] = min(seconds, fastest.get(layout(row), seconds))
    assert len(fastest) == even.num_rows > 1
    assert any(row["settings"] for row in rows)
    for row in rows:
        assert row["step_time_s"] == pytest.approx(fastest[layout(row)], rel=refine.LEAST_GAIN)
        assert row["settings"] is not None or row["step_time_s"] <= fastest[layout(row)] * (1 + refine.LEAST_GAIN)


def test_an_uneven_layout_is_asked_alone_by_the_words_it_is_told_with(composed):  # noqa: F811
    asked = composed(*WORDS)
    uneven = [row for row in refine.ranked_rows(asked) if row["settings"]]
    assert uneven
    for row in uneven:
        words = command.words(row, asked, WORDS)
        assert any(word.startswith("parallel.partition=[") for word in words)
        with compose.composer() as (make, _):
            (alone,) = grid.rows([config.plain(make(words))])
        assert alone["step_time_s"] == row["step_time_s"]
        assert alone["memory_bytes"] == row["memory_bytes"]


def test_without_partitions_a_plan_keeps_its_stages_even(composed):  # noqa: F811
    asked = composed(*WORDS, "task.plan.partitions=false")
    even, _ = found(asked)
    assert refine.refined(even, asked).equals(even)


def test_a_slow_link_is_what_the_best_order_of_ranks_avoids(composed):  # noqa: F811
    words = (
        "cluster.gpus=16",
        "cluster.gpus_per_node=4",
        "cluster.inter_node_gb_per_s=2",
        "task.plan.rank_orders=true",
    )
    asked = composed(
        *WORDS,
        *words,
        "task.plan.p=[2]",
        "task.plan.c=[1]",
        "task.plan.partitions=false",
        "training.global_batch=32768",
    )
    even, _ = found(asked)
    (before,), (after,) = (question.ranked(asked, table.to_pylist()) for table in (even, refine.refined(even, asked)))
    assert after["settings"] == "parallel.rank_order=tcpd"
    assert after["step_time_s"] < before["step_time_s"]
    every = []
    for letters in itertools.permutations("tcdp"):
        each = with_values(config_behind(before, asked), {"parallel.rank_order": "".join(letters)})
        point = legality.resolve(config.build(each))
        if not rules.problems(point):
            every.append(float(sum(evaluate([point], wanted=False).seconds.values())[0]))
    assert after["step_time_s"] == min(every)


@pytest.mark.slow
def test_on_two_kinds_of_nodes_the_slower_stages_get_fewer_layers(composed):  # noqa: F811
    words = ("cluster=mixed_a100_h100", "cluster.parts=[{cluster: dgx_a100, nodes: 1}, {cluster: dgx_h100, nodes: 1}]")
    asked = composed("model=llama2_7b", "training=megatron", "training.global_batch=64", "stack=megatron_lm", *words,
                     "task.plan.p=[2]", "task.plan.t=[1]", "task.plan.c=[1]", "task.plan.v=[1]")  # fmt: skip
    (first, *_) = refine.ranked_rows(asked)
    units = [int(n) for n in first["settings"].split("[")[1].split("]")[0].split(",")]
    assert units[0] < units[1]
    even = refine.ranked_rows(with_values(asked, {"task.plan.partitions": False}))[0]
    assert first["step_time_s"] < 0.9 * even["step_time_s"]
