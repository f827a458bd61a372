"""The pictures of a sweep that show layouts one by one: trade-offs, and stacked seconds and bytes of the best and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from pipesim.report.document import Axis, Bars, Chart, Column, Mark, Picture, Table
from pipesim.report.formats import show
from pipesim.report.ranking import Named, Pace, Row, front
from pipesim.report.say import Say
from pipesim.report.sweep.tables import parts
from pipesim.report.words import MEMORY_WORDS, TIME_GROUPS

_BARS = 12
_EXACT = 300
"""Marks that stand each for a layout; of more, those beyond are gathered in cells."""
_CELLS = (48, 32)
"""Of a chart's plane, across and up."""
_FRONT_ROWS, _GPU_GROUPS = 40, 5
_FAR = 4
"""Times its limit a layout's memory may be before the axis of memory is logarithmic: what fits would be squeezed."""

Value = Callable[[Row], float]


def _memory(row: Row) -> float:
    return float(row["memory_bytes"])


def _bubble(row: Row) -> float:
    return float(row["bubble_fraction"])


def _sent(row: Row) -> float:
    return float(sum(row[each] for each in ("tp_bytes_per_gpu", "dp_bytes_per_gpu", "pp_bytes_per_gpu")))


def bars(order: Sequence[Row], named: Named, say: Say, tail: str) -> tuple[Picture, ...]:
    """Of the fastest, the fastest of each other schedule, and the nearest of those that do not fit."""
    chosen = _chosen(order)
    shown = [(row, named(row) + ("" if row["fits"] else say(" (does not fit)", "（放不下）"))) for row in chosen]
    limits = {row["memory_limit_bytes"] for row in chosen}
    return (
        Bars(
            slug=f"seconds{tail}",
            title=say("Step time by item", "步时的组成"),
            caption=say(
                "The fastest layouts that fit from the top, then the fastest of every other schedule and the "
                "nearest that does "
                "not fit. See which item makes a layout slower than the one above it; a bar's length is its step.",
                "自上而下为放得下的最快布局，然后是其他每种调度的最快者和最接近放得下的布局。"
                "看哪一项使它比上面的慢；条的全长即步时。",
            ),
            x=Axis(title=say("seconds of a step", "一步的秒数"), kind="seconds"),
            items=tuple(say(*words) for words, _ in TIME_GROUPS),
            bars=tuple((name, parts(row)) for row, name in shown),
        ),
        Bars(
            slug=f"bytes{tail}",
            title=say("Memory by item", "显存的组成"),
            caption=say(
                "What the heaviest rank of the same layouts holds. A bar beyond the dashed line does not fit; "
                "what is left of it "
                "is room for a larger micro-batch or less recomputation.",
                "同样这些布局中最重 rank 的占用。超过虚线即放不下；虚线以内的余量可用于更大的微批或更少的重计算。",
            ),
            x=Axis(title=say("memory of the heaviest rank", "最重 rank 的显存"), kind="bytes"),
            items=tuple(say(*words) for words in MEMORY_WORDS.values()),
            bars=tuple((name, tuple(row[f"{item}_bytes"] for item in MEMORY_WORDS)) for row, name in shown),
            x_limit=_limit(limits, say),
        ),
    )


def _chosen(order: Sequence[Row]) -> list[Row]:
    fits = [row for row in order if row["fits"]]
    first = fits[:_BARS]
    known = {row["schedule"] for row in first}
    others: dict[str, Row] = {}
    for row in fits[_BARS:]:
        if row["schedule"] not in known:
            others.setdefault(row["schedule"], row)
    lost = [row for row in order if not row["fits"]]
    return [*first, *list(others.values())[:4], *(lost[:1] if fits else lost[:_BARS])]


def _limit(limits: set[float], say: Say) -> tuple[float, str] | None:
    if len(limits) != 1:
        return None
    (limit,) = limits
    return limit, say(f"{show(limit, 'bytes')} a GPU", f"每 GPU {show(limit, 'bytes')}")


def trade_offs(order: Sequence[Row], pace: Pace, named: Named, say: Say, tail: str) -> Iterator[Table | Picture]:
    """The Pareto front as a table and in the plane of pace and memory, and two charts of why."""
    fits = [row for row in order if row["fits"]]
    best = front(fits, pace.of)
    if best:
        yield _front_table(best, pace, named, say)
    limit = _limit({row["memory_limit_bytes"] for row in order}, say)
    memory = Axis(
        title=say("memory of the heaviest rank", "最重 rank 的显存"), kind="bytes",
        log=any(row["memory_bytes"] > _FAR * row["memory_limit_bytes"] for row in order),
    )  # fmt: skip
    bubble = Axis(title=say("bubble fraction (idle/total)", "气泡占比（空闲/总）"), kind="percent")
    sent = Axis(title=say("sent per GPU and step", "每 GPU 每步发送"), kind="bytes", log=True)
    on_front = {id(row) for row in best}
    yield Chart(
        slug=f"time-against-memory{tail}",
        title=say("Pareto front: time against memory", "帕累托前沿：时间与显存"),
        caption=say(
            "The choice itself: faster is down, roomier is left. No layout beats one of the front in time, "
            "memory and number of "
            "GPUs at once; everything else can be left aside.",
            "选择本身：向下更快，向左更省显存。没有布局能在时间、显存和 GPU 数上同时胜过前沿上的布局；其余的可以不看。",
        ),
        x=memory,
        y=Axis(title=pace.title, kind=pace.kind, log=True),
        marks=_marks(order, _memory, pace.of, named, say, _front_group(best, on_front, say), log=(memory.log, True)),
        x_limit=limit,
    )
    yield Chart(
        slug=f"bubble-against-memory{tail}",
        title=say("Bubble against memory", "气泡与显存"),
        caption=say(
            "Every layout: memory of its heaviest rank and its share of idle time. Down and left is better.",
            "每个布局：最重 rank 的显存与空闲时间占比。左下更好。",
        ),
        x=memory,
        y=bubble,
        marks=_marks(order, _memory, _bubble, named, say, log=(memory.log, False)),
        x_limit=limit,
    )
    yield Chart(
        slug=f"communication-against-bubble{tail}",
        title=say("Communication against bubble", "通信与气泡"),
        caption=say(
            "What each GPU sends in a step (tensor, data, pipeline) and its share of idle time. Down and left "
            "is better.",
            "每个 GPU 一步发送的数据（张量、数据、流水线）与空闲时间占比。左下更好。",
        ),
        x=bubble,
        y=sent,
        marks=_marks(order, _bubble, _sent, named, say, log=(False, True)),
    )


def _front_table(best: Sequence[Row], pace: Pace, named: Named, say: Say) -> Table:
    shown, count = best[:_FRONT_ROWS], len(best)
    cut = say(f" The first {_FRONT_ROWS} of {count:,}.", f"{count:,} 个中的前 {_FRONT_ROWS} 个。")
    return Table(
        title=say("Pareto front of time, memory and GPUs", "时间、显存与 GPU 数的帕累托前沿"),
        columns=(
            Column(title=say("layout", "布局")),
            Column(title=say("GPUs", "GPU 数"), kind="count"),
            Column(title=pace.title, kind=pace.kind),
            Column(title=say("memory", "显存"), kind="bytes"),
            Column(title="MFU", kind="percent"),
        ),
        rows=tuple((named(row), row["gpus"], pace.of(row), row["memory_bytes"], row["mfu"]) for row in shown),
        note=say(
            "No other layout that fits is as good in all three and better in one.",
            "没有其他放得下的布局三项都不差且有一项更好。",
        )
        + (cut if count > _FRONT_ROWS else ""),
    )


def _front_group(best: Sequence[Row], on_front: set[int], say: Say) -> Callable[[Row], str]:
    sizes = {row["gpus"] for row in best}
    by_gpus = 1 < len(sizes) <= _GPU_GROUPS

    def group(row: Row) -> str:
        if id(row) not in on_front:
            return _fitting(row, say)
        return say("on the front", "在前沿上") + (
            say(f", {row['gpus']:,} GPUs", f"，{row['gpus']:,} 个 GPU") if by_gpus else ""
        )

    return group


def _fitting(row: Row, say: Say) -> str:
    return say("fits", "放得下") if row["fits"] else say("does not fit", "放不下")


def _marks(
    order: Sequence[Row], x: Value, y: Value, named: Named, say: Say, group: Callable[[Row], str] | None = None,
    *, log: tuple[bool, bool] = (False, False),
) -> tuple[Mark, ...]:  # fmt: skip
    """The first ones each, and whatever is on a front; the others gathered: one mark where several stand close.

    ``log`` says of x and of y whether their axis is logarithmic.
    """
    group = group or (lambda row: _fitting(row, say))
    plain = {_fitting(row, say) for row in order}
    exact = [k for k, row in enumerate(order) if k < _EXACT or group(row) not in plain]
    exact.sort(key=lambda k: group(order[k]) in plain)  # names go to the first ones
    chosen = set(exact)
    marks = [Mark(x=x(row), y=y(row), label=named(row), group=group(row)) for row in (order[k] for k in exact)]
    rest = [row for k, row in enumerate(order) if k not in chosen]
    return (*marks, *_gathered(rest, x, y, named, say, log))


def _gathered(
    rows: Sequence[Row], x: Value, y: Value, named: Named, say: Say, log: tuple[bool, bool]
) -> Iterator[Mark]:
    """The first row of every cell of the plane, with how many there are."""
    if not rows:
        return
    across, up = (_cells([of(row) for row in rows], n, far) for of, n, far in zip((x, y), _CELLS, log, strict=True))
    cells: dict[tuple[int, int, str], list[Row]] = {}
    for row, i, j in zip(rows, across, up, strict=True):
        cells.setdefault((i, j, _fitting(row, say)), []).append(row)
    for (*_, name), members in cells.items():
        more = (
            say(f" and {len(members) - 1:,} close by", f" 及附近 {len(members) - 1:,} 个") if len(members) > 1 else ""
        )
        yield Mark(x=x(members[0]), y=y(members[0]), label=named(members[0]) + more, group=name)


def _cells(values: Sequence[float], cells: int, log: bool) -> list[int]:
    values = [math.log(max(value, 1e-300)) for value in values] if log else values
    low, high = min(values), max(values)
    size = (high - low) / cells or 1.0
    return [min(cells - 1, int((value - low) / size)) for value in values]
