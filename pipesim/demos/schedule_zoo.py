"""Demo: every schedule at equal stages, micro-batches and work, in one table and drawn one under another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipesim.demos.claims import Say, counted, observations, speaker
from pipesim.demos.zoo_claims import claims, front
from pipesim.demos.zoo_runs import Specimen, Zoo, gather, rows
from pipesim.report.document import Cell, Column, Section, Table, TimelineView
from pipesim.report.formats import show
from pipesim.results.schema import Row

_MOST_CELLS, _MOST_LINES = 240, 16
"""Longer or higher timelines are left to the pictures."""


def schedule_zoo(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    say, conf = speaker(config["lang"]), config["demo"]["schedule_zoo"]
    zoo = gather(conf)
    section = Section(
        title=say("The zoo: every schedule at equal work", "调度大观：工作量相同的所有调度"),
        blocks=(
            *_introduction(zoo, say),
            _table(zoo, say),
            *_remarks(zoo, say),
            *observations(claims(zoo), say),
            *_views(zoo, "wide" if conf["wide"] else "narrow", say),
        ),
    )
    return section, rows(zoo)


def _introduction(zoo: Zoo, say: Say) -> tuple[str, ...]:
    forward, input_grad, weight_grad = zoo.units
    return (
        say(
            f"Which schedule idles least, and what must it hold for that? Here each of {counted(zoo.p, 'rank')} has the "
            f"same work on each of {counted(zoo.m, 'micro-batch')} under every schedule: {forward} units forward, "
            f"{input_grad} for the gradient of the input and {weight_grad} for that of the weights. Where a rank has v "
            "stages, each takes 1/v of this; communication is free.",
            f"哪种调度空闲最少，又要为此保留多少激活值？这里共 {zoo.p} 个 rank、{zoo.m} 个微批次，无论哪种调度，每个 "
            f"rank 对每个微批次的工作量都相同：前向 {forward} 个单位，输入梯度 {input_grad} 个，权重梯度 {weight_grad} "
            "个。一个 rank 有 v 个阶段时，每个阶段占其中的 1/v；通信不花时间。",
        ),
        say(
            "In the text timelines a line is a rank: F is a forward, b a whole backward, i and w its parts for input "
            "and weights, each with the number of its micro-batch; ·· is idle time.",
            "文字时间线每行是一个 rank：F 表示前向，b 表示完整的反向，i 与 w 是反向中输入梯度与权重梯度的部分，后面的"
            "数字是微批次编号；·· 表示空闲。",
        ),
    )


def _table(zoo: Zoo, say: Say) -> Table:
    best = front(zoo)
    ran: list[tuple[Cell, ...]] = [_cells(specimen) for specimen in zoo.ran]
    refused: list[tuple[Cell, ...]] = [(name, *[None] * (len(_columns(say)) - 1)) for name, _ in zoo.refused]
    return Table(
        title=say("All schedules", "所有调度")
        + say(f": {counted(zoo.p, 'rank')}, {counted(zoo.m, 'micro-batch')}", f"：{zoo.p} 个 rank，{zoo.m} 个微批次"),
        columns=_columns(say),
        rows=(*ran, *refused),
        emphasis=frozenset(k for k, specimen in enumerate(zoo.ran) if specimen in best),
        note=say(
            "Times are in units. Longest rank: from a rank's first start to its last end. Period: from one step to the "
            "next when steps follow one another without a barrier. Lower bound: no order of the same stages, pairs and "
            "split backwards is faster. Bubble fraction: idle ÷ (p × makespan); bubble overhead: idle ÷ useful; steady "
            "bubble fraction: idle ÷ (p × period). Held at most: activations of the heaviest rank from the start of F to "
            "the end of W; 1 is a micro-batch on all stages of a rank. Peak per rank counts activations of single "
            "stages (of seq1f1b, of segments). Copies: on how many ranks each parameter lies. Bold, where the report "
            "can show it: no other is as fast, holds as little in as few copies, and is better in one of them.",
            "时间以单位计。最长 rank：一个 rank 从首个动作开始到最后一个动作结束。周期：各步之间没有同步屏障、首尾相接"
            "时，一步到下一步的间隔。下界：阶段放置、配对与反向拆分不变时，任何顺序都不会更快。气泡占比：空闲 ÷（p × 总"
            "时长）；气泡开销：空闲 ÷ 有效时间；稳态气泡占比：空闲 ÷（p × 周期）。最多保留：最重的 rank 从 F 开始到 W "
            "结束所保留的激活值，1 表示一个微批次在该 rank 全部阶段上的激活值。各 rank 峰值按单个阶段计（seq1f1b 按段"
            "计）。副本：每个参数放在几个 rank 上。加粗（若报告能显示）：没有别的调度在用时、保留与副本上都不比它差，且"
            "至少一项更好。",
        ),
    )


def _columns(say: Say) -> tuple[Column, ...]:
    return (
        Column(title=say("schedule", "调度")),
        Column(title="v", kind="count"),
        Column(title=say("makespan", "总时长"), kind="number"),
        Column(title=say("longest rank", "最长 rank"), kind="number"),
        Column(title=say("period", "周期"), kind="number"),
        Column(title=say("lower bound", "下界"), kind="number"),
        Column(title=say("bubble fraction", "气泡占比"), kind="percent"),
        Column(title=say("bubble overhead", "气泡开销"), kind="percent"),
        Column(title=say("steady bubble fraction", "稳态气泡占比"), kind="percent"),
        Column(title=say("held at most", "最多保留"), kind="number"),
        Column(title=say("peak per rank", "各 rank 峰值")),
        Column(title=say("copies", "副本"), kind="number"),
    )


def _cells(specimen: Specimen) -> tuple[Cell, ...]:
    timeline = specimen.timeline
    return (
        specimen.name,
        specimen.v,
        specimen.makespan,
        timeline.span_s,
        specimen.period,
        specimen.lower_bound,
        timeline.bubble_fraction,
        timeline.bubble_overhead,
        specimen.steady_bubble,
        specimen.held,
        timeline.peak_inflight,
        specimen.copies,
    )


def _remarks(zoo: Zoo, say: Say) -> tuple[Table, ...]:
    refuses, warns = say("refused", "拒绝"), say("runs, but is unwise", "能运行，但不明智")
    found = [(name, refuses, reason) for name, reason in zoo.refused]
    found += [(specimen.name, warns, warning) for specimen in zoo.ran for warning in specimen.warnings]
    if not found:
        return ()
    titles = (say("schedule", "调度"), say("outcome", "结果"), say("why", "原因"))
    return (
        Table(
            title=say("What these sizes do not suit", "不适合这些规模的调度"),
            columns=tuple(Column(title=title) for title in titles),
            rows=tuple(found),
        ),
    )


def _views(zoo: Zoo, text: str, say: Say) -> Iterator[TimelineView]:
    """On one time axis, so that lengths compare, but for those that take more than twice the shortest time.

    A text cell is the longest unit in which all times are whole.
    """
    shortest = min((specimen.makespan for specimen in zoo.ran), default=0.0)
    until = max((specimen.makespan for specimen in zoo.ran if specimen.makespan <= 2 * shortest), default=0.0)
    for specimen in zoo.ran:
        timeline = specimen.timeline
        edges = np.rint(np.stack([timeline.start_s, timeline.end_s])).astype(np.int64)
        unit = int(np.gcd.reduce(edges, axis=None))
        fits = specimen.makespan / unit <= _MOST_CELLS and zoo.p <= _MOST_LINES
        yield TimelineView(
            slug=f"zoo-{specimen.name}",
            title=_title(specimen, unit if fits else None, say),
            timeline=timeline,
            unit_s=float(unit),
            text="none" if not fits else "wide" if text == "wide" else "narrow",
            lower_bound_s=specimen.lower_bound,
            until_s=until,
        )


def _title(specimen: Specimen, unit: int | None, say: Say) -> str:
    makespan, fraction = show(specimen.makespan, "number"), show(specimen.timeline.bubble_fraction, "percent")
    cell = say(f", {counted(unit, 'unit')} a cell", f"，每格 {unit} 个单位") if unit is not None else ""
    return specimen.name + say(
        f": {makespan} units, bubble fraction {fraction}{cell}", f"：{makespan} 个单位，气泡占比 {fraction}{cell}"
    )
