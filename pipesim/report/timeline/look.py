"""How the picture of a timeline looks and what it says: colours, words in both languages, and the legend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from pipesim.report.timeline.lanes import Lanes, chunk_names
from pipesim.schedules.action import Op, Schedule

# Okabe and Ito, "Color Universal Design", 2008.
_HUES = {Op.F: "#56b4e9", Op.B: "#e69f00", Op.I: "#cc79a7", Op.W: "#009e73"}
CELL_PX = 7.6  # of a character of 13 pixels, at most; wide ones take two
_BLACK, _ODD_BLACK, _ODD_WHITE = 0.55, 0.3, 0.4
"""How much black the last shade has, and its odd micro-batches; how much white those of the first have.

Of two shades, all sixteen colours stay apart for people with any of the three colour deficiencies (tested).
"""

STYLE = """
svg.pt{background:#fff;font-family:system-ui,sans-serif;--ink:#1f2328;--dim:#59636e;--idle:#eceff2;--line:#c9d1d9;
--page:#fff}
@media screen and (prefers-color-scheme:dark){
svg.pt{background:#0d1117;--ink:#e6edf3;--dim:#9198a1;--idle:#21262d;--line:#4a525b;--page:#0d1117}}
.pt text{fill:var(--ink);font-size:13px}.pt .dim{fill:var(--dim)}.pt .idle{fill:var(--idle)}
.pt .small{font-size:11px}.pt .no{text-anchor:middle}
.pt .axis{stroke:var(--line);fill:none}.pt .bars path{fill:none}.pt .held{fill:#8c959f}
.pt .bars .cut{stroke:var(--page);vector-effect:non-scaling-stroke}
.pt .bars .at{stroke:#111;vector-effect:non-scaling-stroke}
.pt .no text{fill:#000;font-size:inherit}.pt .no .light{fill:#fff}
.pt .guide text{fill:#111;font-size:10px;stroke:#fff;stroke-width:3px;paint-order:stroke}
"""

Words = dict[Op | str, str]
WORDS: dict[str, Words] = {
    "en": {
        Op.F: "forward", Op.B: "backward", Op.I: "input gradient", Op.W: "weight gradient",
        "fraction": "bubble fraction (idle/total)", "overhead": "bubble overhead (idle/useful)",
        "makespan": "makespan", "bound": "lower bound", "idle": "idle", "units": "units", "time": "time",
        "chunks": "{some}: a rank's stages, in order", "back": "micro-batches {some}: enter at rank {ranks}",
        "pair": "overlapped pair", "guide": "forward of micro-batch {some} starts",
        "segments": "a micro-batch has {some} segments, numbered through",
        "held": "activations in flight on each rank; at the right, the most",
        "held_most": "activations in flight on rank {some}, which holds most; at the right, the most",
    },
    "zh": {
        Op.F: "前向", Op.B: "反向", Op.I: "输入梯度", Op.W: "权重梯度",
        "fraction": "气泡占比 bubble fraction（空闲/总时间）", "overhead": "气泡开销 bubble overhead（空闲/有效时间）",
        "makespan": "总时长", "bound": "下界", "idle": "空闲", "units": "单位", "time": "时间",
        "chunks": "{some}：同一 rank 上的阶段，按先后", "back": "微批次 {some}：从 rank {ranks} 进入",
        "pair": "重叠的一对", "guide": "微批次 {some} 的前向开始",
        "segments": "每个微批次分 {some} 段，连续编号",
        "held": "各 rank 同时保留的激活值份数；右侧为峰值",
        "held_most": "rank {some}（保留最多者）同时保留的激活值份数；右侧为峰值",
    },
}  # fmt: skip


class Tones(NamedTuple):
    """Colours by number: ``(op * shades + shade) * 2 + odd``; ``light`` says that white is read better on it."""

    colour: list[str]
    light: list[bool]


def tones(shades: int) -> Tones:
    """The hue tells the op, darkness the stage and the way, lightness the odd micro-batches."""
    colours: list[str] = []
    light: list[bool] = []
    for op in Op:
        for shade in range(shades):
            part = shade / max(1, shades - 1)
            hue = _rgb(_HUES[op])
            odd = _mixed(_mixed(hue, 0, _ODD_BLACK * part), 255, _ODD_WHITE * (1 - part))
            for rgb in (_mixed(hue, 0, _BLACK * part), odd):
                colours.append("#" + "".join(f"{round(channel):02x}" for channel in rgb))
                light.append(_luminance(rgb) < 0.18)  # where black and white contrast alike
    return Tones(colours, light)


class _Box(NamedTuple):
    """A rectangle of a legend's swatch; ``fill`` is an attribute."""

    x: int
    y: int
    width: float
    height: int
    fill: str


def legend(schedule: Schedule, of: Lanes, words: Words, guide: int | None, room: int) -> tuple[list[str], int]:
    """SVG elements in lines of at most ``room`` pixels, from the origin on, and their height."""
    parts, x, y = [], 0, 0
    for boxes, label in _entries(schedule, of, words, guide):
        text_x = max([round(box.x + box.width) + 6 for box in boxes], default=0)
        width = text_x + math.ceil(CELL_PX * cell_len(label))
        if x and x + width > room:
            x, y = 0, y + 20
        for box in boxes:
            place = f'x="{x + box.x}" y="{y + box.y}" width="{box.width}" height="{box.height}"'
            parts.append(f"<rect {place} {box.fill}/>")
        parts.append(f'<text class="dim" x="{x + text_x}" y="{y + 12}">{label}</text>')
        x += width + 14
    return parts, y + 20


def _entries(schedule: Schedule, of: Lanes, words: Words, guide: int | None) -> Iterator[tuple[list[_Box], str]]:
    colour = tones(of.shades).colour
    used = [Op(op) for op in np.unique(schedule.op).tolist()]

    def fill(op: Op, shade: int, odd: int = 0) -> str:
        return f'fill="{colour[(op * of.shades + shade) * 2 + odd]}"'

    def row(*fills: str) -> list[_Box]:
        return [_Box(10 * k, 0, 10, 14, look) for k, look in enumerate(fills)]

    for op in used:
        yield row(fill(op, 0, 0), fill(op, 0, 1)), f"{op.name} {words[op]}"
    yield row('class="idle"'), words["idle"]
    if of.chunks > 1:
        shown = range(min(of.chunks, 8))
        yield row(*(fill(used[0], chunk) for chunk in shown)), words["chunks"].format(some=chunk_names(of.chunks))
    if of.back_micro_batches:
        looks = row(*(fill(op, of.chunks) for op in used))
        yield looks, words["back"].format(some=of.back_micro_batches, ranks=of.back_ranks)
    if schedule.joined.any():
        second = Op(int(schedule.op[np.flatnonzero(schedule.joined)[0] + 1]))
        yield [_Box(0, 0, 20, 7, fill(Op.F, 0)), _Box(0, 7, 20, 7, fill(second, 0))], words["pair"]
    if schedule.segments > 1:
        yield [], words["segments"].format(some=schedule.segments)
    if guide is not None:
        yield [_Box(0, 0, 1.5, 14, 'fill="#111"')], words["guide"].format(some=f"0, {guide}, {2 * guide} …")


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))


def _mixed(rgb: tuple[float, ...], other: int, part: float) -> tuple[float, ...]:
    return tuple(channel + (other - channel) * part for channel in rgb)


def _luminance(rgb: tuple[float, ...]) -> float:
    """Relative, 0 to 1. Source: W3C, "Web Content Accessibility Guidelines 2.1", section 1.4.3."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (channel / 255 for channel in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
