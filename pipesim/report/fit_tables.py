"""Does it fit: what would make it, on which GPUs it does, and what every rank holds at its peak, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipesim.report.document import Cell, Column, Table
from pipesim.report.formats import show
from pipesim.report.ranking import Named, Row
from pipesim.report.say import Say
from pipesim.report.words import MEMORY_WORDS
from pipesim.simulate.memory import curve, held_change
from pipesim.simulate.timeline import Timeline

SIZES_GB = (40, 80, 96, 141, 192)
"""Of GPUs on the market: A100 of 40 and 80 GB, GH200, H200, MI300X (their data sheets)."""

KIND_WORDS = {
    "t": ("more tensor ranks", "更多张量 rank"),
    "p": ("more stages", "更多流水线段"),
    "c": ("more context ranks", "更多上下文 rank"),
    "zero": ("a higher ZeRO stage", "更高的 ZeRO 阶段"),
    "sequence_parallel": ("sequence parallelism", "序列并行"),
    "micro_batch": ("a smaller micro-batch", "更小的微批"),
    "recompute": ("more recomputation", "更多重计算"),
    "recompute_layers": ("some layers run again whole", "部分层整体重算"),
    "schedule": ("another schedule", "换调度"),
    "v": ("other virtual stages", "换虚拟段数"),
    "gpus": ("more GPUs", "更多 GPU"),
    "memory": ("larger GPUs", "更大的 GPU"),
}

WayOut = Mapping[str, Any]
"""``plan.fit.Fit`` as plain data."""


def way_out(found: WayOut, say: Say) -> str:
    """The cheapest change on the same machines, in a sentence."""
    asked, best = found["asked"], found["cheapest"]
    if best is None:
        elsewhere = say(" Other machines do, see below.", "换机器可以，见下表。") if found["changes"] else ""
        return say(
            f"On these machines no single change and no pair that was tried makes it fit.{elsewhere}",
            f"在这些机器上，试过的任何单项或两项改变都放不下。{elsewhere}",
        )
    held, step = show(best["row"]["memory_bytes"], "bytes"), show(best["row"]["step_time_s"], "seconds")
    slower = _more(best["row"]["step_time_s"] / asked["step_time_s"], say)
    return say(
        f"The cheapest way to make it fit on the same machines is {_settings(best)}: {held}, {step} a step, {slower} than "
        "asked.",
        f"同样机器上最省的办法是 {_settings(best)}：{held}，每步 {step}，比原来{slower}。",
    )


def ways_out(found: Sequence[WayOut], named: Named, say: Say) -> Table:
    """Of each layout the smallest change of each kind that makes it fit alone, and the pair where none does."""
    several = len(found) > 1
    rows: list[tuple[Cell, ...]] = []
    for each in found:
        asked = each["asked"]
        for change in [*each["changes"], *([each["pair"]] if each["pair"] else [])]:
            row = change["row"]
            time = row["step_time_s"] / asked["step_time_s"]
            kinds = say(" and ", "与").join(say(*KIND_WORDS[kind]) for kind in change["kinds"])
            figures = (row["memory_bytes"], row["memory_limit_bytes"], row["step_time_s"], time - 1)
            cost = time * row["gpus"] / asked["gpus"] - 1
            rows.append((*([named(asked)] if several else []), kinds, _settings(change), *figures, cost))
    return Table(
        title=say("What would make it fit, each change alone", "怎样才放得下（各改变单独计算）"),
        columns=(
            *([Column(title=say("layout", "布局"))] if several else []),
            Column(title=say("change", "改变")),
            Column(title=say("settings", "设置")),
            Column(title=say("memory", "显存"), kind="bytes"),
            Column(title=say("of", "上限"), kind="bytes"),
            Column(title=say("step", "步时"), kind="seconds"),
            Column(title=say("more time", "多用时间"), kind="percent"),
            Column(title=say("more GPU time", "多用 GPU 时间"), kind="percent"),
        ),
        rows=tuple(rows),
        slug="ways-out",
        note=say(
            "The smallest change of its kind that does, against the asked layout; a kind that is missing here does not do "
            "alone. All leave the share headroom of the memory free. Larger GPUs are taken as equally fast. Two settings of "
            "two kinds stand together where no change on the same machines does alone. A partition that was written for "
            "another number of stages gives way to balanced.",
            "各类中最小的够用改变，与原布局相比；未列出的类别单独不够。都留出 headroom 那一份显存。更大的 GPU 按同样快计。"
            "同样机器上单项都不够时，给出最省的两项组合。为别的段数写的划分改用 balanced。",
        ),
    )


def sizes(row: Row, say: Say) -> Table:
    """On which GPUs the layout fits, all else alike."""
    return Table(
        title=say("On which GPUs it fits", "在哪些 GPU 上放得下"),
        columns=(
            Column(title=say("GPU memory", "GPU 显存"), kind="bytes"),
            Column(title=say("fits", "放得下")),
            Column(title=say("left", "剩余"), kind="bytes"),
        ),
        rows=tuple((size * 1e9, say(*fits_on(row, size * 1e9)), size * 1e9 - row["memory_bytes"]) for size in SIZES_GB),
        slug="gpu-sizes",
        note=say(
            f"Surely and no: all of the 90 % interval, {_interval(row)}, is below or above. Probably (not): the estimate is.",
            f"“一定”与“不”：90 % 区间 {_interval(row)} 全在其下或其上；“大概”按估计值判断。",
        ),
    )


def fits_on(row: Row, size_bytes: float) -> tuple[str, str]:
    """Surely, probably, probably not or no, in both languages; without an interval the estimate is taken for sure."""
    low, high = (row[f"memory_{end}_bytes"] or row["memory_bytes"] for end in ("lo", "hi"))
    if high <= size_bytes:
        return "surely", "一定"
    if low > size_bytes:
        return "no", "不"
    return ("probably", "大概") if row["memory_bytes"] <= size_bytes else ("probably not", "大概不")


class Peak(NamedTuple):
    """When a rank holds most activations, in seconds, the action that begins then, and how many and how many bytes it holds."""

    at_s: float
    action: str
    inflight: int
    bytes: float


def peak(timeline: Timeline, stage_bytes: Sequence[float], rank: int) -> Peak | None:
    """The first such moment; None for a rank that keeps nothing. ``stage_bytes`` are of one micro-batch on each stage."""
    schedule, one = timeline.schedule, held_change(timeline.schedule)
    weights = np.array(stage_bytes)[schedule.stage] / schedule.segments
    when_s, held = curve(schedule, timeline.start_s, timeline.end_s, one * weights, rank)
    if not len(held):
        return None
    first = int(np.argmax(held >= held.max() * (1 - 1e-9)))
    start, stop = (int(each) for each in schedule.rank_start[rank : rank + 2])
    stored = np.flatnonzero((one > 0) & (timeline.start_s <= when_s[first]))
    stored = stored[(start <= stored) & (stored < stop)]
    freed = ((one < 0) & (timeline.end_s <= when_s[first]))[start:stop].sum()
    at_s = float(when_s[first] - timeline.start_s.min())
    return Peak(at_s, str(schedule.action(int(stored[-1]))), int(len(stored) - freed), float(held[first]))


def peaks(row: Row, timeline: Timeline, held: Sequence[Mapping[str, float]], say: Say) -> Table:
    """When each rank holds most, and what that is made of; ``held`` are the items of each rank in bytes."""
    stage_bytes = row["stage_activation_bytes"]
    lines: list[tuple[Cell, ...]] = []
    for rank, items in enumerate(held):
        found = peak(timeline, stage_bytes, rank) or Peak(0.0, "", 0, 0.0)
        asked = sum(items[item] for item in items if item not in ("slack", "context"))
        flying = found.bytes / (1 + (items["slack"] / asked if asked else 0.0))
        parts = {**items, "in flight": flying, "at work": max(0.0, float(round(items["activation"] - flying)))}
        lines.append((rank, sum(items.values()), found.at_s, found.action, found.inflight, *(parts[k] for k in _PARTS)))
    shown = [k for k, part in enumerate(_PARTS) if any(line[5 + k] for line in lines)]
    words = {**MEMORY_WORDS, "in flight": ("in flight", "在途"), "at work": ("at work", "正在计算")}
    return Table(
        title=say("The peak of every rank: when, and of what", "每个 rank 的峰值：何时、由什么构成"),
        columns=(
            Column(title="rank", kind="count"),
            Column(title=say("peak", "峰值"), kind="bytes"),
            Column(title=say("at", "时刻"), kind="seconds"),
            Column(title=say("begins", "开始的动作")),
            Column(title=say("activations in flight", "在途激活数"), kind="count"),
            *(Column(title=say(*words[_PARTS[k]]), kind="bytes") for k in shown),
        ),
        rows=tuple((*line[:5], *(line[5 + k] for k in shown)) for line in lines),
        slug="peaks",
        note=say(
            "The first moment of the timeline at which what a rank has in flight weighs most, and the action that begins then. "
            "In flight: what micro-batches keep between forward and backward, of one stage each. At work: what the backward of "
            "one layer brings back. Stages of equal work hold unequal memory, since the first ones wait longest for their "
            "backwards.",
            "时间线上该 rank 在途最重的最早时刻，以及此刻开始的动作。在途：微批在前向与反向之间保留的，每个算一个段。"
            "正在计算：一层反向时取回的。各段工作量相等时显存仍不等，因为前面的段等反向最久。",
        ),
    )


_PARTS = ("weights", "gradients", "optimizer", "in flight", "at work", "logits", "buffers", "slack", "context")


def _settings(change: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={'null' if value is None else value}" for key, value in change["settings"].items())


def _more(ratio: float, say: Say) -> str:
    if ratio < 1:
        return say(f"{show(1 - ratio, 'percent')} less", f"少 {show(1 - ratio, 'percent')}")
    return say(f"{show(ratio - 1, 'percent')} more", f"多 {show(ratio - 1, 'percent')}")


def _interval(row: Row) -> str:
    low, high = (row[f"memory_{end}_bytes"] or row["memory_bytes"] for end in ("lo", "hi"))
    return f"{show(low, 'bytes')} … {show(high, 'bytes')}"
