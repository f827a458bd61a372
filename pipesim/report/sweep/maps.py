"""The pictures of a sweep along its axes: t x p maps, bubble and step time against the micro-batch, parallel coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipesim.report.document import Axis, Curves, HeatMap, Line, Panel, Parallel, Picture
from pipesim.report.ranking import IDENTITY, Named, Pace, Row, best_values, families
from pipesim.report.say import Say
from pipesim.report.words import COLUMN_WORDS

TOO_BIG, BROKEN = "▲", "×"
"""Signs for squares of which no layout fits, or none keeps the rules."""

_PANELS, _SIDE, _LINES, _ROWS, _CHOICES = 6, 16, 6, 150, 16


def maps(rows: Sequence[Row], pace: Pace, named: Named, say: Say, tail: str) -> Iterator[Picture]:
    """t x p, a panel for every micro-batch, and for every d where t and p do not decide it. ``rows`` are ranked, with
    those that break rules behind them.
    """
    rows = [row for row in rows if isinstance(row["t"], int) and isinstance(row["p"], int)]
    if len({row["t"] for row in rows}) < 2 or len({row["p"] for row in rows}) < 2:
        return
    yield _map(rows, "micro_batch", pace, named, say, f"map-micro-batch{tail}")
    chosen = {(row["t"], row["p"], row["d"]) for row in rows if row["d"]}
    if len(chosen) > len({(t, p) for t, p, _ in chosen}):
        yield _map([row for row in rows if row["d"]], "d", pace, named, say, f"map-d{tail}")


def _map(rows: Sequence[Row], by: str, pace: Pace, named: Named, say: Say, slug: str) -> HeatMap:
    ts, ps = best_values(rows, "t", _SIDE), best_values(rows, "p", _SIDE)
    every = len({row[by] for row in rows if row[by] is not None})
    panels = best_values(rows, by, _PANELS)
    squares: dict[tuple[Any, Any, Any], Row] = {}
    for row in rows:
        squares.setdefault((row[by], row["t"], row["p"]), row)
    word = say(*COLUMN_WORDS[by])
    cut = (
        say(f" The {_PANELS} best of {every} are shown.", f"只显示 {every} 个中最好的 {_PANELS} 个。")
        if every > _PANELS
        else ""
    )
    return HeatMap(
        slug=slug,
        title=say(f"Best {pace.title} for each t and p, by {word}", f"每组 t、p 的最优{pace.title}，按{word}"),
        caption=say(
            "Each square is the fastest layout that fits with this t and p, whatever else varies; a panel "
            f"for each {word}. Bright "
            f"is fast, ★ the fastest of all. {TOO_BIG}: none fits; {BROKEN}: none keeps the rules; empty: not "
            "asked, or not shown.",
            f"每格为该 t、p 下放得下的最快布局，其余量任取；每个{word}一图。亮为快，★ 为全部最快。{TOO_BIG}："
            f"都放不下；{BROKEN}：都违反规则；"
            "空白：未问或未显示。",
        )
        + cut,
        x_title="t",
        y_title="p",
        xs=tuple(map(str, ts)),
        ys=tuple(map(str, ps)),
        value=Axis(title=pace.title, kind=pace.kind),
        panels=tuple(
            Panel(
                title=f"{word} {value}",
                squares=tuple(tuple(_square(squares.get((value, t, p)), pace) for t in ts) for p in ps),
                names=tuple(tuple(_name(squares.get((value, t, p)), named, say) for t in ts) for p in ps),
            )
            for value in panels
        ),
    )  # fmt: skip


def _square(row: Row | None, pace: Pace) -> float | str:
    if row is None:
        return ""
    if row["status"] in ("invalid", "failed"):
        return BROKEN
    return pace.of(row) if row["fits"] else TOO_BIG


def _name(row: Row | None, named: Named, say: Say) -> str:
    if row is None:
        return ""
    if row["status"] in ("invalid", "failed"):
        return named(row) + say(": breaks rules", "：违反规则")
    return named(row) + ("" if row["fits"] else say(": does not fit", "：放不下"))


def micro_batches(order: Sequence[Row], named: Named, say: Say, tail: str) -> Iterator[Picture]:
    """Layouts that differ in the micro-batch alone, at a fixed global batch: the bubble, the step, and its two sides."""
    found = [(each, best) for each in families(order) if (best := _fastest(each)) is not None]
    found.sort(key=lambda each: -each[0][each[1]]["tokens_per_s"])
    if not found:
        return
    shown, names = found[:_LINES], _family_names([each for each, _ in found[:_LINES]], named)
    micro = Axis(title=say("micro-batch (sequences)", "微批大小（序列）"), kind="count", log=True)
    step = Axis(title=say("step time", "步时"), kind="seconds")
    optimum = _optimum(shown[0], names[0], say)
    yield Curves(
        slug=f"bubble-against-m{tail}",
        title=say("Bubble against m, the micro-batches of a step", "气泡与每步微批数 m"),
        caption=say(
            "The global batch stays, so a larger micro-batch means fewer of them: from right to left the "
            "bubble grows as "
            f"(p-1)/(m+p-1) of equal stages. A star is each layout's fastest micro-batch, hollow does not fit. {optimum}",
            "全局批量不变，微批越大个数越少：自右向左，气泡按 (p-1)/(m+p-1) 增长。星号是各布局最快的微批，"
            f"空心为放不下。{optimum}",
        ),
        x=Axis(title=say("m, micro-batches per replica and step", "m，每副本每步的微批数"), kind="count", log=True),
        y=Axis(title=say("bubble fraction (idle/total)", "气泡占比（空闲/总）"), kind="percent"),
        lines=_lines(shown, names, named, "num_microbatches", "bubble_fraction"),
    )
    yield Curves(
        slug=f"step-against-micro-batch{tail}",
        title=say("Step time against the micro-batch", "步时与微批大小"),
        caption=say(
            "Larger micro-batches make kernels faster and the bubble longer; where the two cross lies the "
            "optimum (star). Hollow "
            f"does not fit. {optimum}",
            f"微批越大，算子越快，气泡越长；两者相抵处为最优（星号）。空心为放不下。{optimum}",
        ),
        x=micro,
        y=step,
        lines=_lines(shown, names, named, "micro_batch", "step_time_s"),
    )
    yield _two_sides(shown[0], names[0], named, micro, step, say, tail)


def _two_sides(
    family: tuple[list[Row], int], name: str, named: Named, micro: Axis, step: Axis, say: Say, tail: str
) -> Curves:
    members, best = family
    sides: tuple[tuple[str, Callable[[Row], float]], ...] = (
        (say("the whole step", "整步"), lambda row: row["step_time_s"]),
        (say("working and communicating", "计算与通信"), lambda row: row["step_time_s"] - row["bubble_s"]),
        (say("bubble", "气泡"), lambda row: row["bubble_s"]),
    )
    hollow = frozenset(k for k, row in enumerate(members) if not row["fits"])
    labels = tuple(named(row) for row in members)
    return Curves(
        slug=f"two-sides-of-the-micro-batch{tail}",
        title=say(f"What the micro-batch trades, {name}", f"微批大小的取舍，{name}"),
        caption=say(
            "Of the fastest layout: what falls as the micro-batch grows, what rises, and their sum.",
            "以最快的布局为例：随微批增大而减少的、增加的，以及两者之和。",
        ),
        x=micro,
        y=step,
        lines=tuple(
            Line(
                name=side,
                points=tuple((row["micro_batch"], of(row)) for row in members),
                labels=labels,
                hollow=hollow,
                best=best if k == 0 else None,
            )
            for k, (side, of) in enumerate(sides)
        ),
    )


def _fastest(members: Sequence[Row]) -> int | None:
    """Of those that fit, the first of equals."""
    fits = [k for k, row in enumerate(members) if row["fits"]]
    return min(fits, key=lambda k: members[k]["step_time_s"]) if fits else None


def _family_names(members: Sequence[Sequence[Row]], named: Named) -> list[str]:
    """A layout's name without the micro-batch."""
    return [
        " ".join(word for word in named(each[0]).split() if word != f"b{each[0]['micro_batch']}") for each in members
    ]


def _optimum(family: tuple[list[Row], int], name: str, say: Say) -> str:
    members, best = family
    size, m = members[best]["micro_batch"], members[best]["num_microbatches"]
    slower = members[best + 1] if best + 1 < len(members) else None
    if slower is None:
        return say(
            f"{name} is fastest at the largest asked, {size} (m = {m}).",
            f"{name} 在问到的最大微批 {size}（m = {m}）最快。",
        )
    why = (
        say("the next does not fit", "更大的放不下") if not slower["fits"] else say("the next is slower", "更大的更慢")
    )
    return say(f"{name} is fastest at {size} (m = {m}); {why}.", f"{name} 在微批 {size}（m = {m}）最快；{why}。")


def _lines(
    shown: Sequence[tuple[list[Row], int]], names: Sequence[str], named: Named, x: str, y: str
) -> tuple[Line, ...]:
    return tuple(
        Line(
            name=name,
            points=tuple((row[x], row[y]) for row in members),
            labels=tuple(named(row) for row in members),
            hollow=frozenset(k for k, row in enumerate(members) if not row["fits"]),
            best=best,
        )
        for (members, best), name in zip(shown, names, strict=True)
    )


def parallel(order: Sequence[Row], varied: Sequence[str], pace: Pace, say: Say, tail: str) -> Iterator[Picture]:
    """Where three dimensions or more vary: one line for each of the best layouts."""
    fits = [row for row in order if row["fits"]][:_ROWS]
    names = [name for name in (*varied, "gpus") if name in IDENTITY or name == "gpus"]
    values = {name: sorted({row[name] for row in fits}, key=_rising) for name in names}
    names = [name for name in names if 1 < len(values[name]) <= _CHOICES]
    if len(names) < 3 or len(fits) < 3:
        return
    yield Parallel(
        slug=f"parallel{tail}",
        title=say("The best layouts across all dimensions", "最好的布局在各维度上的取值"),
        caption=say(
            f"A line for each of the {len(fits)} fastest layouts that fit, orange the fastest and grey the "
            "slowest of them. Where "
            "orange lines meet, that value matters; where they spread, it does not. In the page, drag along "
            "an axis to pick lines.",
            f"放得下的最快 {len(fits)} 个布局各一条线，橙色最快，灰色最慢。橙线汇聚处该取值重要，"
            "散开处不重要。网页中可沿轴拖动以筛选。",
        ),
        axes=(
            *(Axis(title=say(*COLUMN_WORDS[name]), kind="text") for name in names),
            Axis(title=say("memory", "显存"), kind="bytes"),
            Axis(title=pace.title, kind=pace.kind),
        ),
        choices=(*(tuple(map(str, values[name])) for name in names), (), ()),
        rows=tuple((*(str(row[name]) for name in names), row["memory_bytes"], pace.of(row)) for row in fits),
    )


def _rising(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value
