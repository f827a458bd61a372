"""What the schedules of ``schedule_zoo`` show side by side, as claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from pipesim.demos.claims import Claim
from pipesim.demos.zoo_runs import Specimen, Zoo
from pipesim.report.formats import show

_MOST_NAMES = 8


def claims(zoo: Zoo) -> Iterator[Claim]:
    """In the order they are read; what needs 1F1B or several schedules is left out without them."""
    if len(zoo.ran) < 2:
        return
    usual = next((specimen for specimen in zoo.ran if specimen.name == "1f1b"), None)
    yield _fastest(zoo.ran)
    if usual is not None:
        yield from _within(zoo.ran, usual)
        yield from _leanest(zoo.ran, usual)
    yield _front(zoo)
    yield from _one_step_hides(zoo.ran)
    yield _no_bubble(zoo.ran)
    yield _at_the_bound(zoo.ran)
    yield from _twice(zoo.ran)


def front(zoo: Zoo) -> list[Specimen]:
    """Those that no other beats: is at least as good in makespan, memory and copies, and better in one of them."""
    figures = [(one.makespan, one.held, one.copies) for one in zoo.ran]

    def beats(theirs: tuple[float, ...], mine: tuple[float, ...]) -> bool:
        return theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True))

    return [
        one for one, mine in zip(zoo.ran, figures, strict=True) if not any(beats(theirs, mine) for theirs in figures)
    ]


def _fastest(ran: Sequence[Specimen]) -> Claim:
    """Of several equally fast ones, those that hold least."""
    least = min((one.makespan, one.held) for one in ran)
    best = [one for one in ran if (one.makespan, one.held) == least]
    slowest = max(ran, key=lambda one: one.makespan)
    units, fraction, worst = _units(best[0]), _fraction(best[0]), _fraction(slowest)
    held = show(best[0].held, "number")
    return Claim(
        holds=best[0].makespan < slowest.makespan,
        en=f"The smallest bubble fraction of one step: {_listed(best)} with {fraction} ({units} units), while a rank "
        f"holds the activations of at most {held} micro-batches. The largest: {slowest.name} with {worst}.",
        zh=f"单步气泡占比最小的是 {_listed(best, '、')}：{fraction}（{units} 个单位），一个 rank 最多保留 {held} 个微批次的激活"
        f"值；最大的是 {slowest.name}：{worst}。",
    )


def _within(ran: Sequence[Specimen], usual: Specimen) -> Iterator[Claim]:
    """The fastest that holds no more than 1F1B, neither activations nor parameters."""
    able = [one for one in ran if one.held <= usual.held and one.copies <= usual.copies]
    least = min(one.makespan for one in able)
    best = [one for one in able if one.makespan == least]
    held, before, after = show(usual.held, "number"), _fraction(usual), _fraction(best[0])
    yield Claim(
        holds=least < usual.makespan,
        en=f"1F1B's memory buys more than 1F1B: holding at most its {held} micro-batches, and one copy of the parameters, "
        f"a step takes {_units(best[0])} units instead of {_units(usual)} under {_listed(best)}, a bubble fraction of "
        f"{after} instead of {before}.",
        zh=f"同样的显存可以比 1F1B 更快：最多保留 {held} 个微批次、参数只存一份，{_listed(best, '、')} 只需 "
        f"{_units(best[0])} 个单位，而不是 {_units(usual)} 个，气泡占比为 {after}，而不是 {before}。",
    )


def _leanest(ran: Sequence[Specimen], usual: Specimen) -> Iterator[Claim]:
    """The one that holds least although it runs micro-batches at the same time; of equals the fastest."""
    able = [one for one in ran if one.name != "naive" and one.copies <= usual.copies]
    best = min(able, key=lambda one: (one.held, one.makespan))
    yield Claim(
        holds=best.held < usual.held and best.makespan <= usual.makespan,
        en=f"Less memory need not cost time: {best.name} holds at most {show(best.held, 'number')} micro-batches instead "
        f"of 1F1B's {show(usual.held, 'number')} and takes {_units(best)} units against {_units(usual)}, a bubble "
        f"fraction of {_fraction(best)}.",
        zh=f"省显存不一定费时间：{best.name} 最多保留 {show(best.held, 'number')} 个微批次，1F1B 要保留 "
        f"{show(usual.held, 'number')} 个；用时 {_units(best)} 个单位，1F1B 用 {_units(usual)} 个；气泡占比为 "
        f"{_fraction(best)}。",
    )


def _front(zoo: Zoo) -> Claim:
    best = sorted((one for one in front(zoo) if one.copies == 1), key=lambda one: one.held)
    steps = [f"{one.name} ({show(one.held, 'number')}: {_fraction(one)})" for one in best]
    return Claim(
        holds=1 < len(best) <= _MOST_NAMES,
        en="Which bubble fraction at which memory? With one copy of the parameters only these are not beaten, by "
        f"micro-batches held: {', '.join(steps)}.",
        zh=f"多少显存换多小的气泡占比？参数只存一份时，只有这些没有被别的调度超过（按保留的微批次数）：{'、'.join(_zh(steps))}。",
    )


def _one_step_hides(ran: Sequence[Specimen]) -> Iterator[Claim]:
    """Of all pairs with one makespan, the one whose periods differ most."""
    pairs = [(a, b) for a, b in combinations(ran, 2) if a.makespan == b.makespan and a.period != b.period]
    if not pairs:
        return
    a, b = max(pairs, key=lambda pair: abs(pair[0].period - pair[1].period))
    slow, fast = sorted((a, b), key=lambda one: -one.period)
    periods = [show(one.period, "number") for one in (slow, fast)]
    yield Claim(
        holds=True,
        en=f"One step alone hides a difference: {slow.name} and {fast.name} both take {_units(slow)} units, but when "
        f"steps follow one another without a barrier, one comes every {periods[0]} units under {slow.name} and every "
        f"{periods[1]} under {fast.name}.",
        zh=f"只看一步会掩盖差别：{slow.name} 与 {fast.name} 都用 {_units(slow)} 个单位；但各步首尾相接、没有同步屏障时，"
        f"{slow.name} 每 {periods[0]} 个单位完成一步，{fast.name} 每 {periods[1]} 个单位完成一步。",
    )


def _no_bubble(ran: Sequence[Specimen]) -> Claim:
    none = [one for one in ran if one.steady_bubble == 0]
    work = show(float(none[0].period), "number") if none else ""
    return Claim(
        holds=0 < len(none) < len(ran) and all(one.makespan > one.period for one in none),
        en=f"Without a barrier between steps no rank idles any more under {_listed(none)}: the period is the {work} units "
        "of a rank's work.",
        zh=f"各步之间没有同步屏障时，{_listed(none, '、')} 完全没有空闲：周期就是一个 rank 的工作量 {work} 个单位。",
    )


def _at_the_bound(ran: Sequence[Specimen]) -> Claim:
    reached = [one for one in ran if one.makespan == one.lower_bound]
    return Claim(
        holds=0 < len(reached) < len(ran) and all(one.makespan >= one.lower_bound for one in ran),
        en=f"{len(reached)} of {len(ran)} schedules reach the lower bound of their makespan: with the same stages on the "
        "same ranks, the same pairs and the same split of the backwards, no order is faster.",
        zh=f"{len(ran)} 种调度中有 {len(reached)} 种达到了总时长的下界：阶段放置、配对与反向拆分不变时，没有更快的顺序。",
    )


def _twice(ran: Sequence[Specimen]) -> Iterator[Claim]:
    """Bidirectional pipelines."""
    both = [one for one in ran if one.copies == 2]
    if not both:
        return
    best = min(both, key=lambda one: one.makespan)
    single = min((one for one in ran if one.copies == 1), key=lambda one: one.makespan, default=None)
    if single is None:
        return
    yield Claim(
        holds=True,
        en=f"Running micro-batches both ways keeps every parameter twice ({_listed(both)}): {best.name} takes "
        f"{_units(best)} units; the fastest with one copy, {single.name}, takes {_units(single)}.",
        zh=f"让微批次双向行进要把每个参数存两份（{_listed(both, '、')}）：{best.name} 用 {_units(best)} 个单位；参数只存一份的"
        f"调度中最快的 {single.name} 用 {_units(single)} 个。",
    )


def _units(one: Specimen) -> str:
    return show(one.makespan, "number")


def _fraction(one: Specimen) -> str:
    return show(one.timeline.bubble_fraction, "percent")


def _listed(some: Sequence[Specimen], comma: str = ", ") -> str:
    return comma.join(one.name for one in some)


def _zh(steps: Sequence[str]) -> list[str]:
    return [step.replace(" (", "（").replace(": ", "：").replace(")", "）") for step in steps]
