"""The tables of a sweep's report: the ranking, seconds by item, shortfalls, broken rules and how many points break each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pipesim.report.document import Cell, Column, Table
from pipesim.report.formats import with_runs
from pipesim.report.ranking import IDENTITY, Named, Row
from pipesim.report.say import Say, word
from pipesim.report.words import COLUMN_WORDS, MEMORY_WORDS, TIME_GROUPS, VERDICT_WORDS

_ALWAYS = ("t", "p", "d", "micro_batch")
MOST = 300
"""Layouts of which a table besides the ranking tells more."""


def flag(value: bool | None, say: Say) -> str | None:
    return None if value is None else say("yes", "是") if value else say("no", "否")


def ranking(order: Sequence[Row], varied: Sequence[str], say: Say) -> Table:
    measures: tuple[tuple[str, str, Any], ...] = (
        ("m", "num_microbatches", "count"), (say("step", "步时"), "step_time_s", "seconds"),
        (say("memory", "显存"), "memory_bytes", "bytes"), (say("fits", "放得下"), "fits", "text"), ("MFU", "mfu", "percent"),
        (say("bubble (idle/total)", "气泡（空闲/总）"), "bubble_fraction", "percent"),
        (say("tokens/s/GPU", "token/s/GPU"), "tokens_per_s_per_gpu", "number"),
        (say("params/GPU", "参数/GPU"), "params_per_gpu", "parameters"),
        (say("states", "模型状态"), "model_state_bytes", "bytes"), (say("DP sent", "DP 发送"), "dp_bytes_per_gpu", "bytes"),
        (say("TP sent", "TP 发送"), "tp_bytes_per_gpu", "bytes"), (say("best possible", "最好可达"), "efficiency_bound", "percent"),
        (say("bound by", "瓶颈"), "verdict", "text"),
    )  # fmt: skip
    shown = [name for name in IDENTITY if name in varied or name in _ALWAYS]
    identity = [
        Column(title=say(*COLUMN_WORDS[name]), kind="text" if isinstance(order[0][name], str | bool) else "count")
        for name in shown
    ]

    def cell(row: Row, name: str) -> Cell:
        value: Cell = row[name]
        if name == "verdict" and isinstance(value, str):
            return word(value, VERDICT_WORDS, say)
        if name == "settings" and isinstance(value, str):
            return with_runs(value)
        return flag(value, say) if isinstance(value, bool) else value

    return Table(
        title=say("Fastest first, by tokens/s; what does not fit stands last", "按 token/s 由快到慢；放不下的在最后"),
        columns=(
            Column(title=say("rank", "名次"), kind="count"),
            *identity,
            *(Column(title=title, kind=kind) for title, _, kind in measures),
        ),
        rows=tuple(
            (
                index if row["fits"] else None,
                *(cell(row, name) for name in shown),
                *(cell(row, name) for _, name, _ in measures),
            )
            for index, row in enumerate(order, start=1)
        ),
        emphasis=frozenset({0}) if order[0]["fits"] else frozenset(),
        note=say(
            "best possible: what this partition lets the pipeline reach, mean work over the slowest rank's.",
            "最好可达：这种划分下流水线的上限，即平均工作量除以最慢 rank 的工作量。",
        ),
    )


def parts(row: Row) -> tuple[float, ...]:
    """Seconds of every group of ``TIME_GROUPS``; they sum to the step time. Rounding leaves none below 0."""
    return tuple(max(0.0, sum(row[f"{item}_s"] for item in items)) for _, items in TIME_GROUPS)


def shares(order: Sequence[Row], named: Named, say: Say) -> Table:
    """Every layout's step by what it is spent on."""
    lines = [(row, parts(row)) for row in order[:MOST]]
    used = [k for k in range(len(TIME_GROUPS)) if any(each[k] for _, each in lines)]
    return Table(
        title=say("Seconds by item", "各项秒数"),
        columns=(
            Column(title=say("layout", "布局")),
            *(Column(title=say(*TIME_GROUPS[k][0]), kind="seconds") for k in used),
            Column(title=say("step", "步时"), kind="seconds"),
        ),
        rows=tuple((named(row), *(each[k] for k in used), row["step_time_s"]) for row, each in lines),
        note=_cut(len(order), say),
    )


def shortfalls(rows: Sequence[Row], named: Named, say: Say) -> Table:
    """What the heaviest rank of each holds, against the limit."""
    note = say(
        "Bytes of the heaviest rank. Asked alone, a layout shows every rank.",
        "最重 rank 的字节数。单独询问一个布局会列出每个 rank。",
    )
    return Table(
        title=say("Shortfalls", "缺口"),
        columns=(
            Column(title=say("layout", "布局")),
            Column(title=say("missing", "缺"), kind="bytes"),
            *(Column(title=say(*words), kind="bytes") for words in MEMORY_WORDS.values()),
            Column(title=say("total", "合计"), kind="bytes"),
        ),
        rows=tuple(
            (
                named(row),
                row["memory_bytes"] - row["memory_limit_bytes"],
                *(row[f"{item}_bytes"] for item in MEMORY_WORDS),
                row["memory_bytes"],
            )
            for row in rows[:MOST]
        ),
        note=" ".join(filter(None, [note, _cut(len(rows), say)])),
    )


def reasons(title: str, rows: Sequence[Row], named: Named, say: Say, note: str = "") -> Table:
    return Table(
        title=title,
        columns=(Column(title=say("layout", "布局")), Column(title=say("reason", "原因"))),
        rows=tuple((named(row), row["reason"]) for row in rows[:MOST]),
        note=" ".join(filter(None, [note, _cut(len(rows), say)])),
    )


def counted(rows: Sequence[Row], named: Named, say: Say) -> Table:
    """Every row that cannot run is counted once: by the item that weighs most, or by the keys whose rules it breaks."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["status"] != "ok":
            found.setdefault(_cause(row, say), []).append(row)
    lines = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    total = sum(len(each) for _, each in lines)
    return Table(
        title=say("Points that cannot run, counted by reason", "不能运行的点，按原因计数"),
        columns=(
            Column(title=say("outcome", "结果")),
            Column(title=say("mostly, or keys", "主要原因或键")),
            Column(title=say("points", "点数"), kind="count"),
            Column(title=say("for example", "例如")),
        ),
        rows=(
            *((outcome, why, len(each), named(each[0])) for (outcome, why), each in lines),
            (say("all", "合计"), "", total, ""),
        ),
        emphasis=frozenset({len(lines)}),
        note=say(
            "What does not fit is counted by what weighs most on its heaviest rank, what breaks rules by the "
            "keys that its "
            "reasons name. Of a study that this report shows only in part, those rows alone are counted.",
            "放不下的按最重 rank 上占得最多的一项计数，违反规则的按原因中的键计数。"
            "若本报告只显示研究的一部分，则只计入所示的行。",
        ),
    )


_KEY = re.compile(r"\b(?:parallel|training|model|cluster|schedule|stack|costs)\.[a-z_.]*[a-z_]")


def _cause(row: Row, say: Say) -> tuple[str, str]:
    if row["status"] == "infeasible":
        item = max(MEMORY_WORDS, key=lambda item: row[f"{item}_bytes"])
        return say("does not fit", "放不下"), say(*MEMORY_WORDS[item])
    if row["status"] == "failed":
        return say("failed", "出错"), str(row["reason"]).split(":")[0][:80]
    return say("breaks rules", "违反规则"), ", ".join(_keys(str(row["reason"]).splitlines()))


def _keys(problems: Iterable[str]) -> list[str]:
    """The keys that broken rules name first, without those of the nearest that works."""
    return sorted({key for problem in problems for key in _KEY.findall(problem.split("Nearest:")[0])})


def _cut(rows: int, say: Say) -> str:
    if rows <= MOST:
        return ""
    return say(
        f"The first {MOST} of {rows:,}; results.parquet has all.",
        f"{rows:,} 行中的前 {MOST} 行；全部见 results.parquet。",
    )
