"""What reports of sweeps and layouts say: numbers that agree with each other, pictures that agree with tables, both languages."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim import compose, config, study
from pipesim.calibrate.intervals import REASONS
from pipesim.plan import rows as plan_rows
from pipesim.plan.asked.space import Space
from pipesim.plan.search import stability
from pipesim.report import words as report_words
from pipesim.report.document import Bars, Chart, Curves, Document, HeatMap, Parallel, Picture, Table, TimelineView
from pipesim.report.formats import show
from pipesim.report.layout.tables import _CAUSES_ZH
from pipesim.report.ranking import IDENTITY, front, ranked
from pipesim.report.say import english, speaker
from pipesim.report.sweep import answer as sweep_answer
from pipesim.report.sweep import charts as sweep_charts
from pipesim.report.sweep.answer import FIXES
from pipesim.report.words import COLUMN_WORDS, TIME_GROUPS, TIME_WORDS, extrapolates_zh, layout_name
from pipesim.results import manifest
from pipesim.simulate.causes import Cause

SWEPT = tuple(
    f"parallel.t={t} parallel.p={p} training.micro_batch={b} schedule.name={schedule}"
    for t in (2, 4, 8)
    for p in (6, 7, 12)
    for b in (1, 2, 4, 8)
    for schedule in ("1f1b", "gpipe")
)


@cache
def composed(*choices: str) -> dict[str, Any]:
    with compose.composer() as (make, _):
        return config.plain(make(list(choices)))


def changed(point: str) -> dict[str, Any]:
    """A config: choices of groups are composed, values are set, which is quicker."""
    words = point.split()
    found = copy.deepcopy(composed(*(word for word in words if "." not in word.split("=")[0])))
    for key, value in (word.split("=") for word in words):
        if "." in key:
            group, name = key.split(".")
            found[group][name] = int(value) if value.isdigit() else value
    return found


@cache
def asked(*points: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Configs and rows of points, each a line of overrides."""
    configs = [changed(point) for point in points]
    return configs, study.evaluate([Space(base=each) for each in configs])


def page(*points: str, kind: str = "sweep", lang: str = "en") -> Document:
    configs, rows = asked(*points)
    return study.page(kind, rows, manifest.about(kind, [], {**configs[0], "lang": lang}))


def blocks(document: Document, kind: type) -> dict[str, Any]:
    """By slug, or title."""
    every = [block for section in document.sections for block in section.blocks if isinstance(block, kind)]
    return {getattr(block, "slug", "") or block.title: block for block in every}


def rows_of(table: Table) -> list[dict[str, Any]]:
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, row, strict=True)) for row in table.rows]


@pytest.fixture(scope="module")
def swept() -> Document:
    return page(*SWEPT)


def test_the_answer_comes_first_and_its_numbers_are_those_of_the_table(swept: Document) -> None:
    text = swept.sections[0].blocks[0]
    first, second = rows_of(blocks(swept, Table)["Fastest first, by tokens/s; what does not fit stands last"])[:2]
    name = f"t{first['t']} p{first['p']} d{first['d']} b{first['micro-batch']} {first['schedule']}"
    assert f"The fastest layout that fits is {name}: {show(first['step'], 'seconds')} a step" in text
    assert f"MFU {show(first['MFU'], 'percent')}, {show(first['memory'], 'bytes')} of 80.0 GB" in text
    assert f"bound by {first['bound by']}." in text
    slower = show(second["step"] / first["step"] - 1, "percent")
    assert f"The runner-up, t{second['t']} p{second['p']} d{second['d']} b{second['micro-batch']} " in text
    assert f" is {slower} slower." in text


def test_the_answer_says_how_sure_it_is_and_what_cannot_be_told_apart(swept: Document) -> None:
    fits = [row for row in ranked(asked(*SWEPT)[1]) if row["fits"]]
    sure = stability.of(fits)
    assert sure is not None
    text = next(block for block in swept.sections[0].blocks if str(block).startswith("How sure"))
    chances = [f"{100 * chance:.0f} %" for chance in (sure.best[0], sure.beaten[1])]
    assert f"truly the fastest is {chances[0]}, that it is faster than the runner-up {chances[1]}." in text
    assert f"{len(sure.alike)} of the {len(fits) - 1} other layouts that fit cannot be told from it" in text
    first, second, *_ = rows_of(blocks(swept, Table)["chances"])
    assert (first["truly the fastest"], first["the first is faster"]) == (sure.best[0], None)
    assert (second["truly the fastest"], second["the first is faster"]) == (sure.best[1], sure.beaten[1])


def test_a_step_that_mostly_waits_for_the_host_says_so_beside_its_verdict() -> None:
    row = {"verdict": "compute", **dict.fromkeys((f"{item}_s" for item in report_words.OF_COMPUTE), 1.0)}
    assert report_words.bound_by(row) == "compute"
    waits = report_words.bound_by({**row, "launch_s": 7.0})
    assert waits == "compute, most of it waiting for the host to launch kernels"
    assert report_words.bound_by({**row, "launch_s": 7.0, "verdict": "tp"}) == "tp"
    of = {item for item, verdict in plan_rows._BOUNDS.items() if verdict == "compute"}
    assert of == set(report_words.OF_COMPUTE)


def test_counts_sum_to_all_points(swept: Document) -> None:
    tables = blocks(swept, Table)
    statuses = [row["status"] for row in asked(*SWEPT)[1]]
    *parts, (_, total) = tables["Asked points"].rows
    assert sum(count for _, count in parts) == total == len(SWEPT)
    *reasons, last = rows_of(tables["Points that cannot run, counted by reason"])
    assert sum(row["points"] for row in reasons) == last["points"] == len(statuses) - statuses.count("ok")
    keys = {row["mostly, or keys"] for row in reasons if row["outcome"] == "breaks rules"}
    assert "cluster.gpus, parallel.d, parallel.p, parallel.t" in keys


def test_bars_sum_to_the_step_and_to_the_memory_of_the_table(swept: Document) -> None:
    pictures, order = blocks(swept, Bars), ranked(asked(*SWEPT)[1])
    for k, row in enumerate([row for row in order if row["fits"]][:12]):
        assert sum(pictures["seconds"].bars[k][1]) == pytest.approx(row["step_time_s"], rel=1e-12)
        assert sum(pictures["bytes"].bars[k][1]) == pytest.approx(row["memory_bytes"], rel=1e-12)
    assert pictures["bytes"].x_limit[0] == order[0]["memory_limit_bytes"]
    assert pictures["bytes"].bars[-1][0].endswith("(does not fit)")


def test_a_layout_s_bars_sum_to_its_step_and_to_what_every_rank_holds() -> None:
    (row,) = asked("parallel.p=12")[1]
    pictures = blocks(page("parallel.p=12", kind="layout"), Bars)
    assert sum(pictures["seconds"].bars[0][1]) == pytest.approx(row["step_time_s"], rel=1e-12)
    heaviest, *every = pictures["bytes"].bars
    assert sum(heaviest[1]) == pytest.approx(row["memory_bytes"], rel=1e-12)
    assert [sum(parts) for _, parts in every] == row["rank_memory_bytes"]


def test_every_time_item_is_in_one_group() -> None:
    assert sorted(item for _, items in TIME_GROUPS for item in items) == sorted(TIME_WORDS)


def test_the_best_square_of_the_map_is_the_first_of_the_ranking(swept: Document) -> None:
    (shown,) = blocks(swept, HeatMap).values()
    first = ranked(asked(*SWEPT)[1])[0]
    k, i, j = shown.best()
    assert shown.panels[k].squares[i][j] == first["step_time_s"]
    assert (shown.xs[j], shown.ys[i], shown.panels[k].title) == (
        str(first["t"]), str(first["p"]), f"micro-batch {first['micro_batch']}",
    )  # fmt: skip
    broken = shown.ys.index("7")
    assert all(square == "×" for panel in shown.panels for square in panel.squares[broken])


def test_d_has_maps_of_its_own_only_where_t_and_p_leave_it_free(swept: Document) -> None:
    free = [f"parallel.t={t} parallel.p={p} parallel.d={d}" for t in (4, 8) for p in (6, 12) for d in (2, 4)]
    assert "map-d" not in blocks(swept, HeatMap)
    assert [panel.title for panel in blocks(page(*free), HeatMap)["map-d"].panels] == ["d 2", "d 4"]


MICRO = tuple(f"parallel.t=8 parallel.p=6 training.micro_batch={b}" for b in (1, 2, 4, 8))


def test_the_best_micro_batch_at_a_fixed_global_batch_is_interior() -> None:
    # BigScience's chronicles: t8 p6 d8, global batch 2048, micro-batch 1 to 8: 2 to 4 was fastest
    pictures = blocks(page(*MICRO), Curves)
    (steps,) = pictures["step-against-micro-batch"].lines
    assert steps.best in (1, 2)
    assert steps.points[steps.best][1] == min(seconds for _, seconds in steps.points)
    (bubble,) = pictures["bubble-against-m"].lines
    assert [m for m, _ in bubble.points] == [256, 128, 64, 32]
    assert [share for _, share in bubble.points] == sorted(share for _, share in bubble.points)
    whole, work, idle = pictures["two-sides-of-the-micro-batch"].lines
    assert [w + b for (_, w), (_, b) in zip(work.points, idle.points, strict=True)] == pytest.approx(
        [seconds for _, seconds in whole.points]
    )


def test_the_bubble_curve_has_the_closed_form_of_equal_stages() -> None:
    # global batch 512, d = 8, p = 8, micro-batch 1 to 8: (p-1)/(m+p-1) = 7/71, 7/39, 7/23, 7/15
    points = [
        f"costs=lecture parallel.p=8 cluster.gpus=64 cluster.memory_gb=100000 training.micro_batch={b} "
        "parallel.t=1 training.global_batch=512"
        for b in (1, 2, 4, 8)
    ]
    (line,) = blocks(page(*points), Curves)["bubble-against-m"].lines
    assert dict(line.points) == pytest.approx({64: 7 / 71, 32: 7 / 39, 16: 7 / 23, 8: 7 / 15})


def test_a_picture_is_left_out_where_its_dimension_does_not_vary() -> None:
    slugs = set(blocks(page("parallel.t=4 parallel.p=12", "parallel.t=8 parallel.p=12"), Picture))
    assert slugs == {"seconds", "bytes", "time-against-memory", "bubble-against-memory", "communication-against-bubble"}


def test_every_picture_says_what_to_see(swept: Document) -> None:
    pictures = blocks(swept, Picture).values()
    assert {type(each) for each in pictures} == {Bars, HeatMap, Curves, Chart, Parallel}
    assert all(each.title and each.caption.endswith(".") for each in pictures)


FIGURES = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3))


@given(st.lists(FIGURES, min_size=1, max_size=40))
def test_the_front_holds_exactly_what_nothing_dominates(figures: list[tuple[int, int, int]]) -> None:
    rows = [{"step_time_s": s, "memory_bytes": b, "gpus": g} for s, b, g in figures]

    def dominated(row: tuple[int, int, int]) -> bool:
        return any(other != row and all(o <= r for o, r in zip(other, row, strict=True)) for other in figures)

    found = [tuple(row.values()) for row in front(rows, lambda row: row["step_time_s"])]
    assert sorted(found) == sorted(row for row in figures if not dominated(row))


def test_thousands_of_layouts_become_few_marks_that_count_them_all() -> None:
    (row,) = asked("parallel.p=12")[1]
    many = [row | {"memory_bytes": 1e9 * (k % 70 + 1), "bubble_fraction": (k % 97) / 97} for k in range(10_000)]
    marks = sweep_charts._marks(many, sweep_charts._memory, sweep_charts._bubble, layout_name, english)
    assert len(marks) <= 300 + 48 * 32
    more = [re.search(r"and ([\d,]+) close by", mark.label) for mark in marks]
    assert len(marks) + sum(int(each[1].replace(",", "")) for each in more if each) == len(many)


def texts(document: Document) -> Iterator[str]:
    """Every word that a reader meets, but for what is quoted: commands, configs and the reasons that rows hold."""
    yield document.title
    for section in document.sections:
        yield section.title
        if section.aside:
            continue
        for block in section.blocks:
            if isinstance(block, str):
                yield block.split("：python ")[0]
            elif isinstance(block, Table):
                quoted = {k for k, column in enumerate(block.columns) if column.title == "原因"}
                yield from (block.title, block.note, *(column.title for column in block.columns))
                yield from (str(cell) for row in block.rows for k, cell in enumerate(row) if k not in quoted)
            elif isinstance(block, Picture):
                yield from (block.title, block.caption, *_inside(block))
            elif isinstance(block, TimelineView):
                yield block.title


def _inside(picture: Picture) -> Iterator[str]:
    for name in ("x", "y", "value"):
        if hasattr(picture, name):
            yield getattr(picture, name).title
    yield from getattr(picture, "items", ())
    yield from (mark.group for mark in getattr(picture, "marks", ()))
    yield from (axis.title for axis in getattr(picture, "axes", ()))
    yield from (panel.title for panel in getattr(picture, "panels", ()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "kind"), [(SWEPT, "sweep"), (MICRO, "sweep"), (("parallel.p=12 model=llama3_405b",), "layout")]
)
def test_a_chinese_page_holds_no_english_sentence(points: tuple[str, ...], kind: str) -> None:
    document = page(*points, kind=kind, lang="zh")
    assert document.language == "zh"
    for text in texts(document):
        assert not re.search(r"[A-Za-z]{2,}(?:[ ,]+[A-Za-z]{2,}){2,}", text.replace("et al", "")), text
    for section in document.sections:
        assert re.search(r"[\u4e00-\u9fff]", section.title)


def test_both_languages_have_the_same_sections_pictures_and_numbers(swept: Document) -> None:
    chinese = page(*SWEPT, lang="zh")
    assert [[type(block) for block in each.blocks] for each in chinese.sections] == [
        [type(block) for block in each.blocks] for each in swept.sections
    ]
    assert blocks(chinese, Picture).keys() == blocks(swept, Picture).keys()

    def numbers(document: Document) -> list[Any]:
        tables = blocks(document, Table).values()
        return [cell for each in tables for row in each.rows for cell in row if isinstance(cell, float)]

    assert numbers(chinese) == numbers(swept)


def test_what_a_grid_keeps_is_said_in_both_languages() -> None:
    about = {
        "kept": "Of 9 points", "evaluated": {"ok": 6, "invalid": 3}, "counts": {"ok": 2},
        "first_point": {"grid": {"keep": {"top": 2, "per": ["gpus"], "pareto": None}}},
    }  # fmt: skip
    assert sweep_answer.kept(about, english) == ("Of 9 points",)
    (said,) = sweep_answer.kept(about, speaker("zh"))
    assert said == '共计算了 9 个点（6 个放得下，3 个违反规则），表中保留 2 个；保留规则：top=2，per=["gpus"]。'
    assert sweep_answer.kept({}, english) == ()


def test_every_word_has_its_chinese() -> None:
    assert {str(cause) for cause in Cause} == set(_CAUSES_ZH)
    assert set(IDENTITY) | {"gpus"} == set(COLUMN_WORDS)
    fixes = [fix for row in asked(*SWEPT)[1] if row["fixes"] for fix in re.findall(r'"([a-z ]+)":', row["fixes"])]
    assert set(fixes) <= set(FIXES)
    for reason in REASONS.values():
        note = f"Extrapolates: {reason.format(stack='mine', chip='h100')}. The interval is wider for it."
        assert "Extrapolates" not in extrapolates_zh(note)
        assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", extrapolates_zh(note)), reason
    with pytest.raises(KeyError):
        speaker("fr")("en", "zh")  # type: ignore[arg-type]


def test_the_data_behind_the_constants_stand_in_the_report() -> None:
    configs, rows = asked("parallel.p=12 stack=megatron_lm")
    line = {
        "stack": "megatron_lm", "chip": "a100_80g", "role": "calibration", "runs": 139, "gpus": 32, "step_times": 139,
        "step_time_error": 0.026, "memories": 126, "memory_error": 0.019,
    }  # fmt: skip
    about: Mapping[str, Any] = manifest.about("layout", [], configs[0]) | {
        "evidence": [line, line | {"stack": "other"}]
    }
    table = blocks(study.page("layout", rows, about), Table)["Measured runs with the constants of megatron_lm"]
    assert [row[:6] for row in table.rows] == [("a100_80g", "fitted to", 139, 32, 139, 0.026)]
    unknown = study.page("layout", rows, {**about, "evidence": []})
    assert any("No measured run stands behind" in text for text in texts(unknown))
