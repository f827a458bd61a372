"""The report of a sweep: the best layout that fits, all of them ranked and compared, and why the others cannot run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pipesim.report import fit_tables, provenance
from pipesim.report.document import Document, Picture, Section, Table
from pipesim.report.memory_words import share_of
from pipesim.report.ranking import IDENTITY, Named, Row, pace, questions, ranked
from pipesim.report.say import Say, asked_language, speaker
from pipesim.report.sweep import answer as sweep_answer
from pipesim.report.sweep import tables as sweep_tables
from pipesim.report.sweep.charts import bars, trade_offs
from pipesim.report.sweep.maps import maps, micro_batches, parallel
from pipesim.report.sweep.question import question
from pipesim.report.words import definitions, layout_name

_DRAWN = 3
"""Questions (model, cluster, cost model) that are drawn; more would make a report that nobody scrolls through."""

Block = str | Table | Picture


def sweep_page(
    rows: Sequence[Row],
    manifest: Mapping[str, Any],
    counts: Mapping[str, int] | None = None,
    sure: Mapping[str, Any] | None = None,
    ways_out: Sequence[fit_tables.WayOut] = (),
) -> Document:
    """``counts`` are of all points by status, where ``rows`` are only some of them. ``sure`` is ``plan.stability.Stability``
    of those that fit, ``ways_out`` what would make the nearest fit, if none does.
    """
    language = asked_language(manifest)
    say, order = speaker(language), ranked(rows)
    counts = Counter(row["status"] for row in rows) if counts is None else counts
    points = sum(counts.values())
    varied = tuple(name for name in IDENTITY if len({row[name] for row in rows}) > 1)
    named = partial(layout_name, varied=varied)
    asked = questions(rows)
    by_question = {key: [row for row in order if row["status"] != "invalid"] for key, order in questions(order).items()}
    answers = sweep_answer.answers(
        {key: by_question.get(key, []) for key in asked}, named, say, sure, share_of(manifest)
    )
    ways = (fit_tables.way_out(ways_out[0], say), fit_tables.ways_out(ways_out, named, say)) if ways_out else ()
    counted = sweep_answer.counts(counts, len(rows), say)
    told = (*answers, *ways, *sweep_answer.kept(manifest, say), counted, *sweep_answer.mistyped(rows, say))
    sections = [
        Section(title=say("Answer", "结论"), blocks=told),
        Section(title=say("The question", "问题"), blocks=question(rows, varied, manifest, say)),
    ]
    if order:
        ranking = sweep_tables.ranking(order, varied, say)
        sections += [
            Section(
                title=say("Layouts, ranked", "布局排名"),
                blocks=(ranking, *sweep_answer.chances(order, sure, named, say)),
            ),
            *_pictures(rows, by_question, varied, named, say),
            Section(
                title=say("Where the step's seconds go", "一步的时间去向"),
                blocks=(sweep_tables.shares(order, named, say),),
            ),
        ]
    sections += _refused(rows, order, named, say)
    conventions = sorted({row["flop_convention"] for row in order} or {"palm"})
    sections += [
        *provenance.behind(manifest, rows, say),
        Section(
            title=say("How to read this", "如何阅读"),
            blocks=(*definitions(conventions, say), provenance.provenance(manifest, say)),
        ),
        provenance.details(manifest, say),
    ]
    models, clusters = (", ".join(sorted({str(row[name]) for row in rows})) for name in ("model", "cluster"))
    title = say(
        f"{points:,} layout{'s' * (points > 1)} of {models} on {clusters}",
        f"{clusters} 上 {models} 的 {points:,} 个布局",
    )
    return Document(title=title, sections=tuple(sections), language=language)


def _pictures(
    rows: Sequence[Row],
    by_question: Mapping[tuple[str, ...], Sequence[Row]],
    varied: Sequence[str],
    named: Named,
    say: Say,
) -> Iterator[Section]:
    """Of each of the first questions the same pictures; one is left out where what it shows does not vary."""
    broken = [row for row in rows if row["status"] in ("invalid", "failed")]
    for k, (key, order) in enumerate(list(by_question.items())[:_DRAWN]):
        tail = f"-{k + 1}" if k else ""
        about = say(f": {key[0]} on {key[1]}, {key[2]} costs", f"：{key[1]} 上的 {key[0]}，{key[2]} 成本")
        more = about if len(by_question) > 1 else ""
        measure = pace(order, say)
        mine = [*order, *(row for row in broken if questions([row]).keys() == {key})]
        blocks: dict[str, list[Block]] = {
            say("Seconds and bytes by item", "各项秒数与字节数"): [*bars(order, named, say, tail)],
            say("Comparison", "比较"): [*trade_offs(order, measure, named, say, tail)],
            say("Along the axes", "沿各维度"): [
                *maps(mine, measure, named, say, tail),
                *micro_batches(order, named, say, tail),
                *parallel(order, varied, measure, say, tail),
            ],
        }
        yield from (Section(title=title + more, blocks=tuple(each)) for title, each in blocks.items() if each)
    if len(by_question) > _DRAWN:
        said = say(
            f"Pictures are of the first {_DRAWN} of {len(by_question)} questions; asked alone, each has its own.",
            f"只画出 {len(by_question)} 个问题中的前 {_DRAWN} 个；单独询问时各有其图。",
        )
        yield Section(title=say("What is not drawn", "未画出的"), blocks=(said,))


def _refused(rows: Sequence[Row], order: Sequence[Row], named: Named, say: Say) -> Iterator[Section]:
    lost = [row for row in order if not row["fits"]]
    refused = [row for row in rows if row["status"] not in ("ok", "infeasible")]
    if lost or refused:
        table = sweep_tables.counted(rows, named, say)
        yield Section(title=say("What cannot run, counted", "不能运行的点数"), blocks=(table,))
    if lost:
        yield Section(title=say("What does not fit", "放不下的"), blocks=(sweep_tables.shortfalls(lost, named, say),))
    if unwise := [{**row, "reason": row["warning"]} for row in order if row["warning"]]:
        warnings = sweep_tables.reasons(say("Warnings", "警告"), unwise, named, say, _verbatim(say))
        yield Section(title=say("What runs but is unwise", "能运行但不明智的"), blocks=(warnings,))
    if refused:
        rules = sweep_tables.reasons(say("Broken rules", "违反的规则"), refused, named, say, _verbatim(say))
        yield Section(title=say("What cannot run", "不能运行的"), blocks=(rules,))


def _verbatim(say: Say) -> str:
    return say("", "原因为程序原文，与 results.csv 中相同。")
