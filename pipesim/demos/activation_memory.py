"""Demo: how many micro-batches' activations each stage keeps, and what that costs in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.demos.claims import Claim, Say, counted, observations, speaker
from pipesim.demos.runs import Run, label, row, run_case
from pipesim.report.document import Column, Section, Table
from pipesim.report.formats import show
from pipesim.results.schema import Row
from pipesim.schedules import make_schedule, problems
from pipesim.simulate import peak_held


def activation_memory(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    say, conf = speaker(config["lang"]), config["demo"]["activation_memory"]
    sizes = {key: conf[key] for key in ("p", "m", "forward", "backward")}
    runs = [run_case("activation_memory", name, **sizes) for name in conf["schedules"]]
    section = Section(
        title=say("Activation memory: what each stage must keep", "激活值显存：每个阶段要保留多少"),
        blocks=(
            say(
                "Small bubbles want many micro-batches, and each keeps its activations on a stage from its forward "
                "to its backward. How many must a stage hold at once?",
                "想让气泡小就要有许多微批次，而每个微批次的激活值从前向到反向都要留在阶段上。一个阶段同时要保留多少"
                "份？",
            ),
            _table(runs, say),
            *observations(_claims(runs), say),
        ),
    )
    return section, [row("activation_memory", run) for run in runs]


def _table(runs: Sequence[Run], say: Say) -> Table:
    sizes = {(run.p, run.m) for run in runs}
    return Table(
        title=say("Micro-batches whose activations are held at once", "同时保留激活值的微批次数")
        + "".join(
            say(f": {counted(p, 'stage')}, {counted(m, 'micro-batch')}", f"：{p} 个阶段，{m} 个微批次")
            for p, m in sizes
        ),
        columns=(
            Column(title=say("schedule", "调度")),
            Column(title=say("most on each stage", "各阶段峰值")),
            Column(title=say("all stages", "各阶段合计"), kind="count"),
            Column(title=say("total time, units", "总时间（单位）"), kind="number"),
            Column(title=say("bubble fraction", "气泡占比"), kind="percent"),
        ),
        rows=tuple(
            (label(run.schedule, say), peaks, sum(peaks), run.total, run.timeline.bubble_fraction)
            for run in runs
            for peaks in (run.timeline.peak_inflight,)
        ),
        note=say(
            "Stages from first to last. Bubble fraction: idle time ÷ total time, over all stages.",
            "阶段按从前到后排列。气泡占比：所有阶段的空闲时间 ÷ 总时间。",
        ),
    )


def _claims(runs: Sequence[Run]) -> Iterator[Claim]:
    by_name = {run.schedule: run for run in runs}
    gpipe, alternating = by_name.get("gpipe"), by_name.get("1f1b")
    if gpipe is not None and alternating is not None:
        yield _held(gpipe, alternating)
        yield _same_time(gpipe, alternating)
    if alternating is not None:
        yield _law(alternating)
    if gpipe is not None and alternating is not None:
        yield _default(gpipe, alternating)


def _held(gpipe: Run, alternating: Run) -> Claim:
    full, lean = gpipe.timeline.peak_inflight, alternating.timeline.peak_inflight
    return Claim(
        holds=set(full) == {gpipe.m} and sum(lean) < sum(full),
        en=f"GPipe runs all {gpipe.m} forwards before the first backward, so every stage ends up holding all {gpipe.m} "
        f"micro-batches; under 1F1B the stages hold at most {_listed(lean)}.",
        zh=f"GPipe 在第一个反向之前跑完全部 {gpipe.m} 个前向，所以每个阶段都要保留全部 {gpipe.m} 个微批次；"
        f"1F1B 下各阶段最多保留 {_listed(lean)} 个。",
    )


def _same_time(gpipe: Run, alternating: Run) -> Claim:
    total, fraction = show(gpipe.total, "number"), show(gpipe.timeline.bubble_fraction, "percent")
    return Claim(
        holds=gpipe.total == alternating.total,
        en=f"The saving costs no time: both take {total} units, a bubble fraction of {fraction}.",
        zh=f"省下显存并不多花时间：两者都用 {total} 个单位，气泡占比 {fraction}。",
    )


def _law(run: Run) -> Claim:
    """Checked at twice as many micro-batches too."""
    return Claim(
        holds=_keeps_the_law(run) and run.m > 1,
        en="Once steady, 1F1B frees one activation with every backward before the next forward stores one: stage s "
        f"(from 0) holds at most p − s micro-batches, whatever m is. With {2 * run.m} micro-batches instead of "
        f"{run.m} the stages still hold {_listed(run.timeline.peak_inflight)}.",
        zh="进入稳态后，1F1B 每做一次反向就释放一份激活值，然后下一次前向才存入新的一份：阶段 s（从 0 数起）最多保留 "
        f"p − s 个微批次，与 m 无关。微批次从 {run.m} 个增加到 {2 * run.m} 个，各阶段仍是 "
        f"{_listed(run.timeline.peak_inflight)} 个。",
    )


def _keeps_the_law(run: Run) -> bool:
    law = tuple(run.p - stage for stage in range(run.p))
    if problems(run.schedule, run.p, 2 * run.m):
        return False
    doubled = make_schedule(run.schedule, p=run.p, m=2 * run.m)
    return run.timeline.peak_inflight == law == tuple(peak_held(doubled, [1] * doubled.stages))


def _default(gpipe: Run, alternating: Run) -> Claim:
    less, more = (max(run.timeline.peak_inflight) for run in (alternating, gpipe))
    return Claim(
        holds=_keeps_the_law(alternating) and alternating.total == gpipe.total and less < more,
        en=f"Equally fast with a peak of {less} instead of {more}: that is why Megatron-LM and DeepSpeed use 1F1B "
        "(PipeDream-Flush) by default.",
        zh=f"用时相同，峰值却是 {less} 而不是 {more}：这就是 Megatron-LM 与 DeepSpeed 默认采用 1F1B（PipeDream-Flush）"
        "的原因。",
    )


def _listed(peaks: tuple[int, ...]) -> str:
    return show(peaks, "text").replace(" ", ", ")
