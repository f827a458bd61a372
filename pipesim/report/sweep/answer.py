"""What a sweep found, in sentences: the best layout that fits, what bounds it, the runner-up, and how sure that is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipesim import headroom
from pipesim.report.document import Column, Table
from pipesim.report.formats import show
from pipesim.report.memory_words import memory_sure
from pipesim.report.ranking import Named, Row
from pipesim.report.say import Say
from pipesim.report.words import STATUS_WORDS, TIME_WORDS, bound_by, trust

SURE = 0.9
"""From this chance on two layouts are told apart, as in ``plan.search.stability``."""

MOST_MISTYPED = 5
"""Wrong values that are told."""

MOST_CHANCES = 10
"""Layouts whose chances are told."""


def answers(
    found: Mapping[tuple[str, ...], Sequence[Row]],
    named: Named,
    say: Say,
    sure: Mapping[str, Any] | None = None,
    room: float = headroom.USUAL,
) -> tuple[str, ...]:
    """A paragraph for each question, of ranked rows; of a single one also why, and how sure its order is. ``room`` is the
    share of memory that shall stay free.
    """
    several = len(found) > 1
    said = []
    for (model, cluster, costs), order in found.items():
        about = say(f"{model} on {cluster}, {costs} costs: ", f"{cluster} 上的 {model}，{costs} 成本：")
        said.append((about if several else "") + _answer(order, named, say, room))
        if not several and order and order[0]["fits"]:
            said += [_why(order[0], say), *_how_sure(order, named, say, sure)]
    return tuple(said)


def _answer(order: Sequence[Row], named: Named, say: Say, room: float) -> str:
    best = [row for row in order if row["fits"]]
    if not best:
        return _none(order, named, say, room)
    first = best[0]
    figures = (
        f"{show(first['step_time_s'], 'seconds')}", f"{show(first['mfu'], 'percent')}",
        f"{show(first['memory_bytes'], 'bytes')}", f"{show(first['memory_limit_bytes'], 'bytes')}",
    )  # fmt: skip
    step, mfu, held, limit = figures
    bound = bound_by(first, say)
    text = say(
        f"The fastest layout that fits is {named(first)}: {step} a step, MFU {mfu}, {held} of {limit}; bound "
        f"by {bound}.",
        f"放得下的最快布局是 {named(first)}：每步 {step}，MFU {mfu}，显存 {held} / {limit}；瓶颈是{bound}。",
    )
    if len(best) > 1:
        slower = show(first["tokens_per_s"] / best[1]["tokens_per_s"] - 1, "percent")
        text += say(f" The runner-up, {named(best[1])}, is {slower} slower.", f"第二名 {named(best[1])} 慢 {slower}。")
    text += say(" ", "") + trust(first, say) + memory_sure(first, room, say)
    return text + _with_headroom(best, named, say, room)


def _none(order: Sequence[Row], named: Named, say: Say, room: float) -> str:
    if not order:
        return say(
            "No layout can run: every one breaks a rule. Below they are counted by reason.",
            "没有布局能运行：每一个都违反规则。下面按原因计数。",
        )
    nearest = order[0]
    return say(
        f"No layout fits. The nearest is {named(nearest)}: {nearest['reason']}",
        f"没有布局放得下。最接近的是 {named(nearest)}：{shortfall(nearest, say)}",
    ) + memory_sure(nearest, room, say)


def shortfall(row: Row, say: Say) -> str:
    """How much a layout that does not fit lacks."""
    missing = show(row["memory_bytes"] - row["memory_limit_bytes"], "bytes")
    held, limit = show(row["memory_bytes"], "bytes"), show(row["memory_limit_bytes"], "bytes")
    return say(f"{missing} missing: {held} of {limit}.", f"缺 {missing}：需要 {held}，只有 {limit}。")


def _with_headroom(best: Sequence[Row], named: Named, say: Say, room: float) -> str:
    roomy = [row for row in best if headroom.left(row, room)]
    if best[0]["costs"] != "full" or roomy[:1] == [best[0]]:
        return ""
    spare = show(room, "percent")
    if not roomy:
        return say(
            f" With {spare} of the memory left free, the fastest is none of these.",
            f"若留出 {spare} 显存，则没有布局可用。",
        )
    step, held = show(roomy[0]["step_time_s"], "seconds"), show(roomy[0]["memory_bytes"], "bytes")
    return say(
        f" With {spare} of the memory left free, the fastest is {named(roomy[0])}: {step}, {held}.",
        f"若留出 {spare} 显存，最快的是 {named(roomy[0])}：{step}，{held}。",
    )


def _why(first: Row, say: Say) -> str:
    """Its largest items, and the fix that could gain most where that is known."""
    total = first["step_time_s"]
    largest = sorted(TIME_WORDS, key=lambda item: -first[f"{item}_s"])[:4]
    parts = say("; ", "；").join(
        f"{say(*TIME_WORDS[item])} {show(first[f'{item}_s'] / total, 'percent')}"
        for item in largest
        if first[f"{item}_s"] > 0
    )
    return say(f"Why: most of its step goes to {parts}.", f"原因：一步主要用于{parts}。") + best_fix(first, say)


FIXES = {
    "bubble": ("a schedule without bubble", "没有气泡的调度"),
    "imbalance": ("a partition into equal stages", "各段相等的划分"),
    "pp": ("results that move between stages in no time", "段间传输不花时间"),
    "tp": ("tensor-parallel communication that hides wholly", "张量并行通信完全隐藏"),
    "dp": ("gradient exchange that hides wholly", "梯度交换完全隐藏"),
    "cp and ep": ("context and expert communication that hides wholly", "上下文与专家通信完全隐藏"),
    "vocab": ("a spread vocabulary whose communication hides wholly", "词表分散的通信完全隐藏"),
    "recompute": ("no recomputation, where memory allows", "不重计算（若显存允许）"),
    "launch": ("kernels that launch in no time", "算子下发不花时间"),
    "all communication": ("all communication in no time", "所有通信都不花时间"),
}

TO_TRY = {
    "bubble": "schedule, parallel.v, training.micro_batch", "imbalance": "parallel.partition, parallel.spread_vocab",
    "pp": "parallel.p, schedule", "tp": "parallel.t, parallel.sequence_parallel", "dp": "parallel.zero, parallel.d",
    "cp and ep": "parallel.c, parallel.e", "vocab": "parallel.spread_vocab",
    "recompute": "training.recompute", "launch": "training.micro_batch, parallel.t",
}  # fmt: skip
"""The config keys that a user has for a fix; nobody has any for all communication at once."""


def best_fix(row: Row, say: Say) -> str:
    """A sentence with a space before it, or nothing where no fix is known to gain anything."""
    found: Mapping[str, float] = json.loads(row["fixes"] or "{}")
    gains = {fix: gain for fix, gain in found.items() if fix in TO_TRY}
    if not gains:
        return ""
    fix = max(gains, key=lambda each: gains[each])
    gain, share = show(gains[fix], "seconds"), show(gains[fix] / row["step_time_s"], "percent")
    return say(
        f" The fix that could gain most is {FIXES[fix][0]}: at most {gain} of a step, {share}.",
        f"最可能见效的改进是{FIXES[fix][1]}：一步至多省 {gain}，{share}。",
    )


def _how_sure(order: Sequence[Row], named: Named, say: Say, sure: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Whether the first is truly the best, and which layouts cannot be told from it."""
    best = [row for row in order if row["fits"]]
    if best[0]["step_time_hi_s"] is None or len(best) < 2:
        return ()
    if sure is None:
        text = say(
            "How sure: layouts of different stacks share no errors; only their intervals can be compared.",
            "把握：不同软件栈的布局没有共有的误差，只能比较它们的区间。",
        )
        return (text,)
    first, faster, loss = _whole(sure["best"][0]), _whole(sure["beaten"][1]), show(sure["loss"], "percent")
    clear = [row for row, chance in zip(best, sure["beaten"], strict=True) if chance >= SURE]
    others, alike = len(best) - 1, len(sure["alike"])
    told = say(
        f"{alike:,} of the {others:,} other layouts that fit cannot be told from it (under {_surely()})."
        if alike
        else f"No other layout that fits comes so near that the order is less sure than {_surely()}.",
        f"其余 {others:,} 个放得下的布局中，{alike:,} 个与它不可区分（不足 {_surely()}）。",
    )
    text = say(
        f"How sure: the chance that it is truly the fastest is {first}, that it is faster than the runner-up {faster}. {told} In "
        f"nine of ten cases it is at most {loss} slower than the truly fastest.",
        f"把握：第一名真正最快的概率为 {first}，快于第二名的概率为 {faster}。{told}十次里有九次，它至多比真正最快的慢 {loss}。",
    )
    if clear:
        step = show(clear[0]["step_time_s"], "seconds")
        text += say(
            f" The first that is clearly slower is {named(clear[0])}, {step}.",
            f"第一个明确更慢的是 {named(clear[0])}，{step}。",
        )
    return (text,)


def chances(order: Sequence[Row], sure: Mapping[str, Any] | None, named: Named, say: Say) -> tuple[Table, ...]:
    """Of the first layouts how likely each is truly the fastest; ``order`` is ranked."""
    if sure is None or len(sure["order"]) < 2:
        return ()
    rows = [row for row in order if row["fits"]]
    lines = tuple(
        (named(row), rows[0]["tokens_per_s"] / row["tokens_per_s"] - 1, best, beaten if k else None)
        for k, (row, best, beaten) in enumerate(zip(rows[:MOST_CHANCES], sure["best"], sure["beaten"], strict=False))
    )
    table = Table(
        title=say("How sure the order is", "名次有多可靠"),
        columns=(
            Column(title=say("layout", "布局")),
            Column(title=say("slower", "慢"), kind="percent"),
            Column(title=say("truly the fastest", "真正最快"), kind="percent"),
            Column(title=say("the first is faster", "第一名更快"), kind="percent"),
        ),
        rows=lines,
        slug="chances",
        note=say(
            "Chances, from how far the errors of two layouts of one question differ in published runs: what layouts share moves "
            "all of them together and is left out. Layouts that are much alike err much alike. Under "
            f"{_surely()} the first cannot be told from a layout.",
            "概率，依据已发表实测中同一问题的两个布局误差之差；共有的误差使各布局一起移动，不计入。"
            f"越相似的布局误差越相近。不足 {_surely()} 即不可区分。",
        ),
    )
    return (table,)


def _surely() -> str:
    return _whole(SURE)


def _whole(chance: float) -> str:
    """No digit behind the point, which no such chance deserves; never quite certain."""
    return f"{min(99, max(1, round(100 * chance)))} %"


def counts(found: Mapping[str, int], shown: int, say: Say) -> Table:
    points = sum(found.values())
    return Table(
        title=say("Asked points", "问到的点"),
        columns=(Column(title=say("outcome", "结果")), Column(title=say("points", "点数"), kind="count")),
        rows=(
            *((say(*words), found[status]) for status, words in STATUS_WORDS.items() if found.get(status)),
            (say("all", "合计"), points),
        ),
        note=""
        if shown == points
        else say(
            f"This report is made from {shown:,} of them.",
            f"本报告由其中 {shown:,} 个点做成。",
        ),
    )


def mistyped(rows: Sequence[Row], say: Say) -> tuple[str, ...]:
    """Values that are wrong whatever else is asked, each told once: a typing error is easily lost among rows that break rules."""
    reasons = [re.split(r"\n|(?<=\.) (?=[a-z_.]+=)", row["reason"]) for row in rows if row["status"] == "invalid"]
    told = Counter(problem for each in reasons for problem in each if re.match(r"[a-z_.]+=\S+ must ", problem))
    if not told:
        return ()
    first = " ".join(f"{problem} ({points:,})" for problem, points in list(told.items())[:MOST_MISTYPED])
    more = " …" * (len(told) > MOST_MISTYPED)
    return (say(f"Wrong in itself, and points with it: {first}{more}", f"本身有误的值及其点数：{first}{more}"),)


def kept(manifest: Mapping[str, Any], say: Say) -> tuple[str, ...]:
    """Which of the points that a grid evaluated its table keeps."""
    if not manifest.get("kept"):
        return ()
    evaluated, keep = Counter(manifest["evaluated"]), (manifest["first_point"].get("grid") or {}).get("keep") or {}
    counted = "，".join(f"{evaluated[each]:,} 个{zh}" for each, (_, zh) in STATUS_WORDS.items() if evaluated[each])
    rule = "，".join(f"{key}={json.dumps(value)}" for key, value in keep.items() if value is not None)
    table = sum(manifest["counts"].values())
    return (
        say(
            str(manifest["kept"]),
            f"共计算了 {sum(evaluated.values()):,} 个点（{counted}），表中保留 {table:,} 个；保留规则：{rule}。",
        ),
    )
