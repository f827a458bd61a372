"""Demo: the same stages under several schedules, drawn unit by unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from pipesim.demos.claims import Claim, Say, counted, first, observations, speaker
from pipesim.demos.runs import Run, label, row, run_case, same_work
from pipesim.report.document import Column, Section, Table, TimelineView
from pipesim.report.formats import show
from pipesim.results.schema import Row
from pipesim.schedules.action import Op


def timelines(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    say = speaker(config["lang"])
    runs = [run_case("timelines", **case) for case in config["demo"]["timelines"]["cases"]]
    section = Section(
        title=say("Timelines: who waits for whom", "时间线：谁在等谁"),
        blocks=(
            *_introduction(say),
            *_views(runs, say),
            _table(runs, say),
            *observations(_claims(runs, say), say),
        ),
    )
    return section, [row("timelines", run) for run in runs]


def _introduction(say: Say) -> tuple[str, ...]:
    return (
        say(
            "Pipeline parallelism gives each GPU some consecutive layers, a stage. Later stages wait for activations, "
            "earlier ones for gradients: this waiting is the bubble. How much of the time does a stage have nothing to do?",
            "流水线并行让每块 GPU 负责连续的若干层，即一个阶段。后面的阶段要等激活值，前面的阶段要等梯度，这种等待"
            "就是气泡。一个阶段有多少时间无事可做？",
        ),
        say(
            "One line per stage, one cell per unit of time: F is a forward and b a backward, each with the number of "
            "its micro-batch, and ·· is idle time.",
            "每行是一个阶段，每格是一个时间单位：F 表示前向，b 表示反向，后面的数字是微批次编号；·· 表示空闲。",
        ),
    )


def _views(runs: Sequence[Run], say: Say) -> Iterator[TimelineView]:
    taken: Counter[str] = Counter()
    for run in runs:
        slug = f"timelines-{run.schedule}-p{run.p}-m{run.m}"
        taken[slug] += 1
        yield TimelineView(
            slug=slug if taken[slug] == 1 else f"{slug}-{taken[slug]}",
            title=_title(run, say),
            timeline=run.timeline,
            unit_s=_unit(run),
        )


def _title(run: Run, say: Say) -> str:
    return _label(run, say) + say(
        f": {counted(run.p, 'stage')}, {counted(run.m, 'micro-batch')} (forward {run.forward}, backward "
        f"{run.backward})",
        f"：{run.p} 个阶段，{run.m} 个微批次（前向 {run.forward}，反向 {run.backward}）",
    )


def _label(run: Run, say: Say) -> str:
    uncut = run.schedule == "naive" and run.m == 1
    return say("Uncut batch", "整批不切") if uncut else label(run.schedule, say)


def _unit(run: Run) -> float:
    """A cell is one unit, or half of one where a schedule splits an odd backward."""
    return 1.0 if np.all(run.timeline.end_s % 1 == 0) else 0.5


def _table(runs: Sequence[Run], say: Say) -> Table:
    return Table(
        title=say("Total time and bubble fraction", "总时间与气泡占比"),
        columns=(
            Column(title=say("schedule", "调度")),
            Column(title=say("stages", "阶段数"), kind="count"),
            Column(title=say("micro-batches", "微批次数"), kind="count"),
            Column(title=say("forward", "前向"), kind="count"),
            Column(title=say("backward", "反向"), kind="count"),
            Column(title=say("total, units", "总时间（单位）"), kind="number"),
            Column(title=say("bubble fraction", "气泡占比"), kind="percent"),
        ),
        rows=tuple(
            (_label(run, say), run.p, run.m, run.forward, run.backward, run.total, run.timeline.bubble_fraction)
            for run in runs
        ),
        note=say(
            "Bubble fraction: idle time ÷ total time, over all stages.", "气泡占比：所有阶段的空闲时间 ÷ 总时间。"
        ),
    )


def _claims(runs: Sequence[Run], say: Say) -> Iterator[Claim]:
    uncut = [run for run in runs if run.m == 1 and run.p > 1]
    pairs = list(product(runs, runs))
    yield from first(_one_at_a_time(run) for run in uncut)
    yield from first(_handed_on(a, b) for a, b in pairs if a in uncut and b.m > 1 and same_work(a, b))
    yield from first(_diluted(a, b, _label(a, say)) for a, b in pairs if _more(a, b))
    yield from first(_memory_only(a, b, (_label(a, say), _label(b, say))) for a, b in pairs if _leaner(a, b))


def _one_at_a_time(run: Run) -> Claim:
    works, waits, total = (show(float(units), "number") for units in (run.timeline.busy_s[0], run.waits[0], run.total))
    fraction = show(run.timeline.bubble_fraction, "percent")
    return Claim(
        holds=run.timeline.busy_s.sum() == run.total,
        en=f"With the batch uncut, one stage works at any moment and the others wait: of {total} units each works for "
        f"{works} and waits for {waits}, a bubble fraction of {fraction}. {run.p} GPUs do the work of one.",
        zh=f"整批不切时，任一时刻只有一个阶段在工作，其余都在等待：在 {total} 个单位里，每个阶段工作 {works} 个、等待 "
        f"{waits} 个，气泡占比为 {fraction}。{run.p} 块 GPU 只干了一块 GPU 的活。",
    )


def _handed_on(uncut: Run, cut: Run) -> Claim:
    before, after = (show(run.timeline.bubble_fraction, "percent") for run in (uncut, cut))
    from_units, to_units = (show(run.total, "number") for run in (uncut, cut))
    return Claim(
        holds=_idle_only_around_the_turn(cut) and cut.total < uncut.total,
        en=f"Cut into {cut.m} micro-batches, the same work takes {to_units} units instead of {from_units}: a stage "
        "hands each result on and starts the next micro-batch at once. Idle time is left only at the start, between "
        f"the last forward and the first backward to return, and at the end; the bubble fraction falls from {before} "
        f"to {after}.",
        zh=f"切成 {cut.m} 个微批次后，同样的工作只需 {to_units} 个单位，而不是 {from_units} 个：一个阶段把结果交给下一"
        "个阶段后，立刻开始下一个微批次。空闲只剩三处：开头、最后一次前向与第一个返回的反向之间、结尾；气泡占比从 "
        f"{before} 降到 {after}。",
    )


def _idle_only_around_the_turn(run: Run) -> bool:
    """Every rank runs all forwards without a pause, then all backwards without a pause."""
    schedule, timeline = run.timeline.schedule, run.timeline
    rank_of = schedule.rank_of()
    within = rank_of[1:] == rank_of[:-1]
    turns = within & (schedule.op[1:] != schedule.op[:-1])
    pauses = within & (timeline.start_s[1:] > timeline.end_s[:-1])
    one_turn = np.all(np.bincount(rank_of[1:][turns], minlength=run.p) == 1)
    return bool(one_turn and np.all(schedule.op[schedule.rank_start[:-1]] == Op.F) and not np.any(pauses & ~turns))


def _more(few: Run, many: Run) -> bool:
    alike = (few.schedule, few.p, few.forward, few.backward) == (many.schedule, many.p, many.forward, many.backward)
    return alike and few.m < many.m


def _diluted(few: Run, many: Run, name: str) -> Claim:
    waits = show(float(few.waits[0]), "number")
    before, after = (show(run.timeline.bubble_fraction, "percent") for run in (few, many))
    return Claim(
        holds=np.ptp([few.waits, many.waits]) == 0 and many.timeline.bubble_fraction < few.timeline.bubble_fraction,
        en=f"More micro-batches dilute the idle time, they do not remove it: under {name} each stage waits {waits} "
        f"units with {few.m} micro-batches and with {many.m}, while the work grows, so the bubble fraction falls "
        f"from {before} to {after}.",
        zh=f"微批次更多只是摊薄空闲，并不能消除它：在 {name} 下，无论 {few.m} 个还是 {many.m} 个微批次，每个阶段都要等"
        f"待 {waits} 个单位；工作变多了，气泡占比因此从 {before} 降到 {after}。",
    )


def _leaner(one: Run, other: Run) -> bool:
    alike = (one.p, one.m, one.forward, one.backward) == (other.p, other.m, other.forward, other.backward)
    return alike and max(other.timeline.peak_inflight) < max(one.timeline.peak_inflight)


def _memory_only(fuller: Run, leaner: Run, names: tuple[str, str]) -> Claim:
    total, fraction = show(leaner.total, "number"), show(leaner.timeline.bubble_fraction, "percent")
    less, more = (max(run.timeline.peak_inflight) for run in (leaner, fuller))
    return Claim(
        holds=fuller.total == leaner.total,
        en=f"{names[1]} takes exactly as long as {names[0]}: {total} units, a bubble fraction of {fraction}. It saves "
        f"memory, not idle time: a stage holds the activations of at most {less} micro-batches at once instead of "
        f"{more}.",
        zh=f"{names[1]} 与 {names[0]} 用时完全相同：{total} 个单位，气泡占比 {fraction}。它省的是显存，不是空闲时间："
        f"一个阶段同时最多保留 {less} 个微批次的激活值，而不是 {more} 个。",
    )
