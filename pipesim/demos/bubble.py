"""Demo: the bubble for growing numbers of stages and micro-batches, simulated and by formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

from pipesim.demos.claims import Claim, Say, observations, speaker
from pipesim.demos.runs import Run, label, row, run_case
from pipesim.report.document import Cell, Column, Section, Table
from pipesim.report.formats import show
from pipesim.results.schema import Row

TOLERANCE = 1e-12
"""Simulated and closed form are equal up to this: sums of floats against one quotient."""

Runs = Mapping[tuple[int, int], Sequence[Run]]
"""One run for each schedule, by (p, m)."""


def bubble(config: Mapping[str, Any]) -> tuple[Section, list[Row]]:
    say, conf = speaker(config["lang"]), config["demo"]["bubble"]
    times = {"forward": conf["forward"], "backward": conf["backward"]}
    runs = {
        (p, m): [run_case("bubble", name, p=p, m=m, **times) for name in conf["schedules"]]
        for p, m in product(conf["p"], conf["m"])
    }
    section = Section(
        title=say("The bubble: how much idle time is left", "气泡：还剩多少空闲时间"),
        blocks=(*_introduction(say), _table(runs, conf, say), *observations(_claims(runs, conf, say), say)),
    )
    return section, [row("bubble", run) for each in runs.values() for run in each]


def formula(p: int, m: int) -> float:
    """Idle / total of p equal stages with m micro-batches under GPipe or 1F1B."""
    return (p - 1) / (m + p - 1)


def _introduction(say: Say) -> tuple[str, ...]:
    return (
        say(
            "How large is the bubble, and how many micro-batches make it small? Each line below is simulated and set "
            "beside the closed form for equal stages, p stages and m micro-batches.",
            "气泡有多大？要多少微批次才能把它变小？下表每一行都是模拟结果，并与各阶段耗时相等时的公式对照：p 是阶段"
            "数，m 是微批次数。",
        ),
    )


def _table(runs: Runs, conf: Mapping[str, Any], say: Say) -> Table:
    names = [label(run.schedule, say) for run in next(iter(runs.values()), ())]
    rows: list[tuple[Cell, ...]] = [
        (
            p,
            m,
            *(run.timeline.bubble_fraction for run in each),
            formula(p, m),
            *(run.timeline.bubble_overhead for run in each[:1]),
        )
        for (p, m), each in runs.items()
    ]
    return Table(
        title=say(
            "Bubble fraction (idle ÷ total) and overhead (idle ÷ useful)",
            "气泡占比（空闲 ÷ 总时间）与开销（空闲 ÷ 有效时间）",
        ),
        columns=(
            Column(title="p", kind="count"),
            Column(title="m", kind="count"),
            *(Column(title=say(f"fraction, {name}", f"占比，{name}"), kind="percent") for name in names),
            Column(title="(p − 1) / (m + p − 1)", kind="percent"),
            *(Column(title=say(f"overhead, {name}", f"开销，{name}"), kind="percent") for name in names[:1]),
        ),
        rows=tuple(rows),
        emphasis=frozenset(k for k, pm in enumerate(runs) if pm in _under_target(runs, conf)),
    )


def _under_target(runs: Runs, conf: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The (p, m) of the p that is looked at whose bubble fraction is below the target, under every schedule."""
    return [
        (p, m)
        for (p, m), each in runs.items()
        if p == conf["look_at"] and each and all(run.timeline.bubble_fraction < conf["target"] for run in each)
    ]


def _claims(runs: Runs, conf: Mapping[str, Any], say: Say) -> Iterator[Claim]:
    if not any(runs.values()):
        return
    difference = max(
        abs(run.timeline.bubble_fraction - formula(run.p, run.m)) for each in runs.values() for run in each
    )
    yield _identity(sum(map(len, runs.values())), difference)
    yield from _alike(runs, say)
    yield from _slots(runs, conf, holds=difference <= TOLERANCE)
    yield from _overhead(runs, conf)
    yield from _no_end(runs)


def _identity(cases: int, difference: float) -> Claim:
    largest = show(difference, "number")
    return Claim(
        holds=difference <= TOLERANCE,
        en=f"In every one of the {cases} simulated cases the bubble fraction equals (p − 1) / (m + p − 1); the largest "
        f"difference is {largest}.",
        zh=f"{cases} 个模拟算例的气泡占比逐一等于 (p − 1) / (m + p − 1)，最大差值为 {largest}。",
    )


def _alike(runs: Runs, say: Say) -> Iterator[Claim]:
    names = [label(run.schedule, say) for run in next(iter(runs.values()))]
    if len(names) < 2:
        return
    yield Claim(
        holds=all(len({run.total for run in each}) == 1 for each in runs.values()),
        en=f"{' and '.join(names)} take equally long everywhere: the order of the actions changes what is kept in "
        "memory, not the bubble fraction.",
        zh=f"{' 与 '.join(names)} 处处用时相同：执行顺序改变的是显存里要保留什么，而不是气泡占比。",
    )


def _slots(runs: Runs, conf: Mapping[str, Any], *, holds: bool) -> Iterator[Claim]:
    p, target = conf["look_at"], f"{100 * conf['target']:g} %"
    asked, enough = [m for q, m in runs if q == p], [m for _, m in _under_target(runs, conf)]
    if not enough:
        return
    listed = ", ".join(map(str, enough))
    yield Claim(
        holds=holds and len(enough) < len(asked) and min(enough) >= 4 * p > 4,
        en="Filling and draining the pipeline costs each stage p − 1 slots, one forward and one backward long, "
        f"whatever m is. So m must be many times p: for p = {p} only m = {listed} of these brings the bubble "
        f"fraction under {target}.",
        zh="无论 m 是多少，流水线的填充与排空都让每个阶段损失 p − 1 个时隙，每个时隙是一次前向加一次反向。所以 m 必须"
        f"是 p 的许多倍：p = {p} 时，表中只有 m = {listed} 使气泡占比低于 {target}。",
    )


def _overhead(runs: Runs, conf: Mapping[str, Any]) -> Iterator[Claim]:
    """Quoted for the p that is looked at and the largest m."""
    p, m = conf["look_at"], max(conf["m"])
    if (p, m) not in runs:
        return
    timeline = runs[p, m][0].timeline
    overhead, fraction = (show(value, "percent") for value in (timeline.bubble_overhead, timeline.bubble_fraction))
    yield Claim(
        holds=all(
            abs(run.timeline.bubble_overhead - (run.p - 1) / run.m) <= TOLERANCE
            for each in runs.values()
            for run in each
        ),
        en="Narayanan et al. (2021) divide idle time by useful time instead and get (p − 1) / m. It is the same idle "
        f"time over another base: for p = {p} and m = {m} an overhead of {overhead} is a bubble fraction of "
        f"{fraction}.",
        zh=f"Narayanan 等人（2021）改用空闲时间 ÷ 有效时间，得到 (p − 1) / m。空闲时间相同，只是分母不同："
        f"p = {p}、m = {m} 时，开销 {overhead} 就是气泡占比 {fraction}。",
    )


def _no_end(runs: Runs) -> Iterator[Claim]:
    """Every further micro-batch helps, ever less; what the simulation leaves out sets the limit."""
    by_p: dict[int, list[Run]] = {}
    for (p, _), each in sorted(runs.items()):
        if p > 1:
            by_p.setdefault(p, []).append(each[0])
    if not by_p:
        return
    few, many = by_p[max(by_p)][0], by_p[max(by_p)][-1]
    before, after = (show(run.timeline.bubble_fraction, "percent") for run in (few, many))
    yield Claim(
        holds=few.m < many.m and all(_falls(column) for column in by_p.values()),
        en=f"Raising m always shrinks the bubble fraction, for p = {few.p} from {before} at m = {few.m} to {after} at "
        f"m = {many.m}, but m cannot grow without end. A larger batch stops paying off beyond the critical batch "
        "size, and a given batch cut thinner makes thin matrix products that use the hardware badly: less bubble is "
        "always traded against efficiency.",
        zh=f"增大 m 总能降低气泡占比：p = {few.p} 时，从 m = {few.m} 的 {before} 降到 m = {many.m} 的 {after}。但 m 不"
        "能无限增大：批量超过临界批量后，再加大就不划算；而批量不变时切得越薄，矩阵乘法就越瘦，硬件利用率越低。减小"
        "气泡总要拿效率去换。",
    )


def _falls(runs: Sequence[Run]) -> bool:
    fractions = [run.timeline.bubble_fraction for run in runs]
    return all(later < earlier for earlier, later in pairwise(fractions))
