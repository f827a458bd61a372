"""The zoo: every schedule at equal work, with the right figures, nothing dropped, and claims that hold."""

import copy
import re

import pytest

from pipesim import compose, config, demos
from pipesim.checks import Invalid
from pipesim.demos.zoo_runs import gather
from pipesim.report.document import Observations, Table, TimelineView
from pipesim.report.figures import figures
from pipesim.report.markdown import to_markdown
from pipesim.report.terminal import print_document
from pipesim.results import schema
from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import simulate, steady_period_s

GOLDEN = {
    ("gpipe", 1): (33, 33, 8),
    ("1f1b", 1): (33, 33, 4),
    ("interleaved_1f1b", 2): (57, 57, 11),
    ("interleaved_1f1b", 4): (105, 105, 19),
    ("looped_bfs", 2): (57, 57, 16),
    ("interleaved_zb", 1): (27, 27, 4),
    ("interleaved_zb", 2): (51, 51, 8),
    ("zb_h1", 1): (27, 27, 4),
    ("zb_h2", 1): (27, 24, 8),
    ("zbv", 2): (51, 48, 8),
    ("v_half", 2): (53, 53, 6),
    ("v_min", 2): (59, 59, 4),
    ("1f1b_v", 2): (63, 63, 6),
    ("dualpipev", 2): (54, 54, 9),
    ("dualpipe", 1): (26, 26, 5),
    ("chimera", 1): (30, 30, 4),
    ("eager_1f1b", 1): (33, 33, 7),
}
"""(schedule, v): makespan, steady period, peak in flight; p=4, m=8, F = I = W = 1 per stage, free communication.

From independent implementations: PyTorch 2.13's orders and other public generators, simulated by a program of its own.
"""

UNITS = 2
"""Of a rank's forward in the zoo: halves of it, for two stages per rank, are whole."""

CJK = re.compile(r"[\u4e00-\u9fff]")
FIGURE = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def composed():
    with compose.composer() as (composer, _):
        plain = {lang: config.plain(composer(["experiment=schedule_zoo", f"lang={lang}"])) for lang in ("en", "zh")}

    def asked(lang="en", **changes):
        found = copy.deepcopy(plain[lang])
        found["demo"]["schedule_zoo"] |= changes
        return found

    return asked


def blocks_of(asked, kind):
    (section,) = demos.run(asked)[0].sections
    return [block for block in section.blocks if isinstance(block, kind)]


def claims_of(asked):
    return [claim for block in blocks_of(asked, Observations) for claim in block.claims]


def by_title(asked):
    """The table's rows by schedule, each by its columns' titles."""
    table = blocks_of(asked, Table)[0]
    titles = [column.title for column in table.columns]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in table.rows}


@pytest.mark.parametrize(("name", "v"), GOLDEN)
def test_schedules_have_the_recorded_figures(name, v):
    schedule = make_schedule(name, p=4, m=8, v=v)
    timeline = simulate(schedule)
    assert (timeline.makespan_s, steady_period_s(schedule), max(timeline.peak_inflight)) == GOLDEN[name, v]


def test_the_table_has_them_in_units_of_equal_work(composed):
    """A schedule with v stages per rank has stages of 1/v of the work, so that its recorded times count for 1/v."""
    rows = by_title(composed())
    compared = 0
    for (name, v), (makespan, period, peak) in GOLDEN.items():
        if rows[name]["v"] == v:
            compared += 1
            assert (rows[name]["makespan"], rows[name]["period"]) == (makespan * UNITS / v, period * UNITS / v), name
            assert rows[name]["held at most"] == peak / v
            assert max(rows[name]["peak per rank"]) == peak
    assert compared == 15


def test_every_schedule_is_in_the_table_and_does_the_same_work(composed):
    zoo = gather(composed()["demo"]["schedule_zoo"])
    assert tuple(zoo.names) == schedule_names() == tuple(by_title(composed()))
    assert zoo.units == (UNITS,) * 3
    for specimen in zoo.ran:
        assert set(specimen.timeline.busy_s.tolist()) == {8 * 3 * UNITS}, specimen.name
        assert (specimen.timeline.end_s % 1 == 0).all()
        assert specimen.lower_bound <= specimen.makespan
        assert specimen.period <= specimen.makespan


def test_only_bidirectional_schedules_hold_parameters_twice(composed):
    assert {name for name, row in by_title(composed()).items() if row["copies"] != 1} == {"dualpipe", "chimera"}
    assert by_title(composed())["dualpipe"]["copies"] == 2


def test_figures_of_the_table_follow_from_each_other(composed):
    for row in by_title(composed()).values():
        work = 8 * 3 * UNITS
        assert row["bubble fraction"] == pytest.approx(1 - work / row["makespan"])
        assert row["bubble overhead"] == pytest.approx(row["makespan"] / work - 1)
        assert row["steady bubble fraction"] == pytest.approx(1 - work / row["period"])
        assert work <= row["longest rank"] <= row["makespan"]


def test_units_are_scaled_only_as_far_as_needed(composed):
    assert gather(composed(forward=2, input_grad=2, weight_grad=4)["demo"]["schedule_zoo"]).units == (2, 2, 4)
    assert gather(composed(forward=2, input_grad=3, weight_grad=4)["demo"]["schedule_zoo"]).units == (4, 6, 8)
    assert gather(composed(schedules=["1f1b", "zb_h1"])["demo"]["schedule_zoo"]).units == (1, 1, 1)


def test_what_refuses_these_sizes_is_listed_with_its_reason(composed):
    asked = composed(p=5, m=7)
    _, rows = demos.run(asked)
    refused = {row["schedule"]: row["reason"] for row in rows if row["status"] == "invalid"}
    assert set(refused) == {"dualpipe", "chimera"}
    assert "p must be even. Nearest: p=6." in refused["chimera"]
    assert set(by_title(asked)) == set(schedule_names())
    assert set(by_title(asked)["dualpipe"].values()) == {"dualpipe", None}
    remarks = blocks_of(asked, Table)[1]
    assert [row[:2] for row in remarks.rows][:2] == [("dualpipe", "refused"), ("chimera", "refused")]
    assert any(row[1] == "runs, but is unwise" for row in remarks.rows)


def test_sizes_that_nothing_takes_leave_a_table_of_reasons(composed):
    document, rows = demos.run(composed(p=0))
    assert {row["status"] for row in rows} == {"invalid"}
    assert len(rows) == len(schedule_names())
    assert figures(document) == {}
    assert claims_of(composed(p=0)) == []


def test_an_unknown_name_and_times_below_one_are_refused_together(composed):
    with pytest.raises(Invalid) as caught:
        demos.run(composed(schedules=["1f2b"], forward=0))
    unknown, zero = sorted(caught.value.problems, key=len, reverse=True)
    assert "schedule.name='1f2b' is unknown" in unknown
    assert zero == "demo.schedule_zoo.forward=0 must be at least 1. Nearest: 1."


def test_names_may_be_aliases_and_are_shown_once(composed):
    assert list(by_title(composed(schedules=["ZB1P", "zb-h1", "vpp"]))) == ["zb_h1", "interleaved_1f1b"]


def test_rows_fit_the_schema(composed):
    _, rows = demos.run(composed())
    table = schema.table(rows)
    assert table.num_rows == len(schedule_names())
    assert {row["case"] for row in rows} == {"schedule_zoo"}
    found = {row["schedule"]: row for row in rows}
    assert (found["zbv"]["v"], found["zbv"]["makespan_s"], found["zbv"]["num_microbatches"]) == (2, 51, 8)
    assert found["1f1b"]["peak_inflight"] == [4, 3, 2, 1]


def test_every_schedule_is_drawn_on_one_time_axis(composed):
    views = blocks_of(composed(), TimelineView)
    assert [view.slug for view in views] == [f"zoo-{name}" for name in schedule_names()]
    assert {view.until_s for view in views} == {66}  # naive, which takes three times as long, is drawn to its own
    assert {view.text for view in views} == {"narrow"}
    assert {view.timeline.schedule.name: view.unit_s for view in views}["1f1b"] == 2
    assert set(figures(demos.run(composed())[0])) == {f"zoo-{name}.svg" for name in schedule_names()}


def test_text_is_wide_if_asked_and_left_out_for_large_sizes(composed, capsys):
    print_document(demos.run(composed(wide=True, schedules=["dualpipe"]))[0])
    assert "| 0F0  0F1  0F2  3F4‹ 3I4‹ 3W4‹ 3F5‹ 0F3&3B5‹" in capsys.readouterr().out
    large = composed(m=200, schedules=["1f1b"])
    assert [view.text for view in blocks_of(large, TimelineView)] == ["none"]
    markdown = to_markdown(demos.run(large)[0])
    assert "```text" not in markdown
    assert "zoo-1f1b.svg" in markdown


def test_the_report_explains_the_signs_of_text_timelines(composed, capsys):
    document = demos.run(composed("zh", schedules=["chimera"]))[0]
    print_document(document)
    for text in (capsys.readouterr().out, to_markdown(document)):
        assert "\n‹：微批次 4–7，从 rank 3 进入\n" in text


def test_claims_say_which_bubble_comes_at_which_memory(composed):
    fastest, within, leanest, front, hides, none, bound, twice = claims_of(composed())
    assert fastest.startswith("The smallest bubble fraction of one step: interleaved_zb, zbv with 5.9 % (51 units)")
    assert "a step takes 51 units instead of 66 under interleaved_zb, zbv" in within
    assert leanest.startswith("Less memory need not cost time: v_min holds at most 2 micro-batches instead of 1F1B's 4")
    assert "v_min (2: 18.6 %), seq1f1b (2.5: 15.8 %), v_half (3: 9.4 %), interleaved_zb (4: 5.9 %)" in front
    assert "zb_h1 and zb_h2 both take 54 units" in hides
    assert "under zb_h2, zbv: the period is the 48 units" in none
    assert bound.startswith("11 of 19 schedules reach the lower bound")
    assert "dualpipe takes 52 units; the fastest with one copy, interleaved_zb, takes 51" in twice


@pytest.mark.parametrize(
    ("schedules", "words"),
    [
        (["gpipe", "1f1b"], "The smallest bubble fraction"),
        (["gpipe", "1f1b"], "1F1B's memory"),
        (["1f1b", "gpipe"], "Less memory need not"),
        (["zb_h1", "zbv"], "One step alone hides"),
        (["gpipe", "1f1b"], "Without a barrier"),
        (["gpipe", "1f1b"], "reach the lower bound"),
        (["gpipe", "1f1b"], "both ways"),
        (["dualpipe", "chimera"], "both ways"),
        (["zbv"], ""),
    ],
)
def test_a_claim_vanishes_with_what_it_rests_on(composed, schedules, words):
    assert any(words in claim for claim in claims_of(composed()))
    assert not any(words in claim for claim in claims_of(composed(schedules=schedules)))


@pytest.mark.parametrize("sizes", [{}, {"p": 5, "m": 7}, {"weight_grad": 2}, {"p": 1}, {"m": 1}])
def test_both_languages_say_the_same_figures(composed, sizes):
    english, chinese = claims_of(composed("en", **sizes)), claims_of(composed("zh", **sizes))
    assert len(english) == len(chinese)
    for one, other in zip(english, chinese, strict=True):
        assert sorted(set(FIGURE.findall(one))) == sorted(set(FIGURE.findall(other)))


def test_every_text_is_in_its_language(composed):
    assert not CJK.search(to_markdown(demos.run(composed("en", p=5, m=7))[0]))
    chinese = demos.run(composed("zh"))[0]
    (section,) = chinese.sections
    prose = [section.title, *(block for block in section.blocks if isinstance(block, str)), *claims_of(composed("zh"))]
    assert all(CJK.search(text) for text in prose)
    assert not re.search(r"[\u4e00-\u9fff][,:;?()]|[,:;?()][\u4e00-\u9fff]", to_markdown(chinese))


@pytest.mark.slow
def test_two_runs_are_the_same_bytes(composed):
    one, other = (demos.run(composed())[0] for _ in range(2))
    assert to_markdown(one) == to_markdown(other)
    assert figures(one) == figures(other)


def test_the_experiment_names_its_study(composed):
    assert composed()["study"]["name"] == "schedule_zoo"
    assert [name for name, demo in composed()["demo"].items() if demo is not None] == ["schedule_zoo"]
