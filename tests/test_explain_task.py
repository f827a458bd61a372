"""The task ``explain``: its report, its rows, its refusals."""

from __future__ import annotations

from typing import Any

import pytest
from explained import IDEAL, asked, found
from points import MIXTRAL, plain

from pipesim.checks import Invalid
from pipesim.plan.asked import restage
from pipesim.report import figures, html, markdown, terminal
from pipesim.report.layout import tables as layout_tables
from pipesim.report.say import english
from pipesim.report.sweep import answer as sweep_answer
from pipesim.tasks import Done
from pipesim.tasks.explain import tables as explain_tables
from pipesim.tasks.explain import words as explain_words
from pipesim.tasks.explain.task import explain as task


def done(*overrides: str) -> Done:
    return task(plain("experiment=explain", *overrides))


def refused(*overrides: str) -> str:
    with pytest.raises(Invalid) as error:
        done(*overrides)
    return str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("task.explain.against={parallel.t: 8, parallel.p: 6}",), marks=pytest.mark.slow),
        pytest.param(
            (
                "parallel.p=1",
                "parallel.d=1",
                "cluster.gpus=4",
                "training.global_batch=2",
                "task.explain.against={schedule: zb1p}",
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(("schedule=auto", "training.global_batch=128"), marks=pytest.mark.slow),
        pytest.param(
            (*MIXTRAL, "task.explain.against={parallel: {t: 2, p: 8}, schedule: zbv}"), marks=pytest.mark.slow
        ),
        (*IDEAL, "cluster.gpus=1"),
    ],
    ids=["against", "one rank that does not fit", "auto", "experts", "one GPU, lecture"],
)
def test_the_report_says_why_and_its_rows_are_each_point_once(overrides: tuple[str, ...], capsys: Any) -> None:
    finished = done(*overrides)
    text = markdown.to_markdown(finished.document)
    assert "What bounds it: " in text
    assert ("Where the seconds differ" in text) == any("against" in each for each in overrides)
    ids = [row["point_id"] for row in finished.rows]
    assert len(set(ids)) == len(ids)
    assert "<html" in html.to_html(finished.document, figures.figures(finished.document))
    terminal.print_document(finished.document)
    assert "What bounds it: " in capsys.readouterr().out


TOO_LARGE = ("parallel.t=2",)
"""BLOOM's layout with half its tensor ranks, of which twice as many replicas lack 11 GB each."""


def test_what_does_not_fit_is_bound_by_memory_and_the_change_that_fits_is_told() -> None:
    every = found(*TOO_LARGE)
    assert every.bound == "memory"
    assert "What bounds it: memory" in " ".join(explain_words.verdict(every))
    fits = next(each for each in every.neighbours if each.change.real and each.runs and not each.framework)
    assert f"What fits with 10.0 % of the memory free and costs least: {fits.change.name}" in next(
        explain_words.advice(every)
    )
    assert all(line[0] != "as it is" for line in explain_tables.runs(every).rows)


@pytest.mark.slow
def test_a_change_is_judged_by_the_frameworks_rules_that_the_layout_itself_keeps() -> None:
    every = found(
        "model=llama3_8b", "cluster=dgx_h100", "cluster.gpus=16", "parallel=megatron", "parallel.t=1", "parallel.p=1",
        "training=megatron", "stack=megatron_lm",
    )  # fmt: skip
    (broken,) = every.framework
    assert "parallel.sequence_parallel=true divides over parallel.t=1 nothing" in broken
    told = [text for text in explain_words.verdict(every) if broken in text]
    assert len(told) == 1
    breaks = {each.change.name: each.framework for each in every.neighbours if each.framework}
    assert breaks.keys() == {"recompute operators"}
    assert broken not in breaks["recompute operators"]
    assert not found("cluster.gpus=384").framework


def test_mistakes_name_the_key_and_the_nearest() -> None:
    assert "task.explain.bubble=0" in refused("task.explain.bubble=0")
    assert "parallel.t=7" in refused("task.explain.against={parallel.t: 7}")
    assert refused("task.explain.against={parallel.t: 7}").startswith("task.explain.against: ")
    assert "Nearest: parallel" in refused("task.explain.against={paralel.t: 2}")
    wrong = refused("task.explain.against={parallel: {t: 2, tt: 4}, training.recompte: full, parallel.p: many}")
    assert "task.explain.against: parallel.tt is no key of the config" in wrong
    assert "Nearest: t." in wrong
    assert "task.explain.against: training.recompte is no key" in wrong
    assert "Nearest: recompute or " in wrong
    assert "task.explain.against: parallel.p='many' must be a whole number." in wrong
    assert refused("task.explain.against={model.moe.experts: 4}").startswith("task.explain.against: ")
    assert "zbv" in refused("task.explain.against={schedule: zbw}")
    assert "Nearest: model=bloom_176b" in refused("task.explain.against={model: llama3_70b}")
    assert "must be keys and values" in refused("task.explain.against=3")
    assert "parallel.p=5" in refused("parallel.p=5")


def test_the_best_fix_is_one_that_a_user_has_a_key_for() -> None:
    _, _, row = asked(*MIXTRAL)
    assert "all communication" not in sweep_answer.best_fix(row, english)
    rows = layout_tables.gains(row, english).rows
    assert rows[-1][0] == "all communication in no time"
    assert all(line[3] for line in rows[:-1])


WRITTEN = ("parallel.partition=[7,5,6,6,6,6,6,6,6,6,6,6]",)
"""For the twelve stages of BLOOM's layout."""


def test_a_partition_gives_way_to_balanced_exactly_where_a_change_makes_another_number_of_stages() -> None:
    every = found(*WRITTEN)
    for each in every.neighbours:
        other = {"parallel.p", "parallel.v", "schedule.name"} & each.change.values.keys()
        if each.per_token is not None and not each.change.name.startswith("a layer"):
            gives_way = each.change.values.get("parallel.partition") == "balanced"
            assert gives_way == (each.row["p"] * each.row["v"] != 12), each.change
            assert other or not gives_way
    assert {"half of p, twice t", "schedule zbv"} <= {each.change.name for each in every.neighbours if each.per_token}
    assert not any("entries" in (each.row["reason"] or "") for each in every.neighbours)
    zbv = next(each for each in every.neighbours if each.change.name == "schedule zbv")
    assert "parallel.partition=balanced" in explain_words.typed(zbv)
    assert "takes parallel.partition=balanced" in explain_tables.runs(every).note
    assert "balanced" not in explain_tables.runs(found()).note


@pytest.mark.slow
def test_what_is_held_against_a_layout_with_a_partition_of_its_own_may_have_other_stages() -> None:
    text = markdown.to_markdown(done(*WRITTEN, "task.explain.against={parallel.t: 8, parallel.p: 6}").document)
    assert "what has another number takes parallel.partition=balanced." in " ".join(text.split())
    same = done(*WRITTEN, "task.explain.against={parallel.zero: 0}").document
    assert not any(section.blocks[1] == restage.NOTE for section in same.sections)
    own = "task.explain.against={parallel.t: 8, parallel.p: 6, parallel.partition: [36, 36]}"
    assert "has 2 entries, but parallel.p=6 x parallel.v=1 makes 6 stages" in refused(*WRITTEN, own)


def test_a_partition_of_null_is_told_with_the_nearest() -> None:
    said = refused("task.explain.against={parallel.partition: null}")
    assert said.startswith("task.explain.against: parallel.partition=null must be balanced, even, ")
    assert said.endswith("Nearest: balanced.")
